// The CPU as the device of a program: its memory is the host's, in arrays of its own; kernels and
// host functions are compiled through LLVM.
#pragma once

#include "compiler/emit/host_program.h"
#include "ir/module.h"
#include "runtime/program/executor.h"

#include <map>
#include <optional>
#include <string>

namespace sparsertc {

class ProgramOnHost : public program::Device, public program::HostCode {
public:
  /// Compiles. `module` and `pool` must outlive it. UserError where the program has external
  /// functions, or kernels that only a GPU runs.
  ProgramOnHost(const ir::Module& module, TaskPool& pool);

  void launch(uint32_t kernel, const uint32_t (&grid)[3],
              std::span<const program::Bits> arguments) override;
  void call(uint32_t function, std::span<const program::Bits> arguments) override;
  void copy(uint64_t to, uint64_t from, uint64_t bytes) override;
  /// UserError where the program's buffers would take more than the machine's memory.
  uint64_t allocate(uint64_t bytes) override;
  void free(uint64_t address, uint64_t bytes) override;
  void upload(uint64_t to, const void* from, uint64_t bytes) override;
  void download(void* to, uint64_t from, uint64_t bytes) override;
  void synchronize() override {}

  /// Host functions without program-level operations.
  bool run(uint32_t function, std::span<const program::Bits> arguments) override;

private:
  void run_kernel(const std::string& name, const uint32_t (&grid)[3],
                  std::span<const program::Bits> arguments) const;

  const ir::Module& module_;
  TaskPool& pool_;
  std::map<uint32_t, std::string> entries_; ///< kernels that stand for host functions
  std::optional<HostProgram> code_;
  uint64_t allocated_ = 0; ///< bytes that are in use
};

} // namespace sparsertc
