// Executes placed programs of the IR: host functions are interpreted, kernels launched, arrays
// allocated and copied, and what the device can do alone is recorded once and launched as one.
#pragma once

#include "ir/module.h"
#include "runtime/program/device.h"
#include "runtime/program/region.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace sparsertc::program {

/// Machine code of host functions, where there is some.
class HostCode {
public:
  virtual ~HostCode() = default;
  /// Runs the function; false where there is no code for it.
  virtual bool run(uint32_t function, std::span<const Bits> arguments) = 0;
};

/// What one `copy` of the program has done so far. Inside of a recording a copy to the host is one
/// to device memory; it reaches the host when the recording ends, and only that is counted.
struct CopyCount {
  uint32_t function = 0, op = 0;
  ir::Space to = ir::Space::none, from = ir::Space::none;
  uint64_t times = 0;
  uint64_t bytes = 0; ///< of all times together
};

class Executor {
public:
  struct Options {
    /// Record what the device can do alone.
    bool record = true;
    HostCode* host_code = nullptr;
    /// Called in each round of a loop that the host runs; may throw.
    std::function<void()> every_round;
  };

  /// `module` is verified and placed; it and `device` must outlive the executor. UserError where a
  /// buffer has no place.
  Executor(const ir::Module& module, Device& device, Options options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Host memory that programs may be given: accesses outside of what is known are errors.
  void bind_host(void* address, uint64_t bytes);

  /// Runs a host function; returns when its last work has been put to the device. Arguments as
  /// registers hold them: addresses of host or device memory, numbers. What it allocates and does
  /// not free is freed at its end. UsageError where there is no such function or an argument is
  /// missing; UserError where the program leaves its arrays.
  void run(std::string_view function, std::span<const Bits> arguments);

  /// In the order of functions and operations.
  std::vector<CopyCount> copies() const;
  /// Launches and external calls that the host made one by one, and launches of recordings.
  uint64_t launches() const { return launches_; }
  uint64_t recordings_launched() const { return recordings_launched_; }
  /// How often something was recorded: more often than there are regions where arguments change.
  uint64_t recorded() const { return recorded_; }

private:
  struct Frame;
  struct RegionState;
  struct FunctionState;
  class KeyRecorder;

  FunctionState& state(uint32_t function);
  void call(uint32_t function, std::span<const Bits> arguments);
  /// False where the function has returned.
  bool block(Frame& frame, uint32_t begin, uint32_t end);
  void operation(Frame& frame, uint32_t at);
  void value(Frame& frame, uint32_t at);
  void copy(Frame& frame, uint32_t at);
  void launch(Frame& frame, uint32_t at, Queue& queue);
  /// True where the region ran as a recording.
  bool region(Frame& frame, RegionState& region);
  void walk(Frame& frame, RegionState& region, uint32_t begin, uint32_t end, Recorder& recorder);
  Test test_of(Frame& frame, const RegionState& region, uint32_t at) const;
  uint8_t* reach(const Frame& frame, uint32_t at, Bits address, uint64_t bytes);
  uint64_t elements(const Frame& frame, uint32_t at) const;
  void count(const Frame& frame, uint32_t at, uint64_t bytes);

  const ir::Module& module_;
  Device& device_;
  Options options_;
  std::map<uint32_t, std::unique_ptr<FunctionState>> functions_;
  std::map<uint64_t, uint64_t> host_arrays_; ///< bytes by address
  std::pair<uint64_t, uint64_t> last_array_; ///< the one that was reached last
  std::map<uint64_t, std::vector<uint8_t>> host_memory_;
  std::map<uint64_t, uint64_t> device_memory_; ///< bytes by address
  std::map<std::pair<uint32_t, uint32_t>, CopyCount> copies_;
  uint64_t launches_ = 0, recordings_launched_ = 0, recorded_ = 0;
};

} // namespace sparsertc::program
