// The substitutions of a solve as the work of one block of threads that keeps the unknowns in
// shared memory: plain arrays, filled by the compiler's inspector, read by the kernel of
// compiler/lower/lu_block_solve.cpp.
//
// There is one vector x, which begins as d(i) b(i). Forward and backward substitution change it in
// the same way,
//
//   x(i) = x(i) - d(i) * sum over k of v(i,k) x(k),
//
// so the whole is a list of *steps* with a barrier of the block after each. A step is of one kind:
//
//   gather     each row's products with what is done, 4 for a lane and record, several lanes for a
//              long row; as in ir/lu_dataflow.h
//   triangle   rows that depend on one another, at most 32 together, a lane each: one row after the
//              other is broadcast to the lanes, which subtract its product; 8 columns for a record
//
//   levels                     steps
//   a  b  c                    gather   a b c d e f: products with rows of earlier steps
//   d(a)  e(b,c)        ->     triangle {a d} {b c e f}, side by side in a warp
//   f(e)
//
// A record has a word that tells its shape, and 12 words for each lane: three rows of 4 words for
// 32 lanes, one behind the other.
//
//   word   gather                                 triangle
//   shape  lanes of a row if rows end here, or 0  kTriangle
//   0      the row that ends here, or n           the row of the lane, or n
//   1      slot of its pivot, or kNoWord          the same
//   2      0                                      lane from which the first column comes
//   3      0                                      0
//   4-7    slots of v(i,k), or kNoWord            slots of v(i,k) of columns 0 to 3
//   8-11   k, or n                                of columns 4 to 7
//
// x has n + 1 numbers; the last is 0. A row that ends is with the first of its lanes.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

struct LuBlockSolve {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kRecordWords = 12; ///< of a lane
  static constexpr uint32_t kProducts = 4;     ///< of a lane and gather record
  static constexpr uint32_t kColumns = 8;      ///< of a triangle record
  static constexpr uint32_t kTriangle = 64;
  /// Records that are read ahead, behind the last one.
  static constexpr uint32_t kReadAhead = 2;

  uint32_t warps = 0;
  uint32_t steps = 0;
  /// By step, warp: where the warp's records of the step end. Before the first step there is one
  /// more row: where the first records begin; after the last one there is one that may be read
  /// ahead. A warp's records stand in a row.
  std::vector<uint32_t> end;
  std::vector<uint32_t> shape; ///< by record
  std::vector<uint32_t> records;
};

} // namespace sparsertc
