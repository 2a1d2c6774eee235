// Running a compiled SpMM on a GPU.
#pragma once

#include "compiler/lower/kernel_manifest.h"
#include "runtime/driver/launcher.h"
#include "tools/gpu_device.h"
#include "tools/spmm_operands.h"

#include <string>
#include <vector>

namespace sparsertc {

struct GpuRun {
  cuda::LaunchTiming timing;
  /// Of loading, during which the driver assembles PTX.
  double load_us = 0;
  /// Why the dense strategy's own kernel ran and no library.
  std::string library_refusal;
};
/// Runs the kernels of `image` (PTX or a cubin), or of the dense strategy a library's product, once
/// for the result, which comes back in `buffers.c`, and times `samples` launches more. Without
/// kernels nothing runs.
GpuRun run_on_gpu(const cuda::Context& gpu, const std::string& image, const SpmmSchedule& schedule,
                  const std::vector<KernelManifest>& kernels, const SpmmBuffers& buffers,
                  uint32_t columns, unsigned samples);

} // namespace sparsertc
