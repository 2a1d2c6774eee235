#include "tools/regimes.h"

#include <fmt/format.h>

namespace sparsertc {

std::string describe_regimes(const Pattern& pattern, const std::vector<StrategyPlan>& plans) {
  const StrategyPlan* best = predicted_fastest(plans);
  if (best == nullptr)
    return {};
  std::string text =
      fmt::format("\npredicted fastest: {}, {:.2f} us", name_of(best->strategy), *best->us);
  for (const StrategyPlan& plan : plans)
    if (&plan != best && plan.us)
      text +=
          fmt::format("; {} {:.2f} times as long", name_of(plan.strategy), *plan.us / *best->us);
  text += "\nby zeros, with as many rows and columns:";
  const char* separator = " ";
  for (const Regime& regime : regimes(pattern, plans)) {
    text += fmt::format("{}{} from {:g} %", separator, name_of(regime.strategy), 100 * regime.from);
    separator = ", ";
  }
  return text + "\n";
}

void add_regimes(nlohmann::ordered_json& json, const Pattern& pattern,
                 const std::vector<StrategyPlan>& plans) {
  const StrategyPlan* best = predicted_fastest(plans);
  if (best == nullptr)
    return;
  json["predicted_fastest"] = name_of(best->strategy);
  json["fastest_by_sparsity"] = nlohmann::ordered_json::array();
  for (const Regime& regime : regimes(pattern, plans))
    json["fastest_by_sparsity"].push_back(
        {{"strategy", name_of(regime.strategy)}, {"from_sparsity", regime.from}});
}

} // namespace sparsertc
