// What a sparse LU factorization of one pattern needs to be done again and again with new values:
// plain arrays, filled by the compiler's inspector, used by the runtime on the CPU and on the GPU.
//
//   B = P R A C Q                       the permuted and scaled matrix, n x n
//   B = L' D U                          L' lower, U upper, D diagonal
//
// L' and U have the pivots on their diagonals and D their reciprocals: the entries of L' are not
// divided by pivots. So every entry of L'+U, of either side, is a gather of the same form,
//
//   v(i,j) = b(i,j) - sum over k < min(i,j) of  v(i,k) * (v(k,j) * d(k)),
//
// and the two substitutions of a solve have one form, too, also for the transposed matrix:
//
//   forward     y(i) = b(i) - sum over k < i of L'(i,k) z(k),    z(i) = d(i) y(i)
//   backward    x(i) = d(i) (y(i) - sum over k > i of U(i,k) x(k)).
//
// The value at the place of the pivot (i,i) is d(i). A *slot* is the place of an entry of L'+U in
// compressed columns; an array of n values of that order holds the whole factorization.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

/// Columns (or rows) in groups; the members of a group depend on members of earlier groups alone.
/// Ascending within a group.
struct LuLevels {
  std::vector<uint64_t> offset = {0}; ///< groups + 1 places in `member`
  std::vector<uint32_t> member;

  uint64_t count() const { return offset.size() - 1; }
  bool operator==(const LuLevels&) const = default;
};

struct LuTables {
  uint32_t size = 0;      ///< n
  uint64_t input_nnz = 0; ///< entries of A

  /// Row i of B is row row_order[i] of A; the same for columns.
  std::vector<uint32_t> row_order;
  std::vector<uint32_t> column_order;
  /// R and C by the rows and columns of A; empty for ones.
  std::vector<double> row_scale;
  std::vector<double> column_scale;

  /// L'+U in compressed columns, rows ascending; the slot of each diagonal entry.
  std::vector<uint64_t> column_offset = {0};
  std::vector<uint32_t> row_index;
  std::vector<uint64_t> diagonal;

  /// The same in compressed rows, columns ascending, with the slot of each entry.
  std::vector<uint64_t> row_offset = {0};
  std::vector<uint32_t> column_index;
  std::vector<uint64_t> row_slot;
  /// Where the diagonal entry of each row stands in column_index.
  std::vector<uint64_t> row_diagonal;

  /// The entries of B by columns, in ascending order of slots: row, slot, the number of the entry
  /// of A in the caller's order, and the factor r(i) c(j) it is multiplied with (empty for ones).
  std::vector<uint64_t> input_offset = {0};
  std::vector<uint32_t> input_row;
  std::vector<uint64_t> input_slot;
  std::vector<uint64_t> input_source;
  std::vector<double> input_scale;

  /// Columns whose entries may be gathered at once.
  LuLevels factor_levels;
  /// Rows of the forward and backward substitution; columns of those with the transposed matrix.
  LuLevels forward_levels;
  LuLevels backward_levels;
  LuLevels transposed_forward_levels;
  LuLevels transposed_backward_levels;

  uint64_t nnz() const { return row_index.size(); }
};

/// The gather tasks of a factorization, one for each slot, in an order in which they may be begun:
/// by level, within a level by slot. The pairs of a task are in ascending order of k.
struct LuGather {
  std::vector<uint64_t> level_offset = {0}; ///< levels + 1 places in task_slot
  std::vector<uint64_t> task_slot;          ///< the slot that a task computes
  std::vector<uint64_t> pair_offset = {0};  ///< tasks + 1 places in the arrays of pairs
  std::vector<uint32_t> pair_left;          ///< slot of v(i,k)
  std::vector<uint32_t> pair_right;         ///< slot of v(k,j)
  std::vector<uint32_t> pair_pivot;         ///< slot of d(k)

  uint64_t tasks() const { return task_slot.size(); }
  uint64_t pairs() const { return pair_left.size(); }
};

} // namespace sparsertc
