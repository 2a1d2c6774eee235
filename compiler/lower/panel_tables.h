// What a panels kernel has in memory: the stream of its steps and the rows of its panels
// (compiler/inspect/panel_schedule.h has the layout).
#pragma once

#include "compiler/inspect/panel_schedule.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// [panel][step], and panel_steps_ahead steps of nothing. Throws UsageError for weights of f32 that
/// three numbers of bf16 cannot add up to.
std::vector<uint8_t> panel_stream_bytes(const SpmmSchedule& schedule, const Pattern& pattern,
                                        const std::vector<double>& weights);
/// [panel][row of it], i32; the number of rows of A stands for no row.
std::vector<uint8_t> panel_row_bytes(const SpmmSchedule& schedule);

} // namespace sparsertc
