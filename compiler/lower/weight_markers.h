// Weights that can be recognised in assembled code: what finds the places of a compiled layer's
// weights (compiler/assemble/find_values.h).
#pragma once

#include "compiler/inspect/spmm_schedule.h"
#include "ir/type.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace sparsertc {

/// How a weight stands in the code of this schedule: f16 and bf16 as they are where products are
/// gathered in them or where the values lie in memory, else widened to f32.
ir::Scalar stored_weight(const SpmmSchedule& schedule);

/// Two lists of markers, each with a weight for every entry in the pattern's order.
///
/// Markers are normal numbers, neither short nor powers of two, so that an assembler can do nothing
/// better with them than to multiply. An entry has different markers in the two lists, and no two
/// entries (of f64, no two words) have the same pair. Of 32 and 64 bits the markers of one list
/// differ from each other already; there are not that many numbers of 16 bits, and those of one
/// list differ within each column of a tile, so that no two multiplications are the same.
struct WeightMarkers {
  std::vector<double> first, second;
};
/// Nothing where the pattern has more entries than there are markers.
std::optional<WeightMarkers> weight_markers(const Pattern& pattern, const SpmmSchedule& schedule);

} // namespace sparsertc
