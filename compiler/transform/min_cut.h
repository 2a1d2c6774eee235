// Minimum cuts by Dinic's algorithm (E. A. Dinic, "Algorithm for solution of a problem of maximum
// flow in networks with power estimation", 1970).
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace sparsertc {

/// A cost with a second one that only decides between equal first ones. The theorem of maximum flow
/// and minimum cut asks of capacities that they can be added and compared, no more.
struct CutCost {
  int64_t first = 0;
  int64_t second = 0;

  friend constexpr auto operator<=>(const CutCost&, const CutCost&) = default;
  friend constexpr CutCost operator+(CutCost a, CutCost b) {
    return {a.first + b.first, a.second + b.second};
  }
  friend constexpr CutCost operator-(CutCost a, CutCost b) {
    return {a.first - b.first, a.second - b.second};
  }
};

/// What may never be cut. All other costs together must be below it.
constexpr CutCost kNeverCut{int64_t{1} << 61, 0};

/// A directed graph with a source and a sink. A cut puts each node on one of the two sides; an edge
/// costs its capacity where it leads from the source's side to the sink's.
class MinCut {
public:
  using Node = uint32_t;
  static constexpr Node kSource = 0;
  static constexpr Node kSink = 1;

  MinCut() : first_edge_(2, kNone) {}

  Node add_node();
  /// Edges of cost 0 may be left out; several between the same nodes add up.
  void add_edge(Node from, Node to, CutCost cost);
  /// Finds the cheapest cut and returns its cost; a first component of kNeverCut's or more says
  /// that there is none without such an edge. Called once.
  CutCost solve();
  /// After solve(): on the source's side? Of all cheapest cuts this is the one with the fewest such
  /// nodes.
  bool on_source_side(Node node) const { return level_[node] != kNone; }

private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Edge {
    Node to;
    uint32_t next; ///< edge of the same node
    CutCost rest;  ///< capacity that no flow takes; the reverse edge is this one's index xor 1
  };

  bool find_levels();
  CutCost push_path();

  std::vector<uint32_t> first_edge_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> level_;   ///< distance from the source over edges with capacity left
  std::vector<uint32_t> current_; ///< the edge that each node tries next
  std::vector<uint32_t> path_;    ///< edges from the source
};

} // namespace sparsertc
