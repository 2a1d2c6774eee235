// What tuning must know of the machine it runs on.
#pragma once

#include "runtime/driver/cuda_objects.h"
#include "runtime/tune/candidate.h"

namespace sparsertc::tune {

/// What the search's space must know of this GPU.
Device device_of(const cuda::Context& gpu);

/// `jobs`, or for 0 all processors of this machine.
unsigned processors_of(unsigned jobs);

/// Threads that make candidates, and processors for each, so that `jobs` of them are busy (0: all).
struct MakingThreads {
  unsigned threads = 1, processors = 1;
};
MakingThreads making_threads(unsigned jobs);

} // namespace sparsertc::tune
