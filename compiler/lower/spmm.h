// Writes the IR of an SpMM schedule. Decides nothing.
#pragma once

#include "compiler/inspect/spmm_schedule.h"
#include "compiler/lower/kernel_manifest.h"
#include "ir/module.h"

namespace sparsertc {

struct LoweredSpmm {
  ir::Module module;
  /// Entries in launch order (one for SpMM; none when M or N is 0).
  std::vector<KernelManifest> kernels;
};

/// `weights` are rounded once to the problem's type (nearest even).
LoweredSpmm lower_spmm(const Matrix& weights, const SpmmSchedule& schedule);

} // namespace sparsertc
