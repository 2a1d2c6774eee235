// Iterative refinement on the GPU: what the kernels of compiler/lower/lu_refine.h and the runtime
// agree on.
#pragma once

#include <cstdint>
#include <limits>

namespace sparsertc {

/// How far the refinement of one right-hand side has come, in device memory; kernels write it.
struct LuRefineRecord {
  /// Of the best solution so far: its componentwise backward error and relative residual, and the
  /// corrections that made it.
  double backward_error = std::numeric_limits<double>::infinity();
  double residual = std::numeric_limits<double>::quiet_NaN();
  int64_t steps = 0;
  int64_t next = 0;      ///< number of the next correction; the first solution is number 0
  int64_t is_newest = 0; ///< whether the newest solution is the best one, and not kept elsewhere
  double last_size = std::numeric_limits<double>::infinity(); ///< of the last correction, unscaled
};
static_assert(sizeof(LuRefineRecord) == 48, "kernels and hosts agree on the layout");

/// Partial maxima and sums, each by one block or warp, added up by whoever needs them in one order:
/// of the update, kLuRefineUpdateParts times the largest correction (unscaled), the largest and the
/// sum of the magnitudes of x; of the residual, kLuRefineResidualParts times the numbers below.
/// Largest ones are the bits of non-negative f64, which compare like integers, NaN last.
inline constexpr uint32_t kLuRefineUpdateParts = 64;
inline constexpr uint32_t kLuRefineUpdateNumbers = 3;
inline constexpr uint32_t kLuRefineResidualParts = 2048;
/// Largest backward errors of ordinary rows and of those that nearly vanish, |r|, row sum of |A|,
/// |b|.
inline constexpr uint32_t kLuRefineResidualNumbers = 5;

} // namespace sparsertc
