// Vertices by degree, for the orders that take one of least or largest degree after another.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

/// Vertices in lists by a key that changes by one at a time: taking one with the least or largest
/// key takes constant time on average (Matula and Beck, "Smallest-last ordering and clustering and
/// graph coloring algorithms", 1983).
class DegreeBuckets {
public:
  static constexpr uint32_t kNone = UINT32_MAX;

  DegreeBuckets(uint32_t vertices, uint32_t largest_key)
      : nodes_(vertices), first_(uint64_t{largest_key} + 1, kNone) {}

  void insert(uint32_t vertex, uint32_t key) {
    Node& node = nodes_[vertex];
    node.key = key;
    node.previous = kNone;
    node.next = first_[key];
    if (node.next != kNone)
      nodes_[node.next].previous = vertex;
    first_[key] = vertex;
  }
  void erase(uint32_t vertex) {
    Node& node = nodes_[vertex];
    (node.previous == kNone ? first_[node.key] : nodes_[node.previous].next) = node.next;
    if (node.next != kNone)
      nodes_[node.next].previous = node.previous;
    node.key = kNone;
  }
  void move_by(uint32_t vertex, int change) {
    const uint32_t key = nodes_[vertex].key + static_cast<uint32_t>(change);
    erase(vertex);
    insert(vertex, key);
  }

  uint32_t key(uint32_t vertex) const { return nodes_[vertex].key; }
  bool is_inside(uint32_t vertex) const { return nodes_[vertex].key != kNone; }
  /// The one inserted last among those of a key, or kNone.
  uint32_t first(uint32_t key) const { return first_[key]; }

private:
  struct Node {
    uint32_t next = kNone, previous = kNone;
    uint32_t key = kNone;
  };
  std::vector<Node> nodes_;
  std::vector<uint32_t> first_;
};

} // namespace sparsertc
