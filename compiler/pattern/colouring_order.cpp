#include "compiler/pattern/conflict_sets.h"
#include "compiler/pattern/degree_buckets.h"

#include <algorithm>
#include <numeric>

namespace sparsertc {
namespace {

constexpr uint32_t kNone = DegreeBuckets::kNone;

/// For each vertex the number of others that it must differ from.
std::vector<uint32_t> degrees(const ConflictSets& sets) {
  std::vector<uint32_t> degree(sets.vertices(), 0), seen_from(sets.vertices(), kNone);
  for (uint32_t vertex = 0; vertex < sets.vertices(); ++vertex) {
    seen_from[vertex] = vertex;
    uint32_t count = 0;
    for (const uint32_t set : sets.avoids.row(vertex))
      for (const uint32_t other : sets.members.row(set)) {
        count += seen_from[other] != vertex;
        seen_from[other] = vertex;
      }
    degree[vertex] = count;
  }
  return degree;
}

Permutation largest_first(const ConflictSets& sets) {
  const std::vector<uint32_t> degree = degrees(sets);
  const uint32_t largest = degree.empty() ? 0 : *std::max_element(degree.begin(), degree.end());
  std::vector<uint32_t> place(uint64_t{largest} + 2, 0);
  for (const uint32_t d : degree)
    ++place[largest - d + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  Permutation order(sets.vertices());
  for (uint32_t vertex = 0; vertex < sets.vertices(); ++vertex)
    order[place[largest - degree[vertex]]++] = vertex;
  return order;
}

/// Takes vertices one after another; the sets forget who has been taken, so each pair is seen about
/// once.
class Taker {
public:
  Taker(const ConflictSets& sets, DegreeBuckets& buckets)
      : sets_(sets), buckets_(buckets), member_(sets.members.column_index),
        end_(sets.members.row_offset.begin() + 1, sets.members.row_offset.end()) {}

  /// Removes the vertex and changes the keys of its neighbours that are left by `change`.
  void take(uint32_t vertex, int change) {
    buckets_.erase(vertex);
    for (const uint32_t set : sets_.avoids.row(vertex)) {
      uint64_t kept = sets_.members.row_offset[set];
      for (uint64_t k = kept; k < end_[set]; ++k) {
        const uint32_t other = member_[k];
        if (!buckets_.is_inside(other))
          continue;
        member_[kept++] = other;
        if (buckets_.visit(other, vertex))
          buckets_.move(other, buckets_.key(other) + static_cast<uint32_t>(change));
      }
      end_[set] = kept;
    }
  }

private:
  const ConflictSets& sets_;
  DegreeBuckets& buckets_;
  std::vector<uint32_t> member_;
  std::vector<uint64_t> end_;
};

Permutation smallest_last(const ConflictSets& sets) {
  const std::vector<uint32_t> degree = degrees(sets);
  const uint32_t vertices = sets.vertices();
  const uint32_t largest = degree.empty() ? 0 : *std::max_element(degree.begin(), degree.end());
  DegreeBuckets buckets(vertices, largest);
  for (uint32_t vertex = 0; vertex < vertices; ++vertex)
    buckets.insert(vertex, degree[vertex]);
  Taker taker(sets, buckets);
  Permutation order(vertices);
  uint32_t least = 0;
  for (uint32_t left = vertices; left > 0; --left) {
    while (buckets.first(least) == kNone)
      ++least;
    const uint32_t vertex = buckets.first(least);
    taker.take(vertex, -1);
    order[left - 1] = vertex;
    least -= least > 0;
  }
  return order;
}

Permutation incidence_degree(const ConflictSets& sets) {
  const uint32_t vertices = sets.vertices();
  // Where nothing decides, the larger degree does.
  const Permutation by_degree = largest_first(sets);
  DegreeBuckets buckets(vertices, vertices);
  for (uint32_t place = vertices; place-- > 0;)
    buckets.insert(by_degree[place], 0);
  Taker taker(sets, buckets);
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
    return largest_first(sets);
  return order == ColouringOrder::smallest_last ? smallest_last(sets) : incidence_degree(sets);
}

} // namespace sparsertc
