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
// A record has for each of 32 lanes 4 words, of which the last is 0, and one *strip* of numbers (a
// gather) or two neighbouring ones (a triangle), 4 numbers for each lane:
//
//   word       gather                                triangle
//   0, lower   the row that ends here, or n          the row of the lane, or n
//   0, upper   0                                     lane from which the first column comes
//   1, 2       k of each product, or n (16 bits)     0
//   numbers    -d(i) v(i,k), or 0                    of columns 0 to 3, and 4 to 7
//
// x has n + 1 numbers; the last is 0. A row that ends is with the first of its lanes. The numbers
// are computed anew for each solve, by all multiprocessors, so that the block reads them one after
// the other; strips stand in the order of records.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

struct LuBlockSolve {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kRecordWords = 4; ///< of a lane
  static constexpr uint32_t kProducts = 4;    ///< of a lane and strip
  static constexpr uint32_t kColumns = 8;     ///< of a triangle record
  static constexpr uint32_t kTriangle = 64;
  /// Records and steps behind the last one, which may be read ahead.
  static constexpr uint32_t kReadAhead = 2;
  /// Rows have 16 bits.
  static constexpr uint32_t kMostRows = 0xFFFF;

  uint32_t warps = 0;
  uint32_t steps = 0;
  /// By step, warp: where the warp's records of the step end. Before the first step there is one
  /// more row: where the first records begin. A warp's records stand in a row.
  std::vector<uint32_t> end;
  /// By record: the lanes of a row where rows end in this gather, else 0; kTriangle. And its first
  /// strip.
  std::vector<uint32_t> shape;
  std::vector<uint32_t> records; ///< by record, lane, word
  /// By strip, lane, number: the slots of v(i,k) and of d(i); kNoWord for a 0.
  std::vector<uint32_t> slot, pivot;

  uint64_t numbers() const { return slot.size(); }
};

} // namespace sparsertc
