// Whether pivots that were chosen for other values still do.
#pragma once

#include "runtime/lu/factors.h"

#include <string>

namespace sparsertc::lu {

/// Growth that is this many times what it was when the pivots were chosen (or 1, if that was less)
/// costs too many digits.
inline constexpr double kStaleGrowth = 1e4;

/// Why the pivots of `now` are stale, where `chosen` is the status of the factorization that they
/// were chosen for; empty where they are not. (That a solution does not reach its tolerance is the
/// other sign, which solving shows.)
std::string find_staleness(const FactorStatus& chosen, const FactorStatus& now);

} // namespace sparsertc::lu
