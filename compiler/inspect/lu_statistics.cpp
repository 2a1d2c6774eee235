#include "compiler/inspect/lu_statistics.h"

#include "compiler/inspect/lu_schedule.h"

#include <algorithm>
#include <bit>

namespace sparsertc {

uint64_t LuStatistics::bytes_pattern() const {
  // An index either way and the slot of each entry of a row; two offsets and two diagonals a row.
  return entries() * (2 * sizeof(uint32_t) + sizeof(uint64_t)) + 4 * size * sizeof(uint64_t);
}

uint64_t LuStatistics::bytes_gather() const {
  return gather_bytes(entries(), multiply_adds);
}

LuStatistics lu_statistics(const LuPattern& rows, const LuColumns& columns, const LuLevels& gather,
                           const LuLevels& right_looking) {
  LuStatistics statistics;
  statistics.size = rows.rows.rows;
  for (uint32_t k = 0; k < rows.rows.rows; ++k) {
    const uint64_t below = columns.columns.row_offset[k + 1] - columns.diagonal[k] - 1;
    const uint64_t behind = rows.rows.row_offset[k + 1] - rows.diagonal[k] - 1;
    statistics.lower += below;
    statistics.upper += behind;
    statistics.multiply_adds += below * behind;
  }
  statistics.gather_levels = gather.count();
  statistics.right_looking_levels = right_looking.count();
  for (uint64_t level = 0; level < gather.count(); ++level) {
    const uint64_t width = gather.offset[level + 1] - gather.offset[level];
    statistics.widest_level = std::max(statistics.widest_level, width);
    statistics.narrow_levels += width <= kNarrowLevel;
    const size_t bucket = static_cast<size_t>(std::bit_width(width)) - 1;
    if (statistics.level_width_histogram.size() <= bucket)
      statistics.level_width_histogram.resize(bucket + 1, 0);
    ++statistics.level_width_histogram[bucket];
  }
  return statistics;
}

} // namespace sparsertc
