// The steps of ir/lu_block_solve.h: which levels are taken together, which warp does what.
#pragma once

#include "ir/lu_block_solve.h"
#include "ir/lu_tables.h"

#include <cstdint>

namespace sparsertc {

struct LuBlockSolveOptions {
  uint32_t warps = 16;
  /// Of a gather: a row gets so many lanes (a power of 2, at most a warp) that none has more
  /// products than this.
  uint32_t products_of_lane = LuBlockSolve::kProducts;
};

/// Forward and backward substitution, also with the transposed matrix. Neighbouring levels are
/// taken together where their rows fall into sets of at most 32 that do not depend on one another,
/// and an estimate of the steps' latency says that it pays. UserError where the factors have 2^31
/// entries or more.
LuBlockSolve make_block_solve(const LuTables& tables, const LuBlockSolveOptions& options,
                              bool transposed);

uint64_t block_solve_bytes(const LuBlockSolve& solve);

} // namespace sparsertc
