#include "runtime/tune/bitmap_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sparsertc::tune {
namespace {

constexpr uint32_t kMostColumns = 64;

double predict_bitmap(const Layer& layer, const Device& device, uint32_t cluster) {
  const double weights = std::max(1.0, double(layer.m) * layer.k);
  const double density = static_cast<double>(layer.nnz) / weights;
  const double planes = std::ceil(layer.n / 8.0);
  const double pairs = weights / 2 * (1 - (1 - density) * (1 - density));
  const double memory = (4 * pairs + weights / 16) / 4e6;
  constexpr double kClocks = 1755; // in a microsecond
  const double tiles = weights / 256 / device.multiprocessors * (14 + 3 * planes) / kClocks;
  const double b = double(device.multiprocessors) * layer.k * planes * 16 / cluster / 6e6;
  return 2.5 + std::pow(std::pow(memory, 4) + std::pow(tiles, 4), 0.25) + b + (cluster > 1 ? 1 : 0);
}

} // namespace

void add_bitmap_candidates(const Layer& layer, const Device& device,
                           std::vector<Candidate>& space) {
  if (!layer.allows_panels || layer.element_bytes != 2 || layer.m == 0 || layer.n == 0 ||
      layer.n > kMostColumns)
    return;
  for (const uint32_t cluster : {1u, 2u, 4u}) {
    if (cluster > 1 && !device.has_clusters)
      continue;
    // Where no shape of so few blocks fits, the compiler says so.
    constexpr double kRowsOfB = 0.75;
    if (layer.k * std::min(layer.n, 8u) * 2.0 / cluster > kRowsOfB * device.shared_bytes_per_block)
      continue;
    Candidate candidate;
    candidate.words = fmt::format("strategy=bitmap,cluster={}", cluster);
    candidate.vec = 1;
    candidate.cluster = cluster;
    candidate.splitk = 1;
    candidate.is_bitmap = true;
    candidate.predicted_us = predict_bitmap(layer, device, cluster);
    space.push_back(std::move(candidate));
  }
}

} // namespace sparsertc::tune
