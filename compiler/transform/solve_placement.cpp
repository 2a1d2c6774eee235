#include "compiler/transform/placement.h"

#include "compiler/transform/placement_costs.h"
#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc {
namespace {

using Node = MinCut::Node;

/// Questions are nodes; the answer is yes where a node is on the source's side. On the side of the
/// device they are asked the other way round ("is it not in device memory?"): then every rule is of
/// the form "not yes to this and no to that".
class PlacementCut {
public:
  PlacementCut(const ir::Function& function, const ProgramShape& shape,
               const PlacementProblem& problem)
      : function_(function), shape_(shape), problem_(problem),
        gaps_(static_cast<int64_t>(function.ops.size()) + 1) {}

  Placement solve();

private:
  struct BufferNodes {
    BufferPoints points;
    std::vector<Node> host; ///< by state: valid in host memory?
    std::vector<Node> away; ///< by state: not valid in device memory?
  };

  void never(Node yes, Node no) { cut_.add_edge(yes, no, kNeverCut); }
  void must(Node yes) { never(MinCut::kSource, yes); }
  void must_not(Node no) { never(no, MinCut::kSink); }
  void same(Node a, Node b) {
    never(a, b);
    never(b, a);
  }
  /// The node that says whether an end is on the host.
  Node on_host(const SideOf& side) const {
    return !side.fixed()             ? choices_[side.choice]
           : side.side == Side::host ? MinCut::kSource
                                     : MinCut::kSink;
  }

  void buffer(uint32_t index);
  void gaps(uint32_t index, const BufferNodes& nodes);
  void control(const BufferNodes& nodes);
  void touch(const BufferTouch& touch, const std::vector<SideOf>& sides);

  const ir::Function& function_;
  const ProgramShape& shape_;
  const PlacementProblem& problem_;
  int64_t gaps_;
  MinCut cut_;
  std::vector<Node> choices_; ///< on the host?
  std::vector<BufferNodes> buffers_;
};

void PlacementCut::buffer(uint32_t index) {
  BufferNodes nodes{BufferPoints(function_, shape_, problem_.use, index), {}, {}};
  for (uint32_t state = 0; state < nodes.points.states(); ++state) {
    nodes.host.push_back(cut_.add_node());
    nodes.away.push_back(cut_.add_node());
    // Of equal costs the one with fewer places at a time: one place weighs more than all that a
    // copy may be early.
    cut_.add_edge(nodes.host.back(), MinCut::kSink, {0, gaps_});
    cut_.add_edge(MinCut::kSource, nodes.away.back(), {0, gaps_});
  }
  // Before it is allocated and where its block ends it is nowhere.
  const uint32_t alloc = problem_.use.buffers[index].alloc;
  const ProgramShape::Region& region = shape_.region(shape_.region_of_op(alloc));
  uint32_t end = region.end;
  if (end == function_.ops.size() && function_.ops.back().code == ir::Opcode::return_void)
    --end;
  for (uint32_t point : {2 * alloc, 2 * end}) {
    must_not(nodes.host[nodes.points.state(point)]);
    must(nodes.away[nodes.points.state(point)]);
  }
  gaps(index, nodes);
  control(nodes);
  buffers_.push_back(std::move(nodes));
}

void PlacementCut::gaps(uint32_t index, const BufferNodes& nodes) {
  const int64_t copy_ns = placement_costs::copy_ns(problem_.use.buffers[index].bytes());
  const BufferPoints& points = nodes.points;
  for (uint32_t gap = 1; gap < gaps_; ++gap) {
    const uint32_t before = points.state(2 * gap - 1);
    const uint32_t after = points.state(2 * gap);
    // Contents that nothing has written, or that nothing reads, need no copy.
    const bool copied = points.defined(2 * gap - 1) && points.live(2 * gap);
    const CutCost cost{copied ? saturating_product(shape_.executions_of_gap(gap), copy_ns) : 0,
                       gaps_ - gap};
    cut_.add_edge(nodes.host[after], nodes.host[before], cost);
    cut_.add_edge(nodes.away[before], nodes.away[after], cost);
    // Else they must be somewhere.
    if (copied) {
      never(nodes.away[before], nodes.host[before]);
      never(nodes.away[after], nodes.host[after]);
    }
  }
}

/// Where control goes from one point to several, or from several to one, there is no place for a
/// copy: what is not valid before is not valid after it. Validity may be given up.
void PlacementCut::control(const BufferNodes& nodes) {
  for (const ProgramShape::Edge& edge : shape_.control_edges()) {
    const uint32_t from = nodes.points.state(edge.from);
    const uint32_t to = nodes.points.state(edge.to);
    never(nodes.host[to], nodes.host[from]);
    never(nodes.away[from], nodes.away[to]);
  }
}

void PlacementCut::touch(const BufferTouch& touch, const std::vector<SideOf>& sides) {
  const BufferNodes& nodes = buffers_[touch.buffer];
  const uint32_t before = nodes.points.state(2 * touch.op);
  const uint32_t after = nodes.points.state(2 * touch.op + 1);
  for (const SideOf& side : sides) {
    const Node host = on_host(side);
    never(host, nodes.host[before]);
    never(nodes.away[before], host);
    if (touch.writes) {
      same(host, nodes.host[after]);
      same(host, nodes.away[after]);
    }
  }
}

Placement PlacementCut::solve() {
  for (const SideChoice& choice : problem_.choices) {
    choices_.push_back(cut_.add_node());
    cut_.add_edge(choices_.back(), MinCut::kSink, {choice.host_ns, 0});
    cut_.add_edge(MinCut::kSource, choices_.back(), {choice.device_ns, 0});
  }
  for (uint32_t i = 0; i < problem_.use.buffers.size(); ++i)
    buffer(i);
  for (size_t i = 0; i < problem_.use.touches.size(); ++i)
    touch(problem_.use.touches[i], problem_.sides[i]);
  for (const CopyEnds& copy : problem_.copies) {
    const Node a = on_host(copy.destination);
    const Node b = on_host(copy.source);
    cut_.add_edge(a, b, {copy.ns, 0});
    cut_.add_edge(b, a, {copy.ns, 0});
  }
  const CutCost cost = cut_.solve();
  if (cost.first >= kNeverCut.first)
    throw InternalError(fmt::format("the buffers of @{} have no placement", function_.name));
  Placement placement;
  placement.cost_ns = cost.first;
  for (Node choice : choices_)
    placement.choice.push_back(cut_.on_source_side(choice) ? Side::host : Side::device);
  const size_t points = 2 * function_.ops.size() + 1;
  for (const BufferNodes& nodes : buffers_) {
    BufferPlaces& places = placement.buffers.emplace_back();
    for (uint32_t point = 0; point < points; ++point) {
      const uint32_t state = nodes.points.state(point);
      places.on_host.push_back(cut_.on_source_side(nodes.host[state]) ? 1 : 0);
      places.on_device.push_back(cut_.on_source_side(nodes.away[state]) ? 0 : 1);
    }
  }
  return placement;
}

} // namespace

Placement solve_placement(const ir::Function& function, const ProgramShape& shape,
                          const PlacementProblem& problem) {
  return PlacementCut(function, shape, problem).solve();
}

} // namespace sparsertc
