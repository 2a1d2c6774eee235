// The kernel of the panels strategy.
#pragma once

#include "compiler/input/matrix.h"
#include "compiler/inspect/spmm_schedule.h"
#include "compiler/lower/kernel_manifest.h"
#include "ir/module.h"

#include <vector>

namespace sparsertc {

/// Adds the stream, the rows of panels, shared memory and the kernel `entry`; fills in the
/// manifest's parameters and alignment. `weights` are rounded to the type.
void write_panels_kernel(ir::Module& module, const SpmmSchedule& schedule, const Pattern& pattern,
                         const std::vector<double>& weights, KernelManifest& manifest);

} // namespace sparsertc
