// What a compressed kernel has in memory: the stream of its steps and where each warp's begin
// (compiler/inspect/compressed_stream.h has the format).
#pragma once

#include "compiler/inspect/spmm_schedule.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// Rank after rank, warp after warp; with a stride also warps that only fill up the grid. `weights`
/// are those of the pattern, rounded to the type.
std::vector<uint8_t> compressed_stream_bytes(const SpmmSchedule& schedule, const Pattern& pattern,
                                             const std::vector<double>& weights);

/// Of each rank's warp the steps, the steps of all before it, its number in the stream, and a word
/// of nothing; `slots` warps a rank, of which the last ones may not be there.
std::vector<uint8_t> compressed_step_table(const CompressedStream& stream, uint32_t slots);

} // namespace sparsertc
