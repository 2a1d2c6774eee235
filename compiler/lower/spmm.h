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

enum class WeightRounding : uint8_t {
  to_type, ///< once to the problem's type, to nearest even
  none,    ///< they are what shall stand in the code (markers)
};

LoweredSpmm lower_spmm(const Matrix& weights, const SpmmSchedule& schedule,
                       WeightRounding rounding = WeightRounding::to_type);

} // namespace sparsertc
