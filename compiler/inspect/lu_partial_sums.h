// Which products of an entry of L'+U are added up before the others are there.
//
// A gather waits for its last product. What comes between that and the result counts on every level
// of the longest chain; what can be done before, does not. So a task with more products than a lane
// adds at once is cut in two where its products allow it:
//
//     products by the time at which they should be there
//     | early ................................. | late |
//      \___ a partial sum, by many lanes, on ___/   \__ the entry: starts from the partial sum
//           its way while nothing is missed            and adds these few, in few lanes
//
// Times are estimates, in clocks, for as many warps as there is work for.
#pragma once

#include "ir/lu_tables.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// A part of a task of the gather.
struct LuFlowTask {
  uint64_t gather = 0; ///< the task
  uint32_t first = 0;  ///< of its products in the order of time
  uint32_t count = 0;
  /// Of the partial sum that this is, or that it starts from; kNoPartialSum for neither.
  uint32_t partial_sum = 0;
  bool is_partial = false;
  uint32_t lanes = 1;
  /// When all products should be there.
  uint64_t ready = 0;
};

inline constexpr uint32_t kNoPartialSum = UINT32_MAX;

struct LuFlowTasks {
  /// In an order in which they may be begun. Given entries have none.
  std::vector<LuFlowTask> tasks;
  uint32_t partial_sums = 0;
  /// By slot, when the entry should be there, and which other one it needs is there last (kNoWord
  /// where it needs none).
  std::vector<uint64_t> published;
  std::vector<uint32_t> latest;

  /// The operand of a pair that is there last.
  uint32_t latest_operand(const LuGather& gather, uint64_t pair) const;
  /// The numbers of a task's products, in the order of time.
  void order_products(const LuGather& gather, uint64_t task, std::vector<uint64_t>& pairs) const;
};

/// Clocks from a result's store to its arrival at whoever waits for it. Of tasks one of which needs
/// the other's result, `ready` is apart by more than this.
inline constexpr uint64_t kHopClocks = 450;

/// `products_of_lane` as in LuDataflowOptions.
LuFlowTasks split_gather(const LuTables& tables, const LuGather& gather, uint32_t products_of_lane);

/// So many lanes (a power of 2, at most a warp) that none has more products than this.
uint32_t lanes_for(uint64_t products, uint32_t products_of_lane);

} // namespace sparsertc
