// The compressed strategy's part of the space (compiler/inspect/compressed_stream.h), and its
// predicted time in microseconds, fitted to five layers of 4096 x 4096 in f16 on an H200 (N = 1, 8,
// 16; 90 to 98 % zeros; within 6 %):
//
//   2.0 + staged + P (stream + gathers)
//
//   staged    the rows of B for each multiprocessor, at 4.4 TB/s: most of the time from N = 8 on
//   stream    1.11 nnz (element + 1) bytes at 2.25 TB/s
//   gathers   nnz columns elements from shared memory at 65 TB/s
//
// with P the number of blocks that the columns are spread over where B does not fit.
#pragma once

#include "runtime/tune/candidate.h"

namespace sparsertc::tune {

/// None where the strategy is not for the layer.
void add_compressed_candidates(const Layer& layer, const Device& device,
                               std::vector<Candidate>& space);

} // namespace sparsertc::tune
