// Levels on the CPU: wide ones are shared among threads, runs of narrow ones are one thread's.
#pragma once

#include "ir/lu_tables.h"
#include "runtime/host/task_pool.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace sparsertc::lu {

/// Columns (or rows) that are worked on one after the other, or all at once.
struct LevelStage {
  std::vector<uint32_t> members;
  /// Places in `members` where the threads' shares begin, and the end; two numbers where one thread
  /// does all.
  std::vector<uint64_t> share;

  bool parallel() const { return share.size() > 2; }
};

/// Which members wait for which: for smaller ones, or for larger ones.
enum class Direction : uint8_t { ascending, descending };

/// `work(member)` is in multiply-adds. With one thread: one stage. One thread works in the order of
/// the numbers, which is an order of levels, too, and kinder to the cache.
std::vector<LevelStage> plan_stages(const LuLevels& levels, Direction direction, unsigned threads,
                                    const std::function<uint64_t(uint32_t)>& work);

/// Calls step(member, thread) for all, stage by stage. `pool` has the threads of the plan; it may
/// be null where that is one.
template <class Step>
void run_stages(const std::vector<LevelStage>& stages, TaskPool* pool, const Step& step) {
  for (const LevelStage& stage : stages) {
    const auto do_share = [&](uint64_t thread) {
      for (uint64_t m = stage.share[thread]; m < stage.share[thread + 1]; ++m)
        step(stage.members[m], thread);
    };
    if (stage.parallel() && pool != nullptr)
      pool->run(stage.share.size() - 1, do_share);
    else
      for (uint64_t thread = 0; thread + 1 < stage.share.size(); ++thread)
        do_share(thread);
  }
}

} // namespace sparsertc::lu
