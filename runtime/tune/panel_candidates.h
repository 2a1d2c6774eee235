// The panels strategy's part of the space (compiler/inspect/panel_schedule.h), and its predicted
// time in microseconds, within 35 % for three layers of random entries on an H200 (90 % zeros, f16
// and tf32; compiler/inspect/README.md):
//
//   3.0 + max(multiply, L2)
//
//   multiply  waves of blocks, each the dense product's operations over the columns that its panels
//             use, at 0.42 of what sparse fragments reach, fewer with fewer than 8 warps
//   L2        B for each block's rows and A for each block's columns, at 7 TB/s
#pragma once

#include "runtime/tune/candidate.h"

namespace sparsertc::tune {

/// None where the strategy is not for the layer.
void add_panel_candidates(const Layer& layer, const Device& device, std::vector<Candidate>& space);

} // namespace sparsertc::tune
