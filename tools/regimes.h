// What the model says of the strategies for one layer, for reports: the fastest, and from which
// fraction of zeros the others would be.
#pragma once

#include "compiler/inspect/spmm_cost.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sparsertc {

/// "predicted fastest: unrolled, 2.31 us; ..." in lines; empty where nothing is predicted.
std::string describe_regimes(const Pattern& pattern, const std::vector<StrategyPlan>& plans);
/// The same as `predicted_fastest` and `fastest_by_sparsity`.
void add_regimes(nlohmann::ordered_json& json, const Pattern& pattern,
                 const std::vector<StrategyPlan>& plans);

} // namespace sparsertc
