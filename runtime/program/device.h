// Where the device's part of a program runs: memory, kernels, and what repeats them without the
// host. The executor (executor.h) decides what is done when; this says how.
#pragma once

#include "runtime/program/values.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace sparsertc::program {

/// Takes device work and carries it out in order, or records it.
class Queue {
public:
  virtual ~Queue() = default;
  /// `kernel`, `function`: numbers of the module's functions; arguments as registers hold them.
  virtual void launch(uint32_t kernel, const uint32_t (&grid)[3],
                      std::span<const Bits> arguments) = 0;
  /// Work behind an external host function.
  virtual void call(uint32_t function, std::span<const Bits> arguments) = 0;
  /// Within device memory; the arrays do not overlap.
  virtual void copy(uint64_t to, uint64_t from, uint64_t bytes) = 0;
};

/// Whether an element in device memory compares with `number` in this way.
struct Test {
  uint64_t element = 0; ///< its address
  ir::Scalar type = ir::Scalar::i32;
  ir::Comparison comparison = ir::Comparison::ne;
  Bits number = 0;
};

/// Records device work that is to be launched as one.
class Recorder : public Queue {
public:
  using Work = std::function<void(Recorder&)>;
  /// Carries out `body`, and again as long as the test is true after it. Asks for the test after
  /// `body` has been put to a recorder; may do that more than once.
  virtual void repeat(const Work& body, const std::function<Test()>& again) = 0;
  /// Carries out one of the two, as the test is true now or is not. `otherwise` may be empty.
  virtual void choose(const Test& test, const Work& body, const Work& otherwise) = 0;
};

class Recording {
public:
  virtual ~Recording() = default;
  virtual void launch() = 0;
};

/// What a device can record.
enum class Records : uint8_t {
  nothing,
  sequences, ///< launches, calls and copies, one behind the other
  control,   ///< Recorder::repeat and choose, too
};

class Device : public Queue {
public:
  /// Memory that is aligned to 256 bytes. 0 bytes have no address.
  virtual uint64_t allocate(uint64_t bytes) = 0;
  virtual void free(uint64_t address, uint64_t bytes) = 0;
  /// Copies whose bytes have arrived when the call returns.
  virtual void upload(uint64_t to, const void* from, uint64_t bytes) = 0;
  virtual void download(void* to, uint64_t from, uint64_t bytes) = 0;
  /// Waits for all that was put here.
  virtual void synchronize() = 0;

  virtual Records records() const { return Records::nothing; }
  virtual std::unique_ptr<Recording> record(const std::function<void(Recorder&)>&) {
    return nullptr;
  }
};

} // namespace sparsertc::program
