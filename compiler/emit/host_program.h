// Kernels compiled for this machine's CPU and ready to run: a block of threads becomes one task,
// the threads along x become vector lanes.
#pragma once

#include "compiler/emit/llvm.h"
#include "ir/module.h"
#include "runtime/host/task_pool.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace sparsertc {

/// A kernel argument: pointers and integers in 8 bytes.
union KernelArgument {
  void* pointer;
  int64_t integer;
};

class HostProgram {
public:
  /// Compiles every kernel of the module. Throws UserError where a kernel uses what only a GPU has
  /// (barriers, shared memory, matrix fragments): schedules for the host avoid these.
  static HostProgram compile(const ir::Module& module, const LlvmOptions& options = {});
  HostProgram(HostProgram&&) noexcept;
  HostProgram& operator=(HostProgram&&) noexcept;
  ~HostProgram();

  /// Runs all blocks of the grid on the pool's threads and returns when they are done.
  void run(const std::string& kernel, const uint32_t (&grid)[3],
           std::span<const KernelArgument> arguments, TaskPool& pool) const;

private:
  struct Implementation;
  explicit HostProgram(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

} // namespace sparsertc
