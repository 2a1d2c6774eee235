#include "runtime/tune/compressed_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace sparsertc::tune {
namespace {

constexpr uint32_t kMostColumns = 64;
/// Rows of zeros make the staged rows an eighth longer at most.
constexpr double kStagedOverRows = 1.125;

double predict_compressed(const Layer& layer, const Device& device) {
  const double weights = static_cast<double>(layer.nnz);
  uint32_t columns = std::bit_ceil(std::max(1u, layer.n));
  while (columns > 1 && kStagedOverRows * layer.k * columns * layer.element_bytes >
                            0.9 * device.shared_bytes_per_block)
    columns /= 2;
  const double column_blocks = std::ceil(static_cast<double>(layer.n) / columns);
  const double stream = 1.11 * weights * (layer.element_bytes + 1) / 2.25e6;
  const double staged =
      double(device.multiprocessors) * layer.k * columns * layer.element_bytes / 4.4e6;
  const double gathers = weights * columns * layer.element_bytes / 65e6;
  return 2.0 + staged + column_blocks * (stream + gathers);
}

} // namespace

void add_compressed_candidates(const Layer& layer, const Device& device,
                               std::vector<Candidate>& space) {
  if (layer.n == 0 || layer.n > kMostColumns || layer.element_bytes > 4)
    return;
  for (const uint32_t splitk : {0u, 4u, 8u, 16u, 32u})
    for (const uint32_t prefetch : {8u, 4u}) {
      Candidate candidate;
      candidate.words = fmt::format("strategy=compressed,prefetch={}", prefetch);
      if (splitk != 0) // else the compiler's choice
        candidate.words += fmt::format(",splitk={}", splitk);
      candidate.splitk = std::max(splitk, 8u);
      candidate.vec = 1;
      candidate.is_compressed = true;
      candidate.predicted_us = predict_compressed(layer, device);
      space.push_back(std::move(candidate));
    }
}

} // namespace sparsertc::tune
