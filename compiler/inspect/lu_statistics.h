// Figures about the factors of a matrix, for `inspect` and reports.
#pragma once

#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_symbolic.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// Levels of at most this many columns are narrow: starting them costs more than their work.
inline constexpr uint64_t kNarrowLevel = 16;

struct LuStatistics {
  /// Entries below and above the diagonal.
  uint64_t lower = 0;
  uint64_t upper = 0;
  uint64_t size = 0;
  /// Of the gathers: one for each product in v(i,j) = b(i,j) - sum v(i,k) v(k,j) d(k).
  uint64_t multiply_adds = 0;
  /// Levels by either rule (LevelRule).
  uint64_t gather_levels = 0;
  uint64_t right_looking_levels = 0;
  /// Of the gather's levels, in columns.
  uint64_t widest_level = 0;
  uint64_t narrow_levels = 0;
  /// level_width_histogram[b] counts levels of 2^b to 2^(b+1) - 1 columns; the last is not zero.
  std::vector<uint64_t> level_width_histogram;

  /// Of L + U, the diagonal once.
  uint64_t entries() const { return lower + upper + size; }
  /// Values in float64.
  uint64_t bytes_values() const { return entries() * sizeof(double); }
  /// Positions of the entries by columns and by rows.
  uint64_t bytes_pattern() const;
  /// Precomputed positions for the gather strategy (gather_bytes).
  uint64_t bytes_gather() const;
};

LuStatistics lu_statistics(const LuPattern& rows, const LuColumns& columns, const LuLevels& gather,
                           const LuLevels& right_looking);

} // namespace sparsertc
