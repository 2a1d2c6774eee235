#include "runtime/tune/panel_candidates.h"

#include "ir/panel_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace sparsertc::tune {
namespace {

constexpr uint32_t kMostSums = 128, kLeastSums = 16, kMostWarps = 16;
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
  // Columns of a panel with entries, and room for its longest row, which has two of four slots.
  constexpr double kLongest = 2.2, kSlack = 1.06;
  const double used = std::max(1 - std::pow(1 - density, tile.rows), 2 * kLongest * density);
  PanelLaunch launch;
  launch.rows = layer.m;
  launch.inner = layer.k;
  launch.columns = layer.n;
  launch.element_bytes = layer.element_bytes;
  launch.panel_rows = tile.rows;
  launch.vec = tile.vec;
  launch.warps = tile.warps;
  launch.groups = tile.groups;
  launch.splitk = tile.splitk;
  launch.steps = std::ceil(kSlack * used * layer.k / (layer.element_bytes == 2 ? 32 : 16));
  launch.multiprocessors = device.multiprocessors;
  return panel_us(launch);
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
  // Short of shared memory; rounds of half as many steps, which see narrower windows.
  constexpr std::pair<const char*, uint32_t> kVariants[] = {
      {"", 4}, {",prefetch=2", 4}, {",chunk=2", 2}};
  for (const PanelTile& tile : tiles)
    for (const auto& [words, steps_of_round] : kVariants) {
      if (tile.splitk > steps_of_round)
        continue;
      Candidate candidate;
      candidate.words =
          fmt::format("strategy=panels,rows={},vec={},warps={},groups={},splitk={}{}", tile.rows,
                      tile.vec, tile.warps, tile.groups, tile.splitk, words);
      candidate.vec = tile.vec;
      candidate.warps = tile.warps;
      candidate.groups = tile.groups;
      candidate.splitk = tile.splitk;
      candidate.panel_rows = tile.rows;
      candidate.predicted_us = predict_panels(layer, device, tile) + (*words == 0 ? 0 : 0.1);
      space.push_back(std::move(candidate));
    }
}

} // namespace sparsertc::tune
