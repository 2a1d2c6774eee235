#include "compiler/transform/min_cut.h"

#include <algorithm>

namespace sparsertc {
namespace {

constexpr CutCost kNothing{};

} // namespace

MinCut::Node MinCut::add_node() {
  first_edge_.push_back(kNone);
  return static_cast<Node>(first_edge_.size() - 1);
}

void MinCut::add_edge(Node from, Node to, CutCost cost) {
  if (from == to || cost == kNothing)
    return;
  const auto index = static_cast<uint32_t>(edges_.size());
  edges_.push_back({to, first_edge_[from], cost});
  first_edge_[from] = index;
  edges_.push_back({from, first_edge_[to], kNothing});
  first_edge_[to] = index + 1;
}

/// Breadth first; false where the sink is out of reach.
bool MinCut::find_levels() {
  level_.assign(first_edge_.size(), kNone);
  level_[kSource] = 0;
  std::vector<Node> queue{kSource};
  for (size_t head = 0; head < queue.size(); ++head)
    for (uint32_t e = first_edge_[queue[head]]; e != kNone; e = edges_[e].next)
      if (const Node to = edges_[e].to; edges_[e].rest > kNothing && level_[to] == kNone) {
        level_[to] = level_[queue[head]] + 1;
        queue.push_back(to);
      }
  return level_[kSink] != kNone;
}

/// Sends what one shortest path takes; nothing where there is no path left on these levels.
CutCost MinCut::push_path() {
  path_.clear();
  for (Node node = kSource; node != kSink;) {
    uint32_t& e = current_[node];
    while (e != kNone && !(edges_[e].rest > kNothing && level_[edges_[e].to] == level_[node] + 1))
      e = edges_[e].next;
    if (e != kNone) {
      path_.push_back(e);
      node = edges_[e].to;
      continue;
    }
    if (node == kSource)
      return kNothing;
    level_[node] = kNone; // a dead end
    node = edges_[path_.back() ^ 1].to;
    path_.pop_back();
  }
  CutCost least = edges_[path_.front()].rest;
  for (uint32_t e : path_)
    least = std::min(least, edges_[e].rest);
  for (uint32_t e : path_) {
    edges_[e].rest = edges_[e].rest - least;
    edges_[e ^ 1].rest = edges_[e ^ 1].rest + least;
  }
  return least;
}

CutCost MinCut::solve() {
  CutCost flow;
  while (flow.first < kNeverCut.first && find_levels()) {
    current_ = first_edge_;
    for (CutCost sent{1, 0}; sent > kNothing && flow.first < kNeverCut.first; flow = flow + sent)
      sent = push_path();
  }
  return flow;
}

} // namespace sparsertc
