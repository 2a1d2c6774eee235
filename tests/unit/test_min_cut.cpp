// Minimum cuts against all cuts of small random graphs.
#include "compiler/transform/min_cut.h"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

using namespace sparsertc;

namespace {

struct Edge {
  uint32_t from, to;
  CutCost cost;
};

struct Best {
  CutCost cost{INT64_MAX, 0};
  uint32_t common = ~0u; ///< nodes that all cheapest cuts have on the source's side
};

/// Side sets are bit masks over the nodes.
Best best_cut(uint32_t nodes, const std::vector<Edge>& edges) {
  Best best;
  for (uint32_t side = 0; side < (1u << nodes); ++side) {
    if ((side & 1) == 0 || (side & 2) != 0)
      continue; // the source is node 0, the sink node 1
    CutCost cost;
    for (const Edge& edge : edges)
      if ((side >> edge.from & 1) != 0 && (side >> edge.to & 1) == 0)
        cost = edge.cost == kNeverCut || cost == kNeverCut ? kNeverCut : cost + edge.cost;
    if (cost < best.cost)
      best = {cost, side};
    else if (cost == best.cost)
      best.common &= side;
  }
  return best;
}

} // namespace

TEST_CASE("the cheapest cut of random graphs is found, the smallest of several", "[min_cut]") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  for (unsigned round = 0; round < 400; ++round) {
    CAPTURE(round);
    const uint32_t nodes = 2 + below(7);
    MinCut cut;
    for (uint32_t i = 2; i < nodes; ++i)
      REQUIRE(cut.add_node() == i);
    std::vector<Edge> edges;
    for (uint32_t i = 0, count = below(30); i < count; ++i) {
      // Small numbers, so that many cuts cost the same.
      const CutCost cost = below(10) == 0 ? kNeverCut : CutCost{below(5), below(4)};
      edges.push_back({below(nodes), below(nodes), cost});
      cut.add_edge(edges.back().from, edges.back().to, edges.back().cost);
    }
    const Best best = best_cut(nodes, edges);
    const CutCost found = cut.solve();
    if (best.cost.first >= kNeverCut.first) {
      REQUIRE(found.first >= kNeverCut.first);
      continue;
    }
    REQUIRE(found.first == best.cost.first);
    REQUIRE(found.second == best.cost.second);
    for (uint32_t i = 0; i < nodes; ++i)
      REQUIRE(cut.on_source_side(i) == ((best.common >> i & 1) != 0));
  }
}

TEST_CASE("a second cost only decides between equal first ones", "[min_cut]") {
  MinCut cut;
  const MinCut::Node a = cut.add_node();
  const MinCut::Node b = cut.add_node();
  cut.add_edge(MinCut::kSource, a, {3, 0});
  cut.add_edge(a, b, {2, 1000});
  cut.add_edge(b, MinCut::kSink, {2, 5});
  CHECK(cut.solve() == CutCost{2, 5});
  CHECK(cut.on_source_side(a));
  CHECK(cut.on_source_side(b));
}

TEST_CASE("where no cut is allowed, the cost says so", "[min_cut]") {
  MinCut cut;
  for (unsigned i = 0; i < 8; ++i) {
    const MinCut::Node a = cut.add_node();
    cut.add_edge(MinCut::kSource, a, kNeverCut);
    cut.add_edge(a, MinCut::kSink, kNeverCut);
  }
  CHECK(cut.solve() >= kNeverCut);
}
