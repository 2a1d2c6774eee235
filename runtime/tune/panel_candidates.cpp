#include "runtime/tune/panel_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sparsertc::tune {
namespace {

constexpr uint32_t kMostSums = 128, kLeastSums = 32, kMostWarps = 16, kFullWarps = 8;
/// More would leave too little shared memory for rows of B.
constexpr uint32_t kMostColumns = 256;

double predict_panels(const Layer& layer, const Device& device, uint32_t rows, uint32_t vec,
                      uint32_t warps, uint32_t groups) {
  const double density =
      static_cast<double>(layer.nnz) / std::max(1.0, double(layer.m) * double(layer.k));
  const double used = layer.k * (1 - std::pow(1 - density, rows));
  const double block_rows = double(rows) * groups, block_columns = 32.0 * vec * warps;
  const double row_blocks = std::ceil(layer.m / block_rows);
  const double column_blocks = std::ceil(layer.n / block_columns);
  const double waves = std::ceil(row_blocks * column_blocks / device.multiprocessors);
  const double rate = (layer.element_bytes == 2 ? 937e6 : 468e6) / 132 * 0.42 *
                      std::min(1.0, double(warps) * groups / kFullWarps);
  const double multiply = waves * 2 * used * block_rows * block_columns / rate;
  const double b = row_blocks * layer.k * layer.n * layer.element_bytes;
  const double a =
      column_blocks * warps * row_blocks * block_rows * used * (layer.element_bytes / 2.0 + 0.2);
  return 3.0 + std::max(multiply, (a + b) / 7e6);
}

} // namespace

void add_panel_candidates(const Layer& layer, const Device& device, std::vector<Candidate>& space) {
  if (!layer.allows_panels || layer.m == 0 || layer.n == 0)
    return;
  for (const uint32_t rows : {64u, 32u, 16u})
    for (const uint32_t vec : {4u, 2u, 1u})
      for (const uint32_t warps : {1u, 2u, 4u})
        for (const uint32_t groups : {1u, 2u, 4u, 8u}) {
          const bool wasted = (vec > 1 || warps > 1) && 16 * vec * warps >= layer.n;
          if (rows * vec > kMostSums || rows * vec < kLeastSums || warps * groups > kMostWarps ||
              32 * vec * warps > kMostColumns || wasted ||
              (groups > 1 && rows * groups / 2 >= layer.m))
            continue;
          for (const bool short_of_memory : {false, true}) {
            Candidate candidate;
            candidate.words =
                fmt::format("strategy=panels,rows={},vec={},warps={},groups={}{}", rows, vec, warps,
                            groups, short_of_memory ? ",prefetch=2" : "");
            candidate.vec = vec;
            candidate.warps = warps;
            candidate.groups = groups;
            candidate.splitk = 1;
            candidate.panel_rows = rows;
            candidate.predicted_us = predict_panels(layer, device, rows, vec, warps, groups) +
                                     (short_of_memory ? 0.1 : 0);
            space.push_back(std::move(candidate));
          }
        }
}

} // namespace sparsertc::tune
