#include "compiler/inspect/lu_partial_sums.h"

#include "ir/lu_dataflow.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <utility>

namespace sparsertc {
namespace {

constexpr uint32_t kProducts = LuDataflow::kProducts;

// Clocks: to look at the operands of a packet, to end a task, to take a reciprocal, to add over two
// lanes.
constexpr uint64_t kLookClocks = 350;
constexpr uint64_t kEndClocks = 60;
constexpr uint64_t kPivotClocks = 150;
constexpr uint64_t kShuffleClocks = 45;
/// Products that come so long before the last are early: a partial sum takes a look, some shuffles
/// and a hop.
constexpr uint64_t kEarlyClocks = 1000;

/// From the last product's arrival to the result's store.
uint64_t task_clocks(uint32_t products, uint32_t lanes, bool is_pivot) {
  const uint64_t packets =
      std::max<uint64_t>(1, (products + lanes * kProducts - 1) / (lanes * kProducts));
  return kEndClocks + (is_pivot ? kPivotClocks : 0) +
         kShuffleClocks * static_cast<uint64_t>(std::countr_zero(lanes)) +
         (packets - 1) * kLookClocks;
}

uint64_t arrival(const LuGather& gather, const std::vector<uint64_t>& published, uint64_t pair) {
  return std::max({published[gather.pair_left[pair]], published[gather.pair_right[pair]],
                   published[gather.pair_pivot[pair]]});
}

/// How many of the products, which come at these times, are late; all where cutting gains nothing.
uint32_t late_products(const std::vector<uint64_t>& times) {
  const auto count = static_cast<uint32_t>(times.size());
  if (count <= kProducts)
    return count;
  const uint64_t last = times.back();
  uint32_t late = 0;
  while (late < count && times[count - 1 - late] + kEarlyClocks > last)
    ++late;
  // The lanes that are needed anyway have room for some more.
  return std::min(count, lanes_for(late, kProducts) * kProducts);
}

} // namespace

uint32_t lanes_for(uint64_t products, uint32_t products_of_lane) {
  const uint64_t of_lane = std::max(products_of_lane, 1u);
  const uint64_t lanes = (products + of_lane - 1) / of_lane;
  return static_cast<uint32_t>(
      std::min<uint64_t>(LuDataflow::kLanes, std::bit_ceil(std::max<uint64_t>(lanes, 1))));
}

uint32_t LuFlowTasks::latest_operand(const LuGather& gather, uint64_t pair) const {
  const uint32_t operands[] = {gather.pair_left[pair], gather.pair_right[pair],
                               gather.pair_pivot[pair]};
  return *std::max_element(std::begin(operands), std::end(operands),
                           [&](uint32_t a, uint32_t b) { return published[a] < published[b]; });
}

void LuFlowTasks::order_products(const LuGather& gather, uint64_t task,
                                 std::vector<uint64_t>& pairs) const {
  pairs.resize(gather.pair_offset[task + 1] - gather.pair_offset[task]);
  std::iota(pairs.begin(), pairs.end(), gather.pair_offset[task]);
  std::sort(pairs.begin(), pairs.end(), [&](uint64_t a, uint64_t b) {
    return std::pair(arrival(gather, published, a), a) <
           std::pair(arrival(gather, published, b), b);
  });
}

LuFlowTasks split_gather(const LuTables& tables, const LuGather& gather,
                         uint32_t products_of_lane) {
  LuFlowTasks flow;
  flow.published.assign(tables.nnz(), 0);
  flow.latest.assign(tables.nnz(), kNoWord);
  flow.tasks.reserve(tables.nnz());
  std::vector<bool> is_pivot(tables.nnz(), false), may_be_given(tables.nnz(), false);
  for (const uint64_t slot : tables.input_slot)
    may_be_given[slot] = true;
  for (const uint64_t slot : tables.diagonal) {
    is_pivot[slot] = true;
    may_be_given[slot] = false;
  }

  std::vector<uint64_t> times;
  for (uint64_t id = 0; id < gather.tasks(); ++id) {
    const uint64_t slot = gather.task_slot[id];
    if (may_be_given[slot] && gather.pair_offset[id] == gather.pair_offset[id + 1])
      continue;
    times.clear();
    for (uint64_t pair = gather.pair_offset[id]; pair < gather.pair_offset[id + 1]; ++pair) {
      times.push_back(arrival(gather, flow.published, pair));
      const uint32_t operand = flow.latest_operand(gather, pair);
      if (uint32_t& latest = flow.latest[slot];
          latest == kNoWord || flow.published[operand] > flow.published[latest])
        latest = operand;
    }
    std::sort(times.begin(), times.end());
    const auto count = static_cast<uint32_t>(times.size());
    const uint32_t late = late_products(times), early = count - late;

    LuFlowTask task;
    task.gather = id;
    task.partial_sum = kNoPartialSum;
    task.ready = count == 0 ? 0 : times.back() + kHopClocks;
    if (early > 0) {
      LuFlowTask partial = task;
      partial.count = early;
      partial.partial_sum = task.partial_sum = flow.partial_sums++;
      partial.is_partial = true;
      partial.lanes = lanes_for(early, products_of_lane);
      partial.ready = times[early - 1] + kHopClocks;
      flow.tasks.push_back(partial);
      task.ready = std::max(task.ready,
                            partial.ready + task_clocks(early, partial.lanes, false) + kHopClocks);
    }
    task.first = early;
    task.count = late;
    task.lanes = lanes_for(late, early > 0 ? kProducts : products_of_lane);
    flow.tasks.push_back(task);
    flow.published[slot] = task.ready + task_clocks(late, task.lanes, is_pivot[slot]);
  }
  return flow;
}

} // namespace sparsertc
