#include "compiler/inspect/elimination_tree.h"

#include "compiler/pattern/permutation.h"

#include <algorithm>
#include <numeric>

namespace sparsertc {

std::vector<uint32_t> elimination_tree(const Pattern& a) {
  const Pattern transposed = transpose(a);
  std::vector<uint32_t> parent(a.rows, kNoVertex);
  std::vector<uint32_t> ancestor(a.rows, kNoVertex); // paths to the roots so far, compressed
  for (uint32_t i = 0; i < a.rows; ++i)
    for (const Pattern* side : {&a, &transposed})
      for (uint32_t k : side->row(i)) {
        while (k < i) {
          const uint32_t next = ancestor[k];
          ancestor[k] = i;
          if (next == kNoVertex)
            parent[k] = i;
          k = next; // kNoVertex ends the climb
        }
      }
  return parent;
}

std::vector<uint32_t> postorder(const std::vector<uint32_t>& parent) {
  const uint32_t size = static_cast<uint32_t>(parent.size());
  // Children in lists: the smallest one first.
  std::vector<uint32_t> child(size, kNoVertex), sibling(size, kNoVertex);
  for (uint32_t v = size; v-- > 0;)
    if (parent[v] != kNoVertex) {
      sibling[v] = child[parent[v]];
      child[parent[v]] = v;
    }
  std::vector<uint32_t> order;
  order.reserve(size);
  for (uint32_t root = 0; root < size; ++root) {
    if (parent[root] != kNoVertex)
      continue;
    // Down to the first leaf, then on from each vertex to its sibling or its parent.
    for (uint32_t v = root;;) {
      while (child[v] != kNoVertex)
        v = child[v];
      order.push_back(v);
      while (v != root && sibling[v] == kNoVertex) {
        v = parent[v];
        order.push_back(v);
      }
      if (v == root)
        break;
      v = sibling[v];
    }
  }
  return order;
}

TreeParts cut_tree(const std::vector<uint32_t>& parent, const std::vector<uint64_t>& weight,
                   uint64_t pieces) {
  const uint32_t size = static_cast<uint32_t>(parent.size());
  // Parents are larger than their children: one ascending sweep sums the subtrees.
  std::vector<uint64_t> total = weight;
  uint64_t all = 0;
  for (uint32_t v = 0; v < size; ++v) {
    all += weight[v];
    if (parent[v] != kNoVertex)
      total[parent[v]] += total[v];
  }
  const uint64_t limit = all / std::max<uint64_t>(pieces, 1);
  // A vertex is in the part of its parent, or begins one where its subtree is small enough.
  TreeParts result;
  std::vector<uint32_t> part(size, kNoVertex);
  std::vector<uint32_t> root_of_part;
  for (uint32_t v = size; v-- > 0;) {
    if (parent[v] != kNoVertex && part[parent[v]] != kNoVertex) {
      part[v] = part[parent[v]];
    } else if (total[v] <= limit) {
      part[v] = static_cast<uint32_t>(root_of_part.size());
      root_of_part.push_back(v);
    }
  }
  std::vector<uint32_t> order(root_of_part.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const uint32_t first = root_of_part[a], second = root_of_part[b];
    return total[first] != total[second] ? total[first] > total[second] : first < second;
  });
  // Many small subtrees share a part, so that there are not many more parts than pieces.
  std::vector<uint32_t> place(order.size());
  uint64_t filled = limit + 1;
  for (const uint32_t old : order) {
    const uint64_t more = total[root_of_part[old]];
    if (filled + more > limit) {
      result.parts.emplace_back();
      filled = 0;
    }
    filled += more;
    place[old] = static_cast<uint32_t>(result.parts.size() - 1);
  }
  for (uint32_t v = 0; v < size; ++v)
    (part[v] == kNoVertex ? result.top : result.parts[place[part[v]]]).push_back(v);
  return result;
}

} // namespace sparsertc
