#include "runtime/tune/strategies.h"

#include "runtime/tune/bitmap_candidates.h"
#include "runtime/tune/compressed_candidates.h"
#include "runtime/tune/dense_candidates.h"
#include "runtime/tune/panel_candidates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace sparsertc::tune {
namespace {

/// The predicted time of the same words for another number of non-zeros; nothing where they would
/// not be in the space.
std::optional<double> predicted_for(const Layer& layer, const Device& device,
                                    const Candidate& candidate) {
  const std::string_view strategy = strategy_of(candidate.words);
  if (strategy == "unrolled" || strategy == "streamed") {
    if (candidate.warps == 0 || !is_possible(layer, device, candidate))
      return std::nullopt; // a user's words
    return predict_us(layer, device, candidate);
  }
  std::vector<Candidate> space;
  if (strategy == "compressed")
    add_compressed_candidates(layer, device, space);
  else if (strategy == "panels")
    add_panel_candidates(layer, device, space);
  else if (strategy == "bitmap")
    add_bitmap_candidates(layer, device, space);
  else if (strategy == "dense")
    add_dense_candidates(layer, space);
  for (const Candidate& one : space)
    if (one.words == candidate.words)
      return one.predicted_us;
  return std::nullopt;
}

} // namespace

std::string_view strategy_of(std::string_view words) {
  constexpr std::string_view kWord = "strategy=";
  const size_t at = words.find(kWord);
  if (at == std::string_view::npos)
    return {};
  words.remove_prefix(at + kWord.size());
  return words.substr(0, words.find(','));
}

std::vector<StrategyResult> compare_strategies(const std::vector<Candidate>& space,
                                               const std::vector<Trial>& trials) {
  std::vector<StrategyResult> results;
  const auto result_of = [&](const Candidate& candidate) -> StrategyResult* {
    const std::string_view name = strategy_of(candidate.words);
    if (name.empty())
      return nullptr;
    for (StrategyResult& one : results)
      if (one.name == name)
        return &one;
    return &results.emplace_back(StrategyResult{std::string(name), candidate});
  };
  for (const Candidate& candidate : space)
    if (StrategyResult* result = result_of(candidate);
        result && candidate.predicted_us < result->best.predicted_us)
      result->best = candidate;
  // Times of samples only where a strategy has no others.
  for (const bool samples : {false, true})
    for (const Trial& trial : trials) {
      StrategyResult* result = result_of(trial.candidate);
      if (!result || trial.is_sample != samples || !trial.refused.empty() || trial.time_us <= 0)
        continue;
      ++result->tried;
      const bool is_worse = samples != result->is_sample && result->time_us > 0;
      if (is_worse || (result->time_us > 0 && result->time_us <= trial.time_us))
        continue;
      result->time_us = trial.time_us;
      result->best = trial.candidate;
      result->is_sample = samples;
    }
  std::stable_sort(results.begin(), results.end(),
                   [](const StrategyResult& a, const StrategyResult& b) {
                     const bool measured = a.time_us > 0, other = b.time_us > 0;
                     return measured != other ? measured : a.time_us < b.time_us;
                   });
  return results;
}

std::vector<StrategyRange> strategy_ranges(const Layer& layer, const Device& device,
                                           const std::vector<StrategyResult>& strategies) {
  constexpr unsigned kSteps = 100;
  std::vector<double> ratios;
  for (const StrategyResult& one : strategies) {
    const std::optional<double> here = predicted_for(layer, device, one.best);
    ratios.push_back(!here ? 0 : one.time_us > 0 ? one.time_us / *here : 1);
  }
  std::vector<StrategyRange> ranges;
  for (unsigned step = 0; step < kSteps; ++step) {
    Layer other = layer;
    other.nnz =
        static_cast<uint64_t>(std::llround(double(layer.m) * layer.k * (kSteps - step) / kSteps));
    const StrategyResult* best = nullptr;
    double best_us = 0;
    for (size_t i = 0; i < strategies.size(); ++i) {
      const std::optional<double> predicted =
          ratios[i] > 0 ? predicted_for(other, device, strategies[i].best) : std::nullopt;
      if (predicted && (!best || *predicted * ratios[i] < best_us)) {
        best = &strategies[i];
        best_us = *predicted * ratios[i];
      }
    }
    if (best && (ranges.empty() || ranges.back().name != best->name))
      ranges.push_back({best->name, double(step) / kSteps});
  }
  return ranges;
}

std::string describe_strategies(const Layer& layer, const Device& device,
                                const std::vector<Candidate>& space,
                                const std::vector<Trial>& trials) {
  const std::vector<StrategyResult> strategies = compare_strategies(space, trials);
  std::vector<std::string> words;
  for (const StrategyResult& one : strategies)
    words.push_back(one.time_us > 0
                        ? fmt::format("{} {:.2f} us ({} tried)", one.name, one.time_us, one.tried)
                        : fmt::format("{} not measured (predicted {:.2f} us)", one.name,
                                      one.best.predicted_us));
  std::string text = fmt::format("{}", fmt::join(words, ", "));
  if (!layer.allows_dense && !layer.images)
    text += "; dense, panels and bitmap multiply zeros, which only nonfinite=dense and a fixed "
            "number of columns allow";
  words.clear();
  for (const StrategyRange& range : strategy_ranges(layer, device, strategies))
    words.push_back(fmt::format("{} from {:g} %", range.name, 100 * range.from));
  if (!words.empty())
    text += fmt::format("\nfastest by zeros, with as many rows and columns: {}",
                        fmt::join(words, ", "));
  return text;
}

} // namespace sparsertc::tune
