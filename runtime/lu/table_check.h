// Whether tables that came from a file can be executed: nothing is read or written outside of the
// arrays, and no kernel waits for a number that never comes. (That the numbers are those of the
// matrix is the compiler's business.)
#pragma once

#include "ir/lu_batch_loop.h"
#include "ir/lu_tables.h"
#include "runtime/lu/gpu_plan.h"

#include <cstdint>
#include <string>

namespace sparsertc::lu {

/// All throw UserError, which names the array, where they cannot. `name` is the bundle's and the
/// section's.
void check_tables(const LuTables& tables, const std::string& name);

/// `warps` of a block of the kernel. The tables must be sound.
void check_factor_flow(const LuDataflow& flow, const LuTables& tables, uint32_t warps,
                       const std::string& name);
/// `block_warps` of the block that solves; 0 where there is none.
void check_solve(const GpuFlows::Solve& solve, const LuTables& tables, bool transposed,
                 uint32_t warps, uint32_t block_warps, const std::string& name);
/// For the loops of the CPU and of the GPU.
void check_batch_loop(const LuBatchLoop& loop, const LuTables& tables, const std::string& name);

} // namespace sparsertc::lu
