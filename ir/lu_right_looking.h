// A right-looking sparse LU factorization by levels: plain arrays, filled by the compiler's
// inspector, read by the kernels of runtime/kernels/lu_right_looking.cu.
//
//   level        0              1            2      ...    of columns, by the safe rule: a column
//   stage   0    1              2            3      ...    also waits for those that write to its
//           |    |              |            |             row (LevelRule::right_looking)
//           |    columns of level 0 are subtracted from later ones
//           columns from which nothing is subtracted are finished
//
// In a stage every column k from which columns of the level are subtracted belongs to a warp, or to
// several that have different rows of it. Its warp takes the columns j of the level one after the
// other, ascending (the *sources* of the update):
//
//   v(i,k) = v(i,k) - v(i,j) * (v(j,k) * d(j))     for the rows i of column j of L'
//
// so nothing is added by two warps, and the order of every sum is fixed. After its last update a
// column is finished: its pivot is looked at and its reciprocal stored.
//
// Where v(i,k) stands is found in one of two ways. A *dense* update spreads column k out over a
// vector of n numbers, in which row i stands at place i. A *compressed* one looks for row i among
// the rows of column k by bisection, which takes no memory (Xia, Jiang, Agrawal and Ramnath,
// "End-to-end LU factorization of large matrices on GPUs", PPoPP 2023). Both give the same bits.
//
// The last columns may be a *dense tail*: when nothing more is subtracted from them by columns
// before it, the square of its rows and columns is factorized as a dense matrix, in blocks of
// columns. So
//
//   v(i,j) = v(i,j) - v(i,k) * (v(k,j) * d(k))     for k ascending, from the tail's first column
//   on,
//
// also where L'+U has no entry: such products are zero.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

/// Of LuUpdate::flags.
enum LuUpdateFlag : uint32_t {
  kLuUpdateLast = 1,   ///< nothing more is subtracted from the column: it is finished
  kLuUpdateDense = 2,  ///< by way of a dense vector
  kLuUpdateRows = 4,   ///< other updates have the column's other rows
  kLuUpdateShared = 8, ///< other updates write to the same entries at the same time
};

/// A column j that is subtracted from a column k.
struct LuSource {
  uint32_t slot = 0;  ///< of v(j,k)
  uint32_t begin = 0; ///< the slots of column j below the diagonal; d(j) stands before the first
  uint32_t length = 0;

  bool operator==(const LuSource&) const = default;
};
static_assert(sizeof(LuSource) == 12, "kernels and hosts agree on the layout");

/// What a warp does in a stage.
struct LuUpdate {
  uint64_t first_source = 0; ///< a place in LuRightLooking::source
  uint32_t sources = 0;
  uint32_t column = 0;
  /// The slots that it writes to, of neighbouring rows of the column. Where a column is finished,
  /// its updates have all its slots among them.
  uint32_t first_slot = 0;
  uint32_t end_slot = 0;
  /// The first of the slots that sources reach, first_slot or later.
  uint32_t reached_slot = 0;
  uint32_t flags = 0;

  bool operator==(const LuUpdate&) const = default;
};
static_assert(sizeof(LuUpdate) == 32, "kernels and hosts agree on the layout");

/// Neighbouring stages that one launch works through.
struct LuStageRun {
  uint32_t first_stage = 0;
  uint32_t end_stage = 0;
  /// Blocks of the launch. One block goes from stage to stage by itself; several wait for one
  /// another at a barrier, and must be resident at once, where the run has several stages.
  uint32_t blocks = 1;
  uint32_t warps = 1; ///< of a block
  bool operator==(const LuStageRun&) const = default;
};

struct LuRightLooking {
  std::vector<uint32_t> stage_offset = {0}; ///< stages + 1 places in `update`
  /// The level whose columns are subtracted in a stage; of the first stage, in which columns are
  /// finished only, UINT32_MAX.
  std::vector<uint32_t> stage_level;
  std::vector<LuUpdate> update;
  std::vector<LuSource> source; ///< by update
  std::vector<LuStageRun> runs;
  /// Vectors of n numbers for dense updates: the warps of the largest run that has any.
  uint32_t dense_columns = 0;
  uint32_t tail_columns = 0; ///< the last of all, which are no sources

  uint32_t stages() const { return static_cast<uint32_t>(stage_offset.size() - 1); }
};

} // namespace sparsertc
