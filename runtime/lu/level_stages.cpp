#include "runtime/lu/level_stages.h"

namespace sparsertc::lu {
namespace {

/// Multiply-adds in a level below which threads would wait longer for one another than they work.
constexpr uint64_t kParallelWork = 200'000;

} // namespace

std::vector<LevelStage> plan_stages(const LuLevels& levels, Direction direction, unsigned threads,
                                    const std::function<uint64_t(uint32_t)>& work) {
  std::vector<LevelStage> stages;
  LevelStage alone;
  const auto close = [&] {
    if (alone.members.empty())
      return;
    std::sort(alone.members.begin(), alone.members.end());
    if (direction == Direction::descending)
      std::reverse(alone.members.begin(), alone.members.end());
    alone.share = {0, alone.members.size()};
    stages.push_back(std::move(alone));
    alone = {};
  };
  std::vector<uint64_t> sum;
  for (uint64_t level = 0; level < levels.count(); ++level) {
    const auto first = levels.member.begin() + static_cast<ptrdiff_t>(levels.offset[level]);
    const auto last = levels.member.begin() + static_cast<ptrdiff_t>(levels.offset[level + 1]);
    if (threads == 1 || last - first < 2) {
      alone.members.insert(alone.members.end(), first, last);
      continue;
    }
    sum.assign(1, 0);
    for (auto member = first; member != last; ++member)
      sum.push_back(sum.back() + work(*member));
    if (sum.back() < kParallelWork) {
      alone.members.insert(alone.members.end(), first, last);
      continue;
    }
    close();
    LevelStage together;
    together.members.assign(first, last);
    for (unsigned t = 0; t <= threads; ++t)
      together.share.push_back(static_cast<uint64_t>(
          std::lower_bound(sum.begin(), sum.end(), sum.back() * t / threads) - sum.begin()));
    stages.push_back(std::move(together));
  }
  close();
  return stages;
}

} // namespace sparsertc::lu
