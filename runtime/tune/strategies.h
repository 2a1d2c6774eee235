// What a search says of the strategies: the best time of each, and from which fraction of zeros on
// each would be the fastest with as many rows and columns, by the tuner's predictions scaled to
// what was measured.
#pragma once

#include "runtime/tune/candidate.h"
#include "runtime/tune/search.h"

#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::tune {

/// "unrolled", ... out of the words of a tile; empty where they leave it open.
std::string_view strategy_of(std::string_view words);

struct StrategyResult {
  std::string name;
  Candidate best;         ///< of those that were measured, else of the space
  double time_us = 0;     ///< its measured time; 0 where none was measured
  bool is_sample = false; ///< the time is one of samples
  size_t tried = 0;       ///< measured candidates, samples counted by themselves
};
/// One for each strategy of the space and the trials, the fastest first, those without a measured
/// time last.
std::vector<StrategyResult> compare_strategies(const std::vector<Candidate>& space,
                                               const std::vector<Trial>& trials);

/// From this fraction of zeros on, up to that of the next one.
struct StrategyRange {
  std::string name;
  double from = 0;
};
/// In steps of a hundredth. Each strategy keeps its best candidate and the ratio of its measured to
/// its predicted time; without a measured one the prediction stands alone.
std::vector<StrategyRange> strategy_ranges(const Layer& layer, const Device& device,
                                           const std::vector<StrategyResult>& strategies);

/// Both as lines of text: "dense 5.31 us (3 tried), unrolled 6.90 us (21 tried); ...". Says what
/// was not allowed, too.
std::string describe_strategies(const Layer& layer, const Device& device,
                                const std::vector<Candidate>& space,
                                const std::vector<Trial>& trials);

} // namespace sparsertc::tune
