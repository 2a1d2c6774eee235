// `bench --regimes`: each strategy with the compiler's own tile, measured beside what the model
// predicts, and which of them wins over zeros and columns.
#pragma once

#include "tools/bench_gpu.h"

#include <string>
#include <vector>

namespace sparsertc {

/// A strategy's times for one case.
struct RegimeTime {
  Strategy strategy = Strategy::unrolled;
  std::string tile;
  double predicted_us = 0, time_us = 0;
};
struct RegimeCase {
  std::string name;
  double zeros_percent = 0; ///< nominal, where there is one
  uint32_t m = 0, k = 0, n = 0;
  uint64_t nnz = 0;
  std::vector<RegimeTime> times; ///< of those that could be measured

  const RegimeTime* fastest() const;           ///< null where nothing was measured
  const RegimeTime* predicted_fastest() const; ///< among these
};

/// Measures and reports; the exit code.
int bench_regimes(const GpuBenchOptions& options);

/// Shapes side by side, in each columns of B over zeros, a cell in the colour of the strategy that
/// was the fastest.
std::string regimes_svg(const std::vector<RegimeCase>& cases, const std::string& title);

} // namespace sparsertc
