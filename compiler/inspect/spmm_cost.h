// How long the code of a schedule takes on a GPU, from the pattern alone. A model of an H200 (132
// multiprocessors at 1.755 GHz, warm caches), fitted to measured times; README.md, "Regimes", has
// the measurements. With d = nnz / (M K), vec columns a thread, S parts of K, b = ceil(blocks /
// multiprocessors), W warps a block and waves of blocks that fit at once, in microseconds:
//
//   unrolled    1.1 + 0.27 [S > 1] + (0.95 + 8.5 / registers) |code, supply, issue, loads, L2,
//               latency|_2.9, the terms of runtime/tune/candidate.h with the tiles' real numbers of
//               columns; of halves three quarters of the last term
//   streamed    1.8 + |latency, L2|_1.17
//                 latency   0.37 (longest + (waves - 1) mean + 0.28 rows waves), of the steps of 8
//                           entries that the tiles have
//                 L2        136 bytes an entry and warp at 16.2 TB/s
//   compressed  1.84 + what blocks stage of B at 13.3 TB/s + the stream at 4.5 TB/s + an element of
//               B for each entry and column at 7.7 TB/s; of halves 3.3, 14.7 and 7.3
//   panels      panel_us() (panel_schedule.h)
//   bitmap      1.02 + |stream at 4 TB/s, tiles of 16 x 16 in 14 clocks and 34.4 for each 8
//               columns|_4 + B for each multiprocessor at 2.8 TB/s + 1 [clusters]
//   dense       by a library: a + |b K, 2 M N K / rate|_p, with a, b, rate and p of f32 4.1, 0.002,
//               56e6 and 0.59, tf32 5.7, 0.00023, 240e6 and 0.48, f16 and bf16 2.4, 0.0015, 675e6
//               and 5.3; one column: 2.5 + A at 6 TB/s. Our own kernel is taken to need twice as
//               long.
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
