#include "runtime/jacobian/warp_results.h"

#include <algorithm>

namespace sparsertc::jacobian {

std::vector<TaskPart> parts_of(const TaskLanes& lanes) {
  std::vector<TaskPart> parts;
  uint32_t task = 0;
  for (size_t group = 0; group < lanes.task_end.size(); ++group) {
    const uint32_t each = kWarpThreads >> group;
    for (; task < lanes.task_end[group]; ++task)
      for (uint32_t lane = 0; lane < each; ++lane)
        parts.push_back({task, lane, each});
    while (parts.size() % kWarpThreads != 0)
      parts.push_back({});
  }
  return parts;
}

uint32_t WarpStores::finish_warp(uint64_t first_thread) {
  std::sort(own_.begin(), own_.end(),
            [](const ResultStore& a, const ResultStore& b) { return a.place < b.place; });
  const uint64_t rounds = (own_.size() + kWarpThreads - 1) / kWarpThreads;
  if (stores_.size() < rounds * threads_)
    stores_.resize(rounds * threads_);
  for (uint64_t k = 0; k < own_.size(); ++k)
    stores_[k / kWarpThreads * threads_ + first_thread + k % kWarpThreads] = own_[k];
  own_.clear();
  return static_cast<uint32_t>(rounds);
}

} // namespace sparsertc::jacobian
