// What the kernels of runtime/kernels/newton.cu keep on the GPU: the same structs are there.
#pragma once

#include "ir/newton_layout.h"

#include <cstdint>

namespace sparsertc::newton {

/// Of one instance.
struct GpuState {
  double norm = 0;
  double first = 0;
  double length = 0;
  uint32_t outcome = 0; ///< an Outcome
  uint32_t iterations = 0;
  uint32_t halvings = 0;
  uint32_t action = 0;
  uint32_t fresh = 0;
  uint32_t unused = 0;
};

/// Of all instances.
struct GpuControl {
  uint32_t running = 0;  ///< instances that have not ended
  uint32_t trying = 0;   ///< those among them that have not accepted a step yet
  uint32_t stale = 0;    ///< those that need a new Jacobian
  uint32_t singular = 0; ///< instances that have ended so
  double tolerance = 0;
  double divergence_ratio = 0;
  uint32_t maximum_iterations = 0;
  uint32_t maximum_halvings = 0;
  uint32_t damping = 0;
  uint32_t recorded = 0;
  uint32_t refactor_every = 1;
  uint32_t age = 0;    ///< steps since the Jacobian was new, the next one included
  uint32_t begins = 0; ///< whether the next trial begins a step
  uint32_t fresh = 0;  ///< whether that step's Jacobian is new
  uint32_t factorizations = 0;
  uint32_t trials = 0;
};
static_assert(sizeof(GpuControl) == NewtonLayout::kControlWords * sizeof(uint64_t));
static_assert(sizeof(GpuState) == NewtonLayout::kStateWords * sizeof(uint64_t));

} // namespace sparsertc::newton
