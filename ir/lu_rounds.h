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
//   n      d(j); before it is known, the sum of its pivot
//   1      -1, the "pivot" where there is nothing to multiply with
//   nnz    the entries of L', at least n: in the backward substitution the first n are the sums of
//          x(i), as those of L' are not needed any more
//   nnz    the entries of U
//   n      y(i), the right-hand side of the forward substitution before it is multiplied by d(i);
//          then x(i)
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

/// What follows the terms of a segment.
enum class LuRoundsFinish : uint8_t {
  store,         ///< the sum: it goes on in a later round, or is y(i)
  entry,         ///< the sum, which is final
  pivot,         ///< its reciprocal
  unknown,       ///< x(i) = fma(-sum, d(i), d(i) y(i))
  unknown_alone, ///< x(i) = d(i) y(i): there are no terms
  nothing,       ///< no segment: a worker has none in the round
};

/// A worker's list is a sequence of words of 32 bits:
///
///   a segment   number of the sum (11 bits from the lowest), terms (10), LuRoundsFinish (3),
///   whether
///               another segment of the round follows (1), whether the sum begins at -0 and not
///               with what is at its number (1)
///   a term      left (11), right (11), pivot (10)
///
/// The words of a segment's terms follow it. In every round there is at least one segment. Behind
/// the last list there are kLuRoundsAhead words more, so that lists can be read ahead.
inline constexpr uint32_t kLuRoundsMostNumbers = 2048;
inline constexpr uint32_t kLuRoundsMostPivots = 1024; ///< and terms of a sum
inline constexpr uint32_t kLuRoundsAhead = 5;
/// In predictions a segment counts as so many terms more.
inline constexpr uint32_t kLuSegmentTerms = 10;

struct LuRounds {
  uint32_t workers = 0;
  uint32_t factor_rounds = 0;  ///< the factorization and the forward substitution
  uint32_t solve_rounds = 0;   ///< the backward substitution
  uint32_t numbers = 0;        ///< of an instance
  std::vector<uint32_t> begin; ///< by worker, of its first word
  std::vector<uint32_t> words;
  uint32_t first_lower = 0; ///< the number of the first entry of L'
  uint32_t first_y = 0;     ///< of y(0)
  /// The entries of B that a worker brings in, of whole columns: those at [input_begin[w],
  /// input_begin[w+1]). A word has from the lowest bit the entry's number in A (32), its number
  /// here (16), and j + 1 (16) behind the last entry of column j, else 0.
  std::vector<uint32_t> input_begin = {0};
  std::vector<uint64_t> input;
  std::vector<uint32_t> zero;          ///< numbers without an entry of B, which begin as 0
  std::vector<uint32_t> empty_columns; ///< of B
  /// Terms from the beginning to the end where each round is as long as its longest list, a segment
  /// counted as `kLuSegmentTerms` more: a prediction.
  uint64_t longest = 0;

  uint32_t rounds() const { return factor_rounds + solve_rounds; }
};

} // namespace sparsertc
