// Lowers the bitmap strategy (compiler/inspect/bitmap_schedule.h).
#pragma once

#include "compiler/lower/kernel_manifest.h"
#include "ir/module.h"

#include <vector>

namespace sparsertc {

/// Adds the stream and the kernel; `weights` are those of the pattern, rounded to the problem's
/// type. Fills in the manifest's parameters and alignment.
void write_bitmap_kernel(ir::Module& module, const SpmmSchedule& schedule, const Pattern& pattern,
                         const std::vector<double>& weights, KernelManifest& manifest);

} // namespace sparsertc
