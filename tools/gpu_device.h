// Which GPU this machine has, and what it runs.
#pragma once

#include "compiler/emit/target.h"
#include "runtime/driver/cuda_objects.h"

#include <memory>
#include <string>

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

} // namespace sparsertc
