// `bench --regimes`: each strategy with the compiler's own tile, measured beside what the model
// predicts and, where that is asked for, beside cuBLAS and cuSPARSE; which of them wins over zeros
// and columns.
#pragma once

#include "tools/bench_gpu.h"

#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// Medians in microseconds; `cold_us` 0: not measured.
struct RegimeTime {
  Strategy strategy = Strategy::unrolled;
  std::string tile;
  double predicted_us = 0, time_us = 0, cold_us = 0;
};
struct RegimePeer {
  std::string name; ///< as GpuPeer's
  double time_us = 0, cold_us = 0;
};
struct RegimeCase {
  std::string name;
  double zeros_percent = 0; ///< nominal, where there is one
  uint32_t m = 0, k = 0, n = 0;
  uint64_t nnz = 0;
  std::vector<RegimeTime> times; ///< of those that could be measured
  std::vector<RegimePeer> peers;

  const RegimeTime* fastest() const;           ///< null where nothing was measured
  const RegimeTime* predicted_fastest() const; ///< among these
};

/// Measures and reports; the exit code. Where everything has been measured before, no GPU is asked
/// for.
int bench_regimes(const GpuBenchOptions& options);

// ---- reports (bench_regimes_report.cpp) ----

/// A line for each strategy and each library of each case, with a head.
std::string regimes_csv(const std::vector<RegimeCase>& cases);
/// Reads that back; `name` is for messages. Throws UserError with its place.
std::vector<RegimeCase> parse_regimes_csv(const std::string& text, const std::string& name);

std::string regime_line(const RegimeCase& one);
/// How often the strategy predicted to be the fastest takes at most 1.15 times as long as the
/// fastest.
std::string prediction_summary(const std::vector<RegimeCase>& cases);
/// Speed-ups over the library `peer` ("cublas_fp32", ...) and the best of cuSPARSE: geometric
/// means for each level of zeros, warm and where measured cold. Empty where no case has the peer.
std::string regime_means(const std::vector<RegimeCase>& cases, const std::string& peer);

/// Shapes side by side, in each columns of B over zeros, a cell in the colour of the strategy that
/// was the fastest.
std::string regimes_svg(const std::vector<RegimeCase>& cases, const std::string& title);

} // namespace sparsertc
