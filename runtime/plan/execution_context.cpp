#include "runtime/plan/execution_context.h"

#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc {

ExecutionContext::ExecutionContext(int device, const OpenDriver& open_driver) {
  if (device < kNoDevice)
    throw UsageError(fmt::format("{} is no device number", device),
                     "the first GPU is 0; -1 is no GPU");
  if (device != kNoDevice)
    gpu_.emplace(open_driver(), static_cast<unsigned>(device));
}

const cuda::Context& ExecutionContext::require_gpu(const char* doing) const {
  if (!gpu_)
    throw NoGpuError(fmt::format("{} needs a GPU, and this context was made without one", doing),
                     "make the context with a device number of 0 or more");
  return *gpu_;
}

} // namespace sparsertc
