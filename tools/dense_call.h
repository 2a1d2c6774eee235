// Code of the dense strategy that a library multiplies for, as plans have it (runtime/plan/plan.h),
// without a bundle.
#pragma once

#include "compiler/inspect/spmm_schedule.h"
#include "runtime/driver/cublaslt.h"
#include "runtime/driver/cuda_objects.h"

#include <memory>
#include <span>

namespace sparsertc {

class DenseCall {
public:
  /// Loads the code for its array of weights. Null where the schedule is none that a library
  /// multiplies for, where no library is found, and where it refuses; `refused` then says why.
  static std::unique_ptr<DenseCall> make(const cuda::Context& gpu, std::span<const uint8_t> image,
                                         const SpmmSchedule& schedule, std::string& refused);

  void enqueue(cuda::DeviceAddress b, cuda::DeviceAddress c, cuda::DeviceAddress residual,
               const cuda::Stream& stream) const;

private:
  DenseCall(const cuda::Context& gpu, std::span<const uint8_t> image, const SpmmSchedule& schedule);

  cuda::Module module_;
  cuda::DenseProduct product_;
  cuda::DeviceBuffer array_, workspace_;
};

} // namespace sparsertc
