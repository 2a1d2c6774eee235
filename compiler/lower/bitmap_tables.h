// The bytes of a bitmap stream (compiler/inspect/bitmap_stream.h has the layout).
#pragma once

#include "compiler/inspect/spmm_schedule.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// `weights` are those of the pattern, rounded to the problem's type.
std::vector<uint8_t> bitmap_stream_bytes(const SpmmSchedule& schedule, const Pattern& pattern,
                                         const std::vector<double>& weights);

} // namespace sparsertc
