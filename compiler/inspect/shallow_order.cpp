#include "compiler/inspect/shallow_order.h"

#include <algorithm>
#include <queue>
#include <span>
#include <utility>

namespace sparsertc {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

/// The filled graph is chordal: it is a tree of maximal cliques, neighbours of which share a
/// separator (Lewis, Peyton and Pothen, "A fast algorithm for reordering sparse matrices for
/// parallel factorization", 1989). A vertex of one clique alone can be eliminated without fill;
/// eliminating one of each clique at a time takes the least number of rounds.
class CliqueTree {
public:
  explicit CliqueTree(const LuPattern& filled) : filled_(filled), size_(filled.rows.rows) {
    find_cliques();
    link_cliques();
  }

  Permutation eliminate() {
    Permutation order;
    order.reserve(size_);
    // The cliques that have a vertex for this round, and for the next.
    std::vector<uint32_t> round, next;
    for (uint32_t clique = 0; clique < cliques(); ++clique)
      if (!free_[clique].empty())
        next.push_back(clique);
    while (!next.empty()) {
      round.clear();
      for (uint32_t clique : next)
        if (!absorbed_[clique] && !free_[clique].empty())
          round.push_back(clique);
      std::sort(round.begin(), round.end());
      round.erase(std::unique(round.begin(), round.end()), round.end());
      next.clear();
      // All of the round are chosen before any clique changes.
      for (uint32_t clique : round) {
        order.push_back(free_[clique].back());
        free_[clique].pop_back();
        eliminated_[order.back()] = true;
        --alive_[clique];
      }
      for (uint32_t clique : round)
        absorb_where_contained(clique, next);
    }
    return order;
  }

private:
  uint32_t cliques() const { return static_cast<uint32_t>(first_.size()); }

  /// The neighbours of a vertex with larger numbers.
  std::span<const uint32_t> later(uint32_t vertex) const {
    const uint64_t begin = filled_.diagonal[vertex] + 1;
    return {filled_.rows.column_index.data() + begin, filled_.rows.row_offset[vertex + 1] - begin};
  }

  /// A vertex and its later neighbours are a clique, a maximal one unless an earlier vertex has all
  /// of them. Such a vertex is a child in the elimination tree with one neighbour more.
  void find_cliques() {
    clique_of_.assign(size_, kNone);
    std::vector<bool> covered(size_, false);
    for (uint32_t vertex = 0; vertex < size_; ++vertex) {
      if (!covered[vertex]) {
        clique_of_[vertex] = cliques();
        first_.push_back(vertex);
      }
      const auto others = later(vertex);
      if (others.empty())
        continue;
      const uint32_t parent = others.front();
      if (!covered[parent] && others.size() == later(parent).size() + 1) {
        covered[parent] = true;
        clique_of_[parent] = clique_of_[vertex];
      }
    }
    alive_.resize(cliques());
    absorbed_.assign(cliques(), false);
    free_.resize(cliques());
    eliminated_.assign(size_, false);
    in_cliques_.assign(size_, 0);
    sum_of_cliques_.assign(size_, 0);
    for (uint32_t clique = 0; clique < cliques(); ++clique) {
      const auto others = later(first_[clique]);
      alive_[clique] = static_cast<uint32_t>(others.size()) + 1;
      enter(first_[clique], clique);
      for (uint32_t vertex : others)
        enter(vertex, clique);
    }
    for (uint32_t vertex = size_; vertex-- > 0;)
      if (in_cliques_[vertex] == 1)
        free_[sum_of_cliques_[vertex]].push_back(vertex);
  }

  void enter(uint32_t vertex, uint32_t clique) {
    ++in_cliques_[vertex];
    sum_of_cliques_[vertex] += clique;
  }

  /// The vertices of a clique that are no other's representative's own come first; the rest is the
  /// separator from the clique of the lowest of them.
  void link_cliques() {
    forest_ = identity_permutation(cliques());
    neighbours_.resize(cliques());
    for (uint32_t clique = 0; clique < cliques(); ++clique) {
      const auto others = later(first_[clique]);
      size_t own = 0;
      while (own < others.size() && clique_of_[others[own]] == clique)
        ++own;
      if (own == others.size())
        continue; // a root
      const uint32_t parent = clique_of_[others[own]];
      const uint32_t separator = static_cast<uint32_t>(others.size() - own);
      neighbours_[clique].emplace(separator, parent);
      neighbours_[parent].emplace(separator, clique);
    }
  }

  /// The clique that a clique has become part of.
  uint32_t find(uint32_t clique) {
    while (forest_[clique] != clique) {
      forest_[clique] = forest_[forest_[clique]];
      clique = forest_[clique];
    }
    return clique;
  }

  /// A clique of which nothing is left but a separator is part of the clique behind it.
  void absorb_where_contained(uint32_t clique, std::vector<uint32_t>& next) {
    next.push_back(clique);
    auto& queue = neighbours_[clique];
    while (!queue.empty() && find(queue.top().second) == clique)
      queue.pop();
    if (queue.empty() || queue.top().first < alive_[clique])
      return;
    const uint32_t into = find(queue.top().second);
    absorbed_[clique] = true;
    forest_[clique] = into;
    leave(first_[clique], clique, next);
    for (uint32_t vertex : later(first_[clique]))
      leave(vertex, clique, next);
    if (neighbours_[into].size() < queue.size())
      std::swap(neighbours_[into], queue);
    for (; !queue.empty(); queue.pop())
      neighbours_[into].push(queue.top());
  }

  void leave(uint32_t vertex, uint32_t clique, std::vector<uint32_t>& next) {
    sum_of_cliques_[vertex] -= clique;
    if (--in_cliques_[vertex] != 1 || eliminated_[vertex])
      return;
    const uint32_t last = static_cast<uint32_t>(sum_of_cliques_[vertex]);
    free_[last].push_back(vertex);
    next.push_back(last);
  }

  const LuPattern& filled_;
  const uint32_t size_;
  /// The first vertex of each clique, which has all others as later neighbours.
  std::vector<uint32_t> first_;
  /// The clique in which a vertex is not part of the separator from the clique above.
  std::vector<uint32_t> clique_of_;
  std::vector<uint32_t> alive_; ///< vertices left in a clique
  std::vector<bool> absorbed_, eliminated_;
  /// The vertices of a clique that are in no other.
  std::vector<std::vector<uint32_t>> free_;
  /// Of each vertex, how many cliques it is in, and the sum of their numbers: the number itself
  /// once it is in one alone.
  std::vector<uint32_t> in_cliques_;
  std::vector<uint64_t> sum_of_cliques_;
  std::vector<uint32_t> forest_;
  /// Size of the separator and neighbour, the largest separator on top.
  std::vector<std::priority_queue<std::pair<uint32_t, uint32_t>>> neighbours_;
};

} // namespace

Permutation shallow_order(const LuPattern& filled) {
  return CliqueTree(filled).eliminate();
}

} // namespace sparsertc
