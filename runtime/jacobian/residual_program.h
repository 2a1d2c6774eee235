// A residual's program, compiled, on the CPU or on the GPU: memory beside it and calls of its
// entries.
#pragma once

#include "runtime/jacobian/parameters.h"
#include "runtime/jacobian/source.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sparsertc::jacobian {

/// What a program has to say (residual_numbers.cuh: Status).
struct ResidualStatus {
  uint32_t code = 0;
  uint32_t where = 0;
  int64_t index = 0;
  int64_t length = 0;
};
static_assert(sizeof(ResidualStatus) == 24, "programs and hosts agree on the layout");

/// Throws the UserError that a status stands for, nothing for code 0.
void throw_status(const ResidualStatus& status, const ResidualSource& source,
                  const ParameterSet& parameters);

/// Numbers where a program can reach them.
class ProgramMemory {
public:
  virtual ~ProgramMemory() = default;
  virtual uint64_t address() const = 0;
  /// At most as many bytes as there are.
  virtual void write(std::span<const uint8_t> bytes) = 0;
  virtual void read(std::span<uint8_t> bytes) const = 0;
};

/// Which instances a call is for, and how they lie (residual_kernels.cuh: Common).
struct CallInstances {
  uint64_t stride = 1; ///< of vectors
  uint64_t first = 0;
  uint64_t parameter_stride = 1;
  uint64_t parameter_first = 0;
  uint64_t count = 1;
};

/// A call's arguments, 8 bytes each, in the order of its struct.
struct ProgramCall {
  std::vector<uint64_t> words;
  uint64_t tasks = 1;
  uint64_t threads = 0; ///< of a GPU, for each instance; 0: one for each task
  uint64_t instances = 1;
  uint32_t kept_numbers = 0; ///< of a thread of a GPU, in shared memory
};

class ResidualProgram {
public:
  virtual ~ResidualProgram() = default;
  virtual std::unique_ptr<ProgramMemory> allocate(uint64_t bytes) const = 0;
  /// Runs an entry and waits. UserError where the user's code went over its loop limit or out of
  /// its arrays.
  virtual void run(const std::string& entry, const ProgramCall& call) const = 0;
};

template <class T>
std::span<const uint8_t> as_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::span<uint8_t> as_writable_bytes(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// Memory with these numbers.
template <class T>
std::unique_ptr<ProgramMemory> upload(const ResidualProgram& program,
                                      const std::vector<T>& values) {
  auto memory = program.allocate(values.size() * sizeof(T));
  memory->write(as_bytes(values));
  return memory;
}
template <class T>
std::vector<T> download(const ProgramMemory& memory, uint64_t count) {
  std::vector<T> values(count);
  memory.read(as_writable_bytes(values));
  return values;
}
/// Float64 numbers as the program's own, and back.
std::unique_ptr<ProgramMemory> upload_reals(const ResidualProgram& program,
                                            std::span<const double> values, bool f32);
std::vector<double> download_reals(const ProgramMemory& memory, uint64_t count, bool f32);

/// A residual's parameters where its program can reach them.
class ParameterMemory {
public:
  ParameterMemory(const ResidualProgram& program, const ParameterSet& parameters, bool f32);

  /// Appends what every call ends in: the place of x, its length, the instances, the parameters.
  void finish(ProgramCall& call, uint64_t x, uint64_t n, const CallInstances& instances) const;

private:
  std::vector<std::unique_ptr<ProgramMemory>> arrays_;
  std::vector<uint64_t> words_; ///< address and length of each
};

} // namespace sparsertc::jacobian
