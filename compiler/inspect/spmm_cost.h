// How long the code of a schedule takes on a GPU, from the pattern alone. A model of an H200 (132
// multiprocessors at 1.755 GHz, warm caches), fitted to measured times; README.md, "Regimes", has
// the measurements. With d = nnz / (M K), vec columns a thread, S parts of K, b = ceil(blocks /
// multiprocessors), W warps a block and waves of blocks that fit at once, in microseconds:
//
//   unrolled    1.1 + 0.27 [S > 1] + (0.95 + 8.5 / registers) |code, supply, issue, loads, L2,
//               latency|_2.9, the terms of runtime/tune/candidate.h with the tiles' real numbers of
//               columns
//   streamed    1.8 + |latency, L2|_1.17
//                 latency   0.37 (longest + (waves - 1) mean + 0.28 rows waves), of the steps of 8
//                           entries that the tiles have
//                 L2        136 bytes an entry and warp at 16.2 TB/s
//   compressed  1.84 + what blocks stage of B at 13.3 TB/s + the stream at 4.5 TB/s + an element of
//               B for each entry and column at 7.7 TB/s
//   panels      3 + products of the steps, dense, of a wave's blocks at 0.42 of the peak (f32 in
//               parts: six of them at 0.56), or A and B at 7 TB/s
//   bitmap      2.5 + |stream at 4 TB/s, tiles of 16 x 16 in 14 clocks and 3 for each 8
//               columns|_4 + B for each multiprocessor at 6 TB/s + 1 [clusters]
//   dense       by a library: a + b K + 2 M N K / rate, of f32 6.9, 0.0013 and 52e6, tf32 4.9,
//               0.0007 and 268e6, f16 and bf16 2.5, 0.0011 and 939e6; one column: 2.5 + A at 6
//               TB/s. Our own kernel is taken to need twice as long.
//
// |...|_p is the p-th root of the sum of p-th powers.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// Microseconds; nothing where there is no model: code for a CPU, f64, a dynamic N, convolutions,
/// clusters (but of bitmaps), staging.
std::optional<double> predicted_us(const Pattern& pattern, const SpmmSchedule& schedule);

/// One strategy with the tile that the compiler would take.
struct StrategyPlan {
  Strategy strategy = Strategy::unrolled;
  SpmmSchedule schedule;
  std::string refused; ///< why it cannot be; then the rest is empty
  std::optional<double> us;
};
/// All strategies, the words of `choice` but its strategy given to each.
std::vector<StrategyPlan> plan_strategies(const Matrix& weights, const SpmmProblem& problem,
                                          const Target& target, const SpmmTileChoice& choice);
/// The one predicted to be the fastest; null where nothing is predicted. Unrolled code over the
/// default budget of multiply-adds takes long to assemble and does not take part.
const StrategyPlan* predicted_fastest(const std::vector<StrategyPlan>& plans);

/// From this fraction of zeros on, up to that of the next one, `strategy` is predicted to be the
/// fastest with as many rows and columns.
struct Regime {
  Strategy strategy = Strategy::unrolled;
  double from = 0;
};
/// In steps of half a percent, by the numbers of these plans scaled to other densities; the bounds
/// are as good as that. Empty where nothing is predicted.
std::vector<Regime> regimes(const Pattern& pattern, const std::vector<StrategyPlan>& plans);

} // namespace sparsertc
