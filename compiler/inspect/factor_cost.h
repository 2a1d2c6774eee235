// What the factors of a matrix cost, before and after symbolic factorization.
#pragma once

#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_symbolic.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

struct FactorCost {
  /// Entries of L + U, the diagonal once.
  uint64_t entries = 0;
  /// Multiplications, additions and divisions.
  double flops = 0;
  /// Levels of columns that are gathered from those they read.
  uint64_t levels = 0;
};

/// The number of entries of each column of the Cholesky factor of A + A^T, with the diagonal, in
/// time nearly proportional to the entries of A (Gilbert, Ng and Peyton, "An efficient algorithm to
/// compute row and column counts for sparse Cholesky factorization", SIAM J. Matrix Anal. Appl. 15,
/// 1994). `parent` is the elimination tree.
std::vector<uint32_t> cholesky_column_counts(const Pattern& a, const std::vector<uint32_t>& parent);

/// An upper bound of the cost of L and U with pivots from the diagonal: the cost for the pattern of
/// A + A^T, so the cost itself where the pattern is symmetric. Takes no memory for the factors.
FactorCost symmetric_factor_cost(const Pattern& a);

/// The cost itself, of factors whose pattern is known.
FactorCost factor_cost(const LuPattern& rows, const LuColumns& columns, const LuLevels& levels);

/// Microseconds that one numeric factorization takes on a GPU, entry by entry as soon as operands
/// are there. The shape of the formula, a start, a hop for each level, work for each entry and each
/// operation, was fitted to measurements on an H200 in float64 (add32 to ibmpg1, 22 to 316 levels);
/// it is there to compare orders with one another.
double predicted_factor_time_us(const FactorCost& cost);

} // namespace sparsertc
