#include "compiler/inspect/lu_batch_shares.h"

#include "compiler/inspect/elimination_tree.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sparsertc {
namespace {

/// What a barrier costs, in instructions.
constexpr uint64_t kBarrier = 40;

using Shares = std::vector<std::vector<uint32_t>>;

uint64_t heaviest(const Shares& shares, const std::vector<uint64_t>& weight) {
  uint64_t most = 0;
  for (const std::vector<uint32_t>& share : shares) {
    uint64_t sum = 0;
    for (const uint32_t column : share)
      sum += weight[column];
    most = std::max(most, sum);
  }
  return most;
}

/// Parts, heaviest first, each to the warp that has least.
Shares deal(std::vector<std::vector<uint32_t>> parts, const std::vector<uint64_t>& weight,
            uint32_t warps) {
  const auto weight_of = [&](const std::vector<uint32_t>& part) {
    return std::accumulate(part.begin(), part.end(), uint64_t{0},
                           [&](uint64_t sum, uint32_t v) { return sum + weight[v]; });
  };
  std::stable_sort(parts.begin(), parts.end(),
                   [&](const auto& a, const auto& b) { return weight_of(a) > weight_of(b); });
  Shares shares(warps);
  std::vector<uint64_t> load(warps);
  for (const std::vector<uint32_t>& part : parts) {
    const size_t least =
        static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[least] += weight_of(part);
    shares[least].insert(shares[least].end(), part.begin(), part.end());
  }
  for (std::vector<uint32_t>& share : shares)
    std::sort(share.begin(), share.end());
  return shares;
}

} // namespace

uint64_t LuBatchShares::longest(const std::vector<uint64_t>& weight) const {
  uint64_t sum = 0;
  for (const Shares& shares : stages)
    sum += heaviest(shares, weight);
  return sum;
}

LuBatchShares share_lu_batch(const LuTables& tables, const std::vector<uint64_t>& weight,
                             uint32_t warps) {
  LuBatchShares result;
  result.warps = warps;
  Pattern factors{tables.size, tables.size, tables.row_offset, tables.column_index};
  std::vector<uint32_t> parent = elimination_tree(factors);
  // The vertices that are left, their parents among each other, and their weights.
  std::vector<uint32_t> left(tables.size);
  std::iota(left.begin(), left.end(), 0u);
  std::vector<uint64_t> own = weight;
  while (!left.empty()) {
    const uint64_t all = std::accumulate(own.begin(), own.end(), uint64_t{0});
    uint64_t best = all;
    Shares chosen(warps);
    chosen[0].resize(left.size());
    std::iota(chosen[0].begin(), chosen[0].end(), 0u);
    std::vector<uint32_t> rest;
    if (warps > 1)
      for (uint64_t pieces = 2; pieces <= 64ull * warps; pieces += pieces / 2) {
        TreeParts parts = cut_tree(parent, own, pieces);
        Shares shares = deal(std::move(parts.parts), own, warps);
        uint64_t above = 0;
        for (const uint32_t v : parts.top)
          above += own[v];
        const uint64_t time = heaviest(shares, own) + above + kBarrier;
        if (time < best) {
          best = time;
          chosen = std::move(shares);
          rest = std::move(parts.top);
        }
      }
    for (std::vector<uint32_t>& share : chosen)
      for (uint32_t& v : share)
        v = left[v];
    result.stages.push_back(std::move(chosen));
    // Parents of what is above are above.
    std::vector<uint32_t> number(left.size(), kNoVertex), next_left, next_parent;
    std::vector<uint64_t> next_own;
    for (uint32_t k = 0; k < rest.size(); ++k)
      number[rest[k]] = k;
    for (const uint32_t v : rest) {
      next_left.push_back(left[v]);
      next_parent.push_back(parent[v] == kNoVertex ? kNoVertex : number[parent[v]]);
      next_own.push_back(own[v]);
    }
    left = std::move(next_left);
    parent = std::move(next_parent);
    own = std::move(next_own);
  }
  return result;
}

std::vector<uint64_t> lu_batch_factor_weights(const LuTables& tables) {
  std::vector<uint64_t> weight(tables.size);
  for (uint32_t j = 0; j < tables.size; ++j) {
    uint64_t& sum = weight[j];
    sum = 20 + 6 * (tables.input_offset[j + 1] - tables.input_offset[j]) +
          2 * (tables.column_offset[j + 1] - tables.column_offset[j]);
    for (uint64_t slot = tables.column_offset[j]; slot < tables.diagonal[j]; ++slot) {
      const uint32_t k = tables.row_index[slot];
      sum += 3 + 2 * (tables.column_offset[k + 1] - tables.diagonal[k] - 1);
    }
  }
  return weight;
}

std::vector<uint64_t> lu_batch_solve_weights(const LuTables& tables) {
  std::vector<uint64_t> weight(tables.size);
  for (uint32_t i = 0; i < tables.size; ++i)
    weight[i] = 12 + 3 * (tables.row_offset[i + 1] - tables.row_offset[i]);
  return weight;
}

} // namespace sparsertc
