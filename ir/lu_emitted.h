// A sparse LU factorization left-looking by levels, by kernels that are made for the pattern: plain
// arrays, filled by the compiler's inspector (compiler/inspect/lu_emitted.h), read by the writer of
// the kernels (compiler/lower/lu_emitted.h) and by the runtime, which launches them.
//
//   level 0    level 1 ... level 7    level 8    level 9
//   launch     one block for all,     launch     launch ...        a launch a level; neighbouring
//              a barrier between                                   small levels share a block
//
// A level has work of three kinds, and a warp takes one piece of it at a time:
//
//   strips        columns in straight-line code: every place in memory, every length a constant
//   long tasks    an entry of L'+U, its products read from tables by all lanes
//   short tasks   32 entries, a lane each, their products read from tables
//
// A column in straight-line code is one piece of work, of the level after the last of the columns
// that it reads. The entries of the others are pieces of their own, each one level after what it
// reads.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

/// An entry of L'+U that is gathered by tables: v(i,j) = b(i,j) - sum of v(i,k) * (v(k,j) * d(k)).
struct LuEmittedTask {
  uint32_t slot = 0;
  int32_t column = 0; ///< j, or ~j of the pivot
  uint32_t first = 0; ///< of its products, places in left, right and pivot
  uint32_t count = 0;
};
static_assert(sizeof(LuEmittedTask) == 16, "kernels and hosts agree on the layout");

/// Ends of ranges, each of which begins where that of the level before ends; long tasks of a level
/// come before its short ones.
struct LuEmittedLevel {
  uint32_t first_strip = 0, end_strip = 0;
  uint32_t first_task = 0, end_long = 0, end_task = 0;
  uint64_t multiply_adds = 0; ///< of all of it
  uint64_t unrolled = 0;      ///< of those, in straight-line code

  uint32_t strips() const { return end_strip - first_strip; }
  uint32_t long_tasks() const { return end_long - first_task; }
  uint32_t short_tasks() const { return end_task - end_long; }
  /// What warps take, one at a time.
  uint32_t pieces() const { return strips() + long_tasks() + (short_tasks() + 31) / 32; }
};

/// Levels that one kernel works through: one, by a warp for each piece of it, or several, by one
/// block.
struct LuEmittedLaunch {
  uint32_t first_level = 0, end_level = 0;
  uint32_t blocks = 1, warps = 1; ///< warps of a block
};

struct LuEmitted {
  std::vector<LuEmittedLevel> levels;
  std::vector<LuEmittedLaunch> launches;
  std::vector<uint32_t> strip_offset = {0}; ///< strips + 1 places in strip_column
  std::vector<uint32_t> strip_column;
  std::vector<LuEmittedTask> task;
  /// Slots of v(i,k), v(k,j) and d(k), k ascending in a task.
  std::vector<uint32_t> left, right, pivot;
  /// By slot: its column j, or ~j of the pivot.
  std::vector<int32_t> slot_column;

  uint32_t strips() const { return static_cast<uint32_t>(strip_offset.size() - 1); }
  /// Of device memory.
  uint64_t table_bytes() const {
    return task.size() * sizeof(LuEmittedTask) +
           (3 * left.size() + slot_column.size()) * sizeof(uint32_t);
  }
};

} // namespace sparsertc
