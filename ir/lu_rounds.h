// The factorization and the solve of a small system (ir/lu_tables.h) in rounds, for a block of
// threads that holds all numbers of some instances in shared memory: plain arrays, filled by the
// compiler's inspector, used by the runtime.
//
// A *worker* is so many threads as there are instances in the block, each with its own numbers. In
// a round each worker goes through a list of *segments*; what a round reads, earlier rounds have
// made, and between rounds there is a barrier. A segment takes some of the terms of one number's
// sum, those in order that are ready:
//
//   sum = fma(left, -(right * pivot), sum)
//
// and what the last segment of a number does then is its `LuRoundsFinish`. Of the numbers of an
// instance there are, one behind the other:
//
//   nnz    the slots of L'+U
//   n      y(i), the right-hand side of the forward substitution before it is multiplied by d(i);
//          then x(i)
//   n      the largest entry of a column of B until its pivot is known; then the sum of x(i)
//   1      -1, the "pivot" where there is nothing to multiply with
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

/// What follows the terms of a segment. `other` is a number, too.
enum class LuRoundsFinish : uint16_t {
  store,         ///< the sum: it goes on in a later round, or is y(i)
  entry,         ///< the sum, which is final
  pivot,         ///< its reciprocal; `other`, the column's largest, becomes -0
  unknown,       ///< x(i) = fma(-sum, d(i), d(i) y(i)), n numbers before the sum's; `other` is d(i)
  unknown_alone, ///< x(i) = d(i) y(i): there are no terms
  nothing,       ///< no segment: a worker has none in the round
};

/// A worker's list is a sequence of words of 64 bits, of four numbers of 16 bits from the lowest:
///
///   a segment   number of the sum, number of terms, LuRoundsFinish, other
///   a term      left, right, pivot
///
/// The words of a segment's terms follow it. With kLuRoundsMore beside the LuRoundsFinish another
/// segment of the round follows; in every round there is at least one. Behind the last list there
/// are kLuRoundsAhead words more, so that lists can be read ahead.
struct LuRounds {
  uint32_t workers = 0;
  uint32_t factor_rounds = 0;  ///< the factorization and the forward substitution
  uint32_t solve_rounds = 0;   ///< the backward substitution
  uint32_t numbers = 0;        ///< of an instance
  std::vector<uint32_t> begin; ///< by worker, of its first word
  std::vector<uint64_t> words;
  /// The columns whose entries of B a worker brings in, and which of them: it has those at
  /// [input_begin[w], input_begin[w+1]). A word has from the lowest bit the entry's number in A
  /// (32), its slot (16), and behind the last entry of column j the number of the column's largest
  /// (16), else 0.
  std::vector<uint32_t> input_begin = {0};
  std::vector<uint64_t> input;
  /// Numbers that begin as 0: slots of L'+U without an entry of B, the largest of empty columns.
  std::vector<uint32_t> zero;
  /// Terms from the beginning to the end where each round is as long as its longest list, a segment
  /// counted as `kLuSegmentTerms` more: a prediction.
  uint64_t longest = 0;

  uint32_t rounds() const { return factor_rounds + solve_rounds; }
};

inline constexpr uint32_t kLuRoundsMore = 0x100;
inline constexpr uint32_t kLuRoundsAhead = 5;
inline constexpr uint32_t kLuSegmentTerms = 3;
inline constexpr uint32_t kLuRoundsMostNumbers = 65536;

} // namespace sparsertc
