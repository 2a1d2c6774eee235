// Sparse LU of many matrices of one pattern at once, by tables: what the kernels of
// compiler/lower/lu_batch_loop.h read in loops, a lane for each matrix (an *instance*), all lanes
// the same place at the same time. For patterns that are too large for the straight-line code of
// compiler/lower/lu_batch.h; the same sums in the same order, and so the same bits.
//
// The *numbers* of an instance stand in memory one behind the other: the slots of L'+U
// (ir/lu_tables.h), then n unknowns (during a factorization the largest of each column of B), then
// the multipliers -(u(k,j) d(k)) of the column at hand, and at the end a place to write what nobody
// reads, +0 and -0.
//
// A *packet* is a number of words: the places of up to kProducts left operands and as many right
// ones, and four words of what begins and ends there. Where there are fewer products, their
// operands are zeros whose product is -0, which changes no sum.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

struct LuBatchLoop {
  static constexpr uint32_t kProducts = 8;
  static constexpr uint32_t kWords = 2 * kProducts + 4;
  /// Entries of B, right-hand sides and solutions that are on their way together; their tables are
  /// padded to groups of so many.
  static constexpr uint32_t kGroup = 4;
  /// Of a packet, after its operands.
  enum Word : uint32_t {
    start = 2 * kProducts, ///< place that the sum starts from; kNoWord: it goes on
    result,                ///< place of the sum where it ends here, else kNoWord
    pivot,                 ///< of u(k,j) and of unknowns: the slot of d; else kNoWord
    side, ///< of u(k,j): the place of its multiplier; of a pivot: of the largest of
          ///< its column; else kNoWord
  };

  uint64_t numbers = 0; ///< of an instance
  /// By entry of B, by columns: its number among A's entries, its slot, and the place for the
  /// largest of the column that ends with it (else kNoWord); and its scale.
  std::vector<uint32_t> entry_source, entry_slot, entry_end;
  std::vector<double> entry_scale;
  std::vector<uint32_t> factor;            ///< packets
  std::vector<uint32_t> forward, backward; ///< packets of a solve
  /// By row of B: row of A, column of A, and their scales.
  std::vector<uint32_t> row, column;
  std::vector<double> row_scale, column_scale;

  /// The last three numbers.
  uint64_t nowhere() const { return numbers - 3; }
  uint64_t plus_zero() const { return numbers - 2; }
  uint64_t minus_zero() const { return numbers - 1; }
};

} // namespace sparsertc
