#include "compiler/pattern/conflict_sets.h"
#include "compiler/pattern/degree_buckets.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace sparsertc {
namespace {

constexpr uint32_t kNone = DegreeBuckets::kNone;

/// For each vertex the number of others that it must differ from; and who they are, where that
/// takes little room.
class Neighbours {
public:
  /// `stored_per_entry`: how many may be stored for each entry of the sets.
  Neighbours(const ConflictSets& sets, uint64_t stored_per_entry) : degree_(sets.vertices(), 0) {
    const uint64_t limit = stored_per_entry * sets.members.nnz();
    is_stored_ = limit > 0;
    std::vector<uint32_t> seen_from(sets.vertices(), kNone), found(sets.vertices());
    for (uint32_t vertex = 0; vertex < sets.vertices(); ++vertex) {
      seen_from[vertex] = vertex;
      uint32_t count = 0;
      // Without branches, which would be mispredicted: many are seen more than once.
      for (const uint32_t set : sets.avoids.row(vertex))
        for (const uint32_t other : sets.members.row(set)) {
          found[count] = other;
          count += seen_from[other] != vertex;
          seen_from[other] = vertex;
        }
      if (is_stored_)
        neighbour_.insert(neighbour_.end(), found.begin(), found.begin() + count);
      degree_[vertex] = count;
      if (neighbour_.size() > limit) {
        is_stored_ = false;
        neighbour_ = {};
      }
      offset_.push_back(neighbour_.size());
    }
    largest_ = degree_.empty() ? 0 : *std::max_element(degree_.begin(), degree_.end());
  }

  const std::vector<uint32_t>& degrees() const { return degree_; }
  uint32_t largest_degree() const { return largest_; }
  bool is_stored() const { return is_stored_; }
  /// In the order in which the sets list them; where stored.
  std::span<const uint32_t> of(uint32_t vertex) const {
    return {neighbour_.data() + offset_[vertex], degree_[vertex]};
  }

private:
  std::vector<uint32_t> degree_, neighbour_;
  std::vector<uint64_t> offset_ = {0};
  uint32_t largest_ = 0;
  bool is_stored_ = false;
};

/// Neighbours stored for each entry. Power-flow Jacobians have 3, grids in space 4.
constexpr uint64_t kStoredPerEntry = 16;

Permutation by_descending_degree(const Neighbours& neighbours) {
  const std::vector<uint32_t>& degree = neighbours.degrees();
  const uint32_t largest = neighbours.largest_degree();
  std::vector<uint32_t> place(uint64_t{largest} + 2, 0);
  for (const uint32_t d : degree)
    ++place[largest - d + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  Permutation order(degree.size());
  for (uint32_t vertex = 0; vertex < degree.size(); ++vertex)
    order[place[largest - degree[vertex]]++] = vertex;
  return order;
}

/// Takes vertices out of the buckets one after another. Where neighbours are not stored, the sets
/// forget who has been taken, so each pair is seen about once.
class Taker {
public:
  Taker(const ConflictSets& sets, const Neighbours& neighbours, DegreeBuckets& buckets)
      : sets_(sets), neighbours_(neighbours), buckets_(buckets) {
    if (neighbours.is_stored())
      return;
    member_ = sets.members.column_index;
    end_.assign(sets.members.row_offset.begin() + 1, sets.members.row_offset.end());
    seen_from_.assign(sets.vertices(), kNone);
  }

  /// Removes the vertex and changes the keys of its neighbours that are left by `change`.
  void take(uint32_t vertex, int change) {
    buckets_.erase(vertex);
    if (neighbours_.is_stored()) {
      for (const uint32_t other : neighbours_.of(vertex))
        if (buckets_.is_inside(other))
          buckets_.move_by(other, change);
      return;
    }
    for (const uint32_t set : sets_.avoids.row(vertex)) {
      uint64_t kept = sets_.members.row_offset[set];
      for (uint64_t k = kept; k < end_[set]; ++k) {
        const uint32_t other = member_[k];
        if (!buckets_.is_inside(other))
          continue;
        member_[kept++] = other;
        if (seen_from_[other] != vertex)
          buckets_.move_by(other, change);
        seen_from_[other] = vertex;
      }
      end_[set] = kept;
    }
  }

private:
  const ConflictSets& sets_;
  const Neighbours& neighbours_;
  DegreeBuckets& buckets_;
  std::vector<uint32_t> member_, seen_from_;
  std::vector<uint64_t> end_;
};

Permutation smallest_last(const ConflictSets& sets) {
  const Neighbours neighbours(sets, kStoredPerEntry);
  const uint32_t vertices = sets.vertices();
  DegreeBuckets buckets(vertices, neighbours.largest_degree());
  for (uint32_t vertex = 0; vertex < vertices; ++vertex)
    buckets.insert(vertex, neighbours.degrees()[vertex]);
  Taker taker(sets, neighbours, buckets);
  Permutation order(vertices);
  uint32_t least = 0;
  for (uint32_t left = vertices; left > 0; --left) {
    while (buckets.first(least) == kNone)
      ++least;
    order[left - 1] = buckets.first(least);
    taker.take(order[left - 1], -1);
    least -= least > 0;
  }
  return order;
}

Permutation incidence_degree(const ConflictSets& sets) {
  const Neighbours neighbours(sets, kStoredPerEntry);
  const uint32_t vertices = sets.vertices();
  DegreeBuckets buckets(vertices, neighbours.largest_degree() + 1);
  // Where nothing decides, the larger degree does.
  const Permutation by_degree = by_descending_degree(neighbours);
  for (uint32_t place = vertices; place-- > 0;)
    buckets.insert(by_degree[place], 0);
  Taker taker(sets, neighbours, buckets);
  Permutation order(vertices);
  uint32_t most = 0;
  for (uint32_t place = 0; place < vertices; ++place) {
    while (buckets.first(most) == kNone)
      --most;
    order[place] = buckets.first(most);
    taker.take(order[place], +1);
    ++most;
  }
  return order;
}

/// Whether all vertices that need a colour enter one set and avoid it: then all are neighbours of
/// all, every order is one by degree, and counting would take quadratic time.
bool is_one_clique(const ConflictSets& sets) {
  uint64_t needed = 0;
  for (uint32_t vertex = 0; vertex < sets.vertices(); ++vertex)
    needed += sets.is_needed(vertex);
  std::vector<uint64_t> avoiding(sets.members.rows, 0);
  for (const uint32_t set : sets.avoids.column_index)
    ++avoiding[set];
  for (uint32_t set = 0; set < sets.members.rows; ++set)
    if (avoiding[set] == needed && sets.members.row_length(set) == needed)
      return true;
  return false;
}

} // namespace

Permutation colouring_order(const ConflictSets& sets, ColouringOrder order) {
  if (order == ColouringOrder::natural || is_one_clique(sets))
    return identity_permutation(sets.vertices());
  if (order == ColouringOrder::largest_first)
    return by_descending_degree(Neighbours(sets, 0));
  return order == ColouringOrder::smallest_last ? smallest_last(sets) : incidence_degree(sets);
}

} // namespace sparsertc
