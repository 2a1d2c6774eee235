// `bench --device=gpu`: our best candidate beside cuBLAS and cuSPARSE, in one run, taking turns;
// of a convolution alone.
#pragma once

#include "runtime/tune/graph_replay.h"
#include "runtime/tune/search.h"
#include "tools/bench_cases.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

struct GpuBenchOptions {
  std::vector<BenchCase> cases;
  bool convolutions = false; ///< what all cases are
  DataType type = DataType::f32;
  bool cold = false; ///< times with nothing in the caches
  /// `--tile` words, perhaps with registers=; empty and not `automatic`: the compiler's choice.
  std::vector<std::string> tiles;
  /// Search the tuner's space, too.
  bool automatic = true;
  double budget_seconds = 5; ///< of searching, a matrix
  /// Of the whole run, 0: no limit. What is left is shared out among the cases that are left, and
  /// budgets become shorter, never longer.
  double total_seconds = 0;
  unsigned rounds = 15;
  unsigned jobs = 0;
  uint64_t seed = 1;
  bool json = false;
  std::string csv, plot;
  std::string trials; ///< where every candidate that was tried is written, as CSV
  /// --regimes: beside cuBLAS and cuSPARSE; and a CSV of its own with cases that are not measured
  /// again.
  bool libraries = false;
  std::string resume;
};

/// Returns 1 where a case failed or a result was wrong. NoGpuError without a GPU.
int bench_gpu(const GpuBenchOptions& options);

// ---- reports (bench_gpu_report.cpp) ----

struct PeerTiming {
  std::string name;
  tune::Timing timing;
};

struct GpuBenchRow {
  std::string name;
  double nominal_percent = -1;
  double actual_percent = 0;
  std::string conv; ///< words of --conv, of a convolution
  /// Of a convolution OC, IC * R * S, and the output pixels of all images (GFLOP/s then count what
  /// lies in the padding, too).
  uint32_t m = 0, k = 0, n = 0;
  uint64_t nnz = 0;
  std::string tile;
  uint32_t registers = 0;
  uint64_t code_bytes = 0, spill_bytes = 0;
  double compile_us = 0;
  uint64_t tried = 0, refused = 0, wrong = 0, space = 0;
  tune::Timing ours;
  std::vector<PeerTiming> peers; ///< without those that refused or were wrong
  std::string failure;           ///< the case came to nothing: why

  const tune::Timing* peer(std::string_view peer_name) const;
  /// The fastest of cuSPARSE's algorithms.
  const PeerTiming* best_cusparse() const;
};

/// What the report says about the run as a whole.
struct GpuBenchSetting {
  std::string gpu;
  uint32_t driver = 0;
  std::string assembler;
  std::vector<std::string> libraries, missing;
  unsigned rounds = 0;
  bool convolutions = false;
  std::string type;
  bool cold = false;
};

/// Of convolutions without the libraries' columns, here and in the CSV and the JSON.
std::string gpu_table_head(const GpuBenchSetting& setting);
std::string gpu_table_line(const GpuBenchRow& row, const GpuBenchSetting& setting);
/// Geometric means of the ratios, a line for each nominal sparsity and one for all; empty matrices
/// and failed cases are left out.
std::string gpu_means(const std::vector<GpuBenchRow>& rows);
std::string gpu_csv(const std::vector<GpuBenchRow>& rows, const GpuBenchSetting& setting);
/// The head of the table of candidates, and its lines for one matrix: predicted and measured times
/// (one quick measurement each), or why there is none.
std::string gpu_trials_head();
std::string gpu_trials_csv(const GpuBenchRow& row, const tune::SearchResult& found);
std::string gpu_json(const std::vector<GpuBenchRow>& rows, const GpuBenchSetting& setting);
/// Speed-up over cuBLAS fp32 and the best of cuSPARSE (logarithmic) over the actual sparsity, a
/// mark for each matrix, as SVG.
std::string gpu_plot(const std::vector<GpuBenchRow>& rows, const GpuBenchSetting& setting);

} // namespace sparsertc
