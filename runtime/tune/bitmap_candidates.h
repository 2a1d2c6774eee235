// The bitmap strategy's part of the space (compiler/inspect/bitmap_stream.h), and its predicted
// time in microseconds:
//
//   2.5 + (memory^4 + tiles^4)^(1/4) + B
//
//   memory   bits and pairs at 4 TB/s
//   tiles    of 16 x 16 weights, 14 clocks and 3 for each 8 columns, on all multiprocessors
//   B        its rows for each multiprocessor, at 6 TB/s; the blocks of a cluster have parts
//
// with 1 for each meeting of a cluster.
#pragma once

#include "runtime/tune/candidate.h"

namespace sparsertc::tune {

/// None where the strategy is not for the layer.
void add_bitmap_candidates(const Layer& layer, const Device& device, std::vector<Candidate>& space);

} // namespace sparsertc::tune
