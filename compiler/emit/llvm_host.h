// Host code: which functions a module needs and the objects they are compiled to. Internal to the
// LLVM road.
#pragma once

#include "compiler/emit/llvm_backend.h"
#include "runtime/host/task_pool.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// One function for one number of lanes.
struct HostFunction {
  uint32_t function = 0;
  uint32_t lanes = 1;
};

/// What every kernel of `module` needs at its own number of lanes (`one_lane`: what runs when a
/// block is given up).
std::vector<HostFunction> host_functions(const ir::Module& module, bool one_lane);

/// The functions as objects that refer to one another and, by "NAME$data", to the symbols. Compiled
/// in pieces of a size that depends on the module only, on the pool's threads.
std::vector<std::vector<uint8_t>> host_objects(const ir::Module& module,
                                               const std::vector<HostFunction>& functions,
                                               const Target& target, unsigned optimisation_level,
                                               TaskPool& pool);

/// Everything in one LLVM module: lanes and single lanes, the symbols, and for each kernel the
/// exported `void NAME(const KernelArgument*, uint32_t block_x, uint32_t block_y, uint32_t
/// block_z)` that runs one block.
std::unique_ptr<llvm::Module> whole_host_module(const ir::Module& module, LlvmBackend& backend);

} // namespace sparsertc
