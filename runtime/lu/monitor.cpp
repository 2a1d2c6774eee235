#include "runtime/lu/monitor.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc::lu {

std::string find_staleness(const FactorStatus& chosen, const FactorStatus& now) {
  if (now.outcome == FactorOutcome::singular)
    return fmt::format("column {} (counted from 0) is zero", now.column);
  if (now.outcome == FactorOutcome::not_finite)
    return fmt::format("numbers overflowed in row {}, column {} (counted from 0)", now.row,
                       now.column);
  if (now.perturbed > chosen.perturbed)
    return fmt::format("{} pivots were too small and were replaced, {} when they were chosen; the "
                       "first in row {}, column {} (counted from 0)",
                       now.perturbed, chosen.perturbed, now.perturbed_row, now.perturbed_column);
  if (now.growth > kStaleGrowth * std::max(1.0, chosen.growth))
    return fmt::format(
        "elimination made numbers {:.2g} times as large, {:.2g} times when the pivots "
        "were chosen",
        now.growth, chosen.growth);
  return {};
}

} // namespace sparsertc::lu
