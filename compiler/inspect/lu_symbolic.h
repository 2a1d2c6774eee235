// Symbolic factorization: where L+U has entries when the diagonal entries are the pivots.
//
// Entry (i,j) is there if and only if the graph of A has a path from i to j whose inner vertices
// are all smaller than both ends (Rose and Tarjan, Algorithmic aspects of vertex elimination on
// directed graphs, SIAM J. Appl. Math. 34, 1978). Cancellation is not looked at. The diagonal
// always belongs to the result, whether or not A has it.
#pragma once

#include "compiler/pattern/pattern.h"
#include "runtime/host/task_pool.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// L+U of an n x n matrix.
struct LuPattern {
  /// n x n, in compressed rows.
  Pattern rows;
  /// The place of (i,i) in rows.column_index.
  std::vector<uint64_t> diagonal;

  bool operator==(const LuPattern&) const = default;
};

/// L+U by columns.
struct LuColumns {
  /// n x n: row j holds the rows of the entries of column j.
  Pattern columns;
  /// The place of (j,j) in columns.column_index.
  std::vector<uint64_t> diagonal;
  /// The place in compressed rows of each entry in compressed columns.
  std::vector<uint64_t> place_in_rows;
};
LuColumns by_columns(const LuPattern& pattern);

/// The fast method: each row is what its own entries reach through the rows before, which are
/// pruned where a symmetric pair makes the rest redundant (Eisenstat and Liu, Exploiting structural
/// symmetry in unsymmetric sparse symbolic factorization, SIAM J. Matrix Anal. Appl. 13, 1992).
/// Subtrees of the elimination tree of A + A^T do not touch one another and run in parallel on
/// `pool`, if given. UserError where `a` is not square.
LuPattern symbolic_lu(const Pattern& a, TaskPool* pool = nullptr);

/// The same result by `fill2` of Rose and Tarjan, which needs no row but the own and so is what a
/// GPU runs: more work, but every row for itself. The reference for the GPU's version.
LuPattern symbolic_lu_fill2(const Pattern& a, TaskPool* pool = nullptr);

} // namespace sparsertc
