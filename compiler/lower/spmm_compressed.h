// The kernel of the compressed strategy.
#pragma once

#include "compiler/input/matrix.h"
#include "compiler/inspect/spmm_schedule.h"
#include "compiler/lower/kernel_manifest.h"
#include "ir/module.h"

#include <vector>

namespace sparsertc {

/// Adds the stream, the order of rows, shared memory and the kernel `entry`; fills in the
/// manifest's parameters and alignment. `weights` are rounded to the type.
void write_compressed_kernel(ir::Module& module, const SpmmSchedule& schedule,
                             const Pattern& pattern, const std::vector<double>& weights,
                             KernelManifest& manifest);

} // namespace sparsertc
