#include "compiler/inspect/factor_cost.h"

#include "compiler/inspect/elimination_tree.h"
#include "compiler/pattern/permutation.h"

#include <algorithm>

namespace sparsertc {
namespace {

constexpr double kStartUs = 10;
constexpr double kLevelUs = 0.65;
constexpr double kEntryUs = 1.2e-4;
constexpr double kFlopUs = 5e-6;

/// The root of a set in a forest of sets; halves the path on the way.
uint32_t find_root(std::vector<uint32_t>& forest, uint32_t vertex) {
  while (forest[vertex] != vertex) {
    forest[vertex] = forest[forest[vertex]];
    vertex = forest[vertex];
  }
  return vertex;
}

} // namespace

std::vector<uint32_t> cholesky_column_counts(const Pattern& a,
                                             const std::vector<uint32_t>& parent) {
  const uint32_t size = a.rows;
  const Pattern transposed = transpose(a);
  const std::vector<uint32_t> post = postorder(parent);

  // The first vertex, in postorder, of the subtree of each vertex.
  std::vector<uint32_t> first(size, kNoVertex);
  // A column's count is the sum of these weights over its subtree. Parts of it may be negative.
  std::vector<int64_t> weight(size, 0);
  for (uint32_t number = 0; number < size; ++number) {
    uint32_t vertex = post[number];
    weight[vertex] = first[vertex] == kNoVertex ? 1 : 0;
    for (; vertex != kNoVertex && first[vertex] == kNoVertex; vertex = parent[vertex])
      first[vertex] = number;
  }

  // Row i of the factor is a subtree of the tree, spanned by its leaves: vertex j is one when no
  // neighbour of i was met in the subtree of j. Each leaf adds a path that ends where it meets the
  // path of the leaf before, at their least common ancestor.
  std::vector<uint32_t> latest_first(size, 0), previous_leaf(size, kNoVertex), set(size);
  for (uint32_t vertex = 0; vertex < size; ++vertex)
    set[vertex] = vertex;
  for (uint32_t vertex : post) {
    if (parent[vertex] != kNoVertex)
      --weight[parent[vertex]];
    for (const Pattern* side : {&a, &transposed})
      for (uint32_t row : side->row(vertex)) {
        if (row <= vertex)
          continue;
        const uint32_t before = previous_leaf[row];
        if (before != kNoVertex && first[vertex] < latest_first[row])
          continue;
        ++weight[vertex];
        if (before != kNoVertex)
          --weight[find_root(set, before)];
        previous_leaf[row] = vertex;
        latest_first[row] = first[vertex] + 1;
      }
    if (parent[vertex] != kNoVertex)
      set[vertex] = parent[vertex];
  }

  std::vector<uint32_t> count(size);
  for (uint32_t vertex : post) {
    count[vertex] = static_cast<uint32_t>(weight[vertex]);
    if (parent[vertex] != kNoVertex)
      weight[parent[vertex]] += weight[vertex];
  }
  return count;
}

FactorCost symmetric_factor_cost(const Pattern& a) {
  const std::vector<uint32_t> parent = elimination_tree(a);
  FactorCost cost;
  for (uint32_t count : cholesky_column_counts(a, parent)) {
    const double below = count - 1.0;
    cost.entries += 2 * uint64_t{count} - 1;
    cost.flops += below + 2 * below * below;
  }
  // Children have smaller numbers than their parents.
  std::vector<uint32_t> level(a.rows, 1);
  for (uint32_t vertex = 0; vertex < a.rows; ++vertex) {
    cost.levels = std::max<uint64_t>(cost.levels, level[vertex]);
    if (parent[vertex] != kNoVertex)
      level[parent[vertex]] = std::max(level[parent[vertex]], level[vertex] + 1);
  }
  return cost;
}

FactorCost factor_cost(const LuPattern& rows, const LuColumns& columns, const LuLevels& levels) {
  FactorCost cost;
  cost.entries = rows.rows.nnz();
  cost.levels = levels.count();
  for (uint32_t k = 0; k < rows.rows.rows; ++k) {
    const double below =
        static_cast<double>(columns.columns.row_offset[k + 1] - columns.diagonal[k] - 1);
    const double behind = static_cast<double>(rows.rows.row_offset[k + 1] - rows.diagonal[k] - 1);
    cost.flops += below + 2 * below * behind;
  }
  return cost;
}

double predicted_factor_time_us(const FactorCost& cost) {
  return kStartUs + kLevelUs * static_cast<double>(cost.levels) +
         kEntryUs * static_cast<double>(cost.entries) + kFlopUs * cost.flops;
}

} // namespace sparsertc
