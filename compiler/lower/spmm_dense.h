// The kernel of the dense strategy.
#pragma once

#include "compiler/input/matrix.h"
#include "compiler/inspect/spmm_schedule.h"
#include "compiler/lower/kernel_manifest.h"
#include "ir/module.h"

#include <vector>

namespace sparsertc {

/// Adds the array of A (dense_array), shared memory and the kernel `entry`; fills in the manifest's
/// parameters and alignment. `weights` are rounded to the type.
void write_dense_kernel(ir::Module& module, const SpmmSchedule& schedule, const Pattern& pattern,
                        const std::vector<double>& weights, KernelManifest& manifest);

} // namespace sparsertc
