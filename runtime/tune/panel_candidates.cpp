#include "runtime/tune/panel_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sparsertc::tune {
namespace {

constexpr uint32_t kMostSums = 128, kLeastSums = 32, kMostWarps = 16, kFullWarps = 8;
/// Above so many sums a thread, so many warps have all of a multiprocessor's registers.
constexpr uint32_t kFewSums = 64, kMostWideWarps = 8;
/// More would leave too little shared memory for rows of B.
constexpr uint32_t kMostColumns = 256;
/// Columns of A from which on a part of K is worth having.
constexpr uint32_t kLeastPart = 64;

struct PanelTile {
  uint32_t rows = 0, vec = 0, warps = 0, groups = 0, splitk = 0;
  /// Of a block.
  uint32_t all_warps() const { return warps * groups * splitk; }
};

bool is_worth_trying(const Layer& layer, const PanelTile& tile) {
  const uint32_t sums = tile.rows * tile.vec;
  const bool wasted = ((tile.vec > 1 || tile.warps > 1) && 16 * tile.vec * tile.warps >= layer.n) ||
                      (tile.groups > 1 && tile.rows * tile.groups / 2 >= layer.m) ||
                      (tile.splitk > 1 && layer.k < kLeastPart * tile.splitk);
  return !wasted && sums >= kLeastSums && sums <= kMostSums &&
         tile.all_warps() <= (sums > kFewSums ? kMostWideWarps : kMostWarps) &&
         32 * tile.vec * tile.warps <= kMostColumns;
}

double predict_panels(const Layer& layer, const Device& device, const PanelTile& tile) {
  const double density =
      static_cast<double>(layer.nnz) / std::max(1.0, double(layer.m) * double(layer.k));
  const double used = layer.k * (1 - std::pow(1 - density, tile.rows));
  const double block_rows = double(tile.rows) * tile.groups,
               block_columns = 32.0 * tile.vec * tile.warps;
  const double row_blocks = std::ceil(layer.m / block_rows);
  const double column_blocks = std::ceil(layer.n / block_columns);
  const double waves = std::ceil(row_blocks * column_blocks / device.multiprocessors);
  const double rate = (layer.element_bytes == 2 ? 937e6 : 468e6) / 132 * 0.42 *
                      std::min(1.0, double(tile.all_warps()) / kFullWarps);
  const double multiply = waves * 2 * used * block_rows * block_columns / rate;
  const double b = row_blocks * layer.k * layer.n * layer.element_bytes;
  const double a = column_blocks * tile.warps * row_blocks * block_rows * used *
                   (layer.element_bytes / 2.0 + 0.2);
  return 3.0 + std::max(multiply, (a + b) / 7e6);
}

} // namespace

void add_panel_candidates(const Layer& layer, const Device& device, std::vector<Candidate>& space) {
  if (!layer.allows_panels || layer.m == 0 || layer.n == 0)
    return;
  std::vector<PanelTile> tiles;
  for (const uint32_t rows : {64u, 32u, 16u})
    for (const uint32_t vec : {4u, 2u, 1u})
      for (const uint32_t warps : {1u, 2u, 4u})
        for (const uint32_t groups : {1u, 2u, 4u, 8u, 16u})
          for (const uint32_t splitk : {1u, 2u, 4u})
            if (const PanelTile tile{rows, vec, warps, groups, splitk};
                is_worth_trying(layer, tile))
              tiles.push_back(tile);
  for (const PanelTile& tile : tiles)
    for (const bool short_of_memory : {false, true}) {
      Candidate candidate;
      candidate.words = fmt::format("strategy=panels,rows={},vec={},warps={},groups={},splitk={}{}",
                                    tile.rows, tile.vec, tile.warps, tile.groups, tile.splitk,
                                    short_of_memory ? ",prefetch=2" : "");
      candidate.vec = tile.vec;
      candidate.warps = tile.warps;
      candidate.groups = tile.groups;
      candidate.splitk = tile.splitk;
      candidate.panel_rows = tile.rows;
      candidate.predicted_us = predict_panels(layer, device, tile) + (short_of_memory ? 0.1 : 0);
      space.push_back(std::move(candidate));
    }
}

} // namespace sparsertc::tune
