// What the command does on a GPU: which one is there, and running a compiled SpMM on it.
#pragma once

#include "compiler/emit/target.h"
#include "compiler/lower/kernel_manifest.h"
#include "runtime/driver/launcher.h"
#include "tools/spmm_operands.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// The first GPU of this machine, or nothing where there is none.
std::unique_ptr<cuda::Context> find_gpu();
/// The same; throws NoGpuError that says why there is none.
std::unique_ptr<cuda::Context> require_gpu();

/// The newest known target whose code this GPU runs. NoGpuError where all are newer than it.
std::string target_of(const cuda::Context& gpu);

/// Whether this GPU and its driver load machine code for `target` that `assembler`
/// ("ptxas 13.0.88") has made: the GPU has the target's major architecture, and the driver is not
/// of an older major version.
bool takes_cubins(const cuda::Context& gpu, const Target& target, const std::string& assembler);

struct GpuRun {
  cuda::LaunchTiming timing;
  /// Of loading, during which the driver assembles PTX.
  double load_us = 0;
};
/// Runs the kernels of `image` (PTX or a cubin) once for the result, which comes back in
/// `buffers.c`, and times `samples` launches more. Without kernels nothing runs.
GpuRun run_on_gpu(const cuda::Context& gpu, const std::string& image,
                  const std::vector<KernelManifest>& kernels, const SpmmBuffers& buffers,
                  uint32_t columns, unsigned samples);

} // namespace sparsertc
