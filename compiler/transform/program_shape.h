// The blocks of a function's structured code, how often each runs, and the numbers known in it.
#pragma once

#include "ir/module.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace sparsertc {

/// Operations, points and gaps of one function. Gap g is the place before operation g (the last one
/// is the end of the function). Point 2k is before operation k, point 2k + 1 after it; gap g joins
/// the points 2g - 1 and 2g.
class ProgramShape {
public:
  struct Region {
    uint32_t parent;
    uint32_t end;       ///< the operation that closes it; the number of operations for the body
    int64_t executions; ///< how often its operations run in one run of the function
    bool known;         ///< no convention stands in for a number
  };

  explicit ProgramShape(const ir::Function& function);

  /// The body is region 0.
  const Region& region(uint32_t index) const { return regions_[index]; }
  /// A block's first and last operation belong to the region around it.
  uint32_t region_of_op(uint32_t op) const { return region_of_op_[op]; }
  /// A block's first and last gap belong to the block.
  uint32_t region_of_gap(uint32_t gap) const { return region_of_gap_[gap]; }
  int64_t executions_of_op(uint32_t op) const { return region(region_of_op(op)).executions; }
  int64_t executions_of_gap(uint32_t gap) const { return region(region_of_gap(gap)).executions; }
  /// For the first operation of an `if` or a loop its last one, for any other the operation itself.
  uint32_t statement_end(uint32_t op) const { return statement_end_[op]; }
  /// For an `else` and the last operation of a block its first one, for any other the operation
  /// itself.
  uint32_t statement_begin(uint32_t op) const { return statement_begin_[op]; }
  /// How control gets over the operations that open, part and close blocks: from point to point.
  struct Edge {
    uint32_t from, to;
  };
  const std::vector<Edge>& control_edges() const { return edges_; }

  /// The value of a register that is assigned once, by `const`.
  std::optional<int64_t> constant(uint32_t reg) const { return constants_[reg]; }
  /// Whether nothing but one operation, or the call, assigns it.
  bool assigned_once(uint32_t reg) const { return assignments_[reg] == 1; }

private:
  void open(const ir::Op& op, uint32_t at);
  void close(const ir::Op& op, uint32_t at);

  struct OpenBlock {
    uint32_t op;
    bool loops;
    uint32_t skips; ///< the operation before which control may leave it early, to its end
  };
  std::vector<Region> regions_;
  std::vector<uint32_t> region_of_op_, region_of_gap_, statement_begin_, statement_end_;
  std::vector<Edge> edges_;
  std::vector<std::optional<int64_t>> constants_;
  std::vector<uint8_t> assignments_; ///< 0, 1 or 2 for more
  std::vector<OpenBlock> open_;      ///< while building
  uint32_t current_ = 0;
};

/// a * b for numbers that are not negative, at most 10^12: costs stay far from overflow.
int64_t saturating_product(int64_t a, int64_t b);

} // namespace sparsertc
