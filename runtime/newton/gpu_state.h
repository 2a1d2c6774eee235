// What the kernels of runtime/kernels/newton.cu keep on the GPU: the same structs are there.
#pragma once

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
static_assert(sizeof(GpuState) == 48);

/// How many instances want what: all that the host reads while the iteration goes on.
struct GpuFlags {
  uint32_t running = 0;
  uint32_t trying = 0;
  uint32_t stale = 0;
  uint32_t unused = 0;
};

struct GpuControl {
  GpuFlags flags;
  double tolerance = 0;
  double divergence_ratio = 0;
  uint32_t maximum_iterations = 0;
  uint32_t maximum_halvings = 0;
  uint32_t damping = 0;
  uint32_t recorded = 0;
};
static_assert(sizeof(GpuControl) == 48);

} // namespace sparsertc::newton
