// The dense strategy's part of the space (compiler/inspect/dense_schedule.h), and its predicted
// time: a library's product, and kernels of our own for where there is none. A library takes
//
//   4 us + 2 M N K operations at about the rate that cuBLAS reaches for the type
//
// and kernels of our own are taken to be half as fast.
#pragma once

#include "runtime/tune/candidate.h"

#include <vector>

namespace sparsertc::tune {

/// Adds the strategy's candidates where the layer allows it.
void add_dense_candidates(const Layer& layer, std::vector<Candidate>& space);

/// Moves the library's product, the one to beat, to the front of a space. Returns how many there
/// are: 1, or 0 where the layer does not allow it.
size_t dense_library_first(std::vector<Candidate>& space);

} // namespace sparsertc::tune
