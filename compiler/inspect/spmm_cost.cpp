#include "compiler/inspect/spmm_cost.h"

#include "compiler/inspect/compressed_schedule.h"
#include "compiler/inspect/dense_schedule.h"
#include "compiler/inspect/panel_schedule.h"
#include "compiler/inspect/tile_refusal.h"
#include "ir/error.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace sparsertc {
namespace {

constexpr double kMultiprocessors = 132, kClocksOfMicrosecond = 1755;
constexpr double kRegistersOfMultiprocessor = 65536, kThreadsOfMultiprocessor = 2048;
constexpr double kEntriesOfStep = 8; ///< of streamed code

/// What the model asks of a pattern.
struct Work {
  double nnz = 0;
  double loads = 0;         ///< columns of B that tiles use, added over all tiles
  double longest_steps = 0; ///< of a tile of streamed code, and of all on average
  double mean_steps = 0;
  double stream_bytes = 0; ///< compressed
};

double ceil_div(double a, double b) {
  return std::ceil(a / b);
}

double together(std::initializer_list<double> terms, double power) {
  double sum = 0;
  for (const double term : terms)
    sum += std::pow(term, power);
  return std::pow(sum, 1 / power);
}

struct Blocks {
  double of_multiprocessor = 0; ///< the busiest one's
  double waves = 0;             ///< one after the other
  double all = 0, warps = 0;    ///< warps of one
};
Blocks blocks_of(const SpmmSchedule& schedule, double registers, double n) {
  const SpmmTile& tile = schedule.tile;
  const double threads = double(schedule.threads_x) * tile.groups * tile.splitk;
  Blocks blocks;
  blocks.warps = threads / 32;
  blocks.all = ceil_div(n, schedule.columns_per_block()) * schedule.row_blocks();
  blocks.of_multiprocessor = ceil_div(blocks.all, kMultiprocessors);
  const double resident =
      std::clamp(std::min(std::floor(kRegistersOfMultiprocessor / (registers * threads)),
                          std::floor(kThreadsOfMultiprocessor / threads)),
                 1.0, blocks.of_multiprocessor);
  blocks.waves = ceil_div(blocks.of_multiprocessor, resident);
  return blocks;
}

double unrolled_us(const SpmmSchedule& schedule, const Work& work, double n) {
  const SpmmTile& tile = schedule.tile;
  const double size = element_bytes(schedule.problem.type);
  const double threads = double(schedule.threads_x) * tile.groups * tile.splitk;
  const double registers =
      std::min(255.0, kRegistersOfMultiprocessor / 4 / (32 * ceil_div(threads, 128)));
  const Blocks on = blocks_of(schedule, registers, n);
  const double tiles = schedule.tile_count(), sums = double(tile.rows) * tile.vec;
  const double loads = work.loads / tiles / tile.splitk; // of a part
  const double widened = size < 4 && schedule.problem.half_terms == 0 ? 1 : 0;
  const double part = (work.nnz / tiles / tile.splitk + loads * (1 + widened)) * tile.vec +
                      (tile.splitk > 1 ? 4 : 2) * sums + 16;
  const double code = tiles * tile.splitk * part * 16 / 0.4e6;
  const double supply = on.of_multiprocessor * tile.groups * tile.splitk * part * 1.9;
  const double issue = on.of_multiprocessor * on.warps * part / (4 * 0.45);
  const double load_slots = on.of_multiprocessor * on.warps * loads * 1.3;
  const double l2 = on.all * on.warps * loads * 32 * tile.vec * size / 16e6;
  const double in_flight = std::clamp(registers - (sums + 20), 4.0, 13.0);
  const double latency = on.waves * (loads / in_flight + 1) * 240;
  return 1.1 + (tile.splitk > 1 ? 0.27 : 0) +
         (size < 4 ? 0.75 : 1) * (0.95 + 8.5 / registers) *
             together({code, supply / kClocksOfMicrosecond, issue / kClocksOfMicrosecond,
                       load_slots / kClocksOfMicrosecond, l2, latency / kClocksOfMicrosecond},
                      2.9);
}

double streamed_us(const SpmmSchedule& schedule, const Work& work, double n) {
  const SpmmTile& tile = schedule.tile;
  constexpr double kRegisters = 32;
  const Blocks on = blocks_of(schedule, kRegisters, n);
  const double latency =
      0.37 * (work.longest_steps + (on.waves - 1) * work.mean_steps + 0.28 * tile.rows * on.waves);
  const double warps_of_row = ceil_div(n, schedule.columns_per_block()) * schedule.threads_x / 32;
  const double bytes = 32.0 * tile.vec * element_bytes(schedule.problem.type) + 8;
  return 1.8 + together({latency, work.nnz * warps_of_row * bytes / 16.2e6}, 1.17);
}

double compressed_us(const SpmmSchedule& schedule, const Work& work, double n) {
  const double columns =
      std::min<double>(std::bit_ceil(static_cast<uint32_t>(n)), schedule.columns_per_block());
  const double times = ceil_div(n, columns);
  const double size = element_bytes(schedule.problem.type);
  struct Rates {
    double launch, staged, gathers;
  };
  constexpr Rates kF32 = {1.84, 13.3e6, 7.7e6}, kHalf = {3.3, 14.7e6, 7.3e6};
  const Rates& rates = size < 4 ? kHalf : kF32;
  const double staged = kMultiprocessors * schedule.inner * columns * size / rates.staged;
  return rates.launch + staged +
         times * (work.stream_bytes / 4.5e6 + work.nnz * columns * size / rates.gathers);
}

double panels_us(const SpmmSchedule& schedule, const Work& work, double n) {
  PanelLaunch launch = panel_launch(schedule, n);
  // With more entries than the schedule has, steps enough for two of four slots.
  const double slots = 2 * work.nnz / std::max(1u, schedule.rows);
  launch.steps = std::max(launch.steps, slots / schedule.panels.shape.slots_of_step());
  return panel_us(launch);
}

double bitmap_us(const SpmmSchedule& schedule, const Work& work, double n) {
  const SpmmTile& tile = schedule.tile;
  const double planes = ceil_div(n, 8);
  const double memory = work.stream_bytes * ceil_div(n, 8.0 * tile.vec) / 4e6;
  const double tiles = double(schedule.rows) * schedule.inner / 256 / kMultiprocessors *
                       (14 + 34.4 * planes) / kClocksOfMicrosecond;
  const double b = kMultiprocessors * schedule.inner * planes * 16 / tile.cluster / 2.8e6;
  return 1.02 + together({memory, tiles}, 4) + b + (tile.cluster > 1 ? 1 : 0);
}

double dense_us(const SpmmSchedule& schedule, double n) {
  struct Library {
    double launch, of_column, rate, power;
  };
  constexpr Library kF32 = {4.1, 0.002, 56e6, 0.59}, kTf32 = {5.7, 0.00023, 240e6, 0.48},
                    kHalf = {2.4, 0.0015, 675e6, 5.3};
  const double size = element_bytes(schedule.problem.type);
  const Library& library = size == 2                                       ? kHalf
                           : schedule.problem.precision == Precision::tf32 ? kTf32
                                                                           : kF32;
  const double m = schedule.rows, k = schedule.inner;
  const double product =
      together({library.of_column * k, 2 * m * n * k / library.rate}, library.power);
  const double us = n == 1 ? 2.5 + m * k * size / 6e6 : library.launch + product;
  return schedule.tile.dense == DenseCode::own ? 2 * us : us;
}

/// Whether the model knows such code.
bool is_modelled(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  return !schedule.target.is_host && problem.columns && *problem.columns > 0 &&
         !problem.convolution && problem.type != DataType::f64 && schedule.tile_count() > 0 &&
         (schedule.tile.strategy == Strategy::bitmap || schedule.tile.cluster == 1) &&
         schedule.tile.stage == Stage::global;
}

double time_of(const SpmmSchedule& schedule, const Work& work) {
  const double n = *schedule.problem.columns;
  switch (schedule.tile.strategy) {
  case Strategy::unrolled:
    return unrolled_us(schedule, work, n);
  case Strategy::streamed:
    return streamed_us(schedule, work, n);
  case Strategy::compressed:
    return compressed_us(schedule, work, n);
  case Strategy::panels:
    return panels_us(schedule, work, n);
  case Strategy::bitmap:
    return bitmap_us(schedule, work, n);
  case Strategy::dense:
    break;
  }
  return dense_us(schedule, n);
}

Work work_of(const Pattern& pattern, const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  Work work;
  work.nnz = static_cast<double>(pattern.nnz());
  work.stream_bytes = static_cast<double>(
      tile.strategy == Strategy::bitmap ? schedule.bitmap.bytes : schedule.stream.bytes);
  // Where columns are not neighbours, each of a thread's has a load of its own.
  if (tile.strategy == Strategy::unrolled)
    work.loads = static_cast<double>(schedule.prediction.loads) /
                 (schedule.neighbouring_columns ? 1 : tile.vec);
  if (tile.strategy != Strategy::streamed)
    return work;
  double all = 0;
  for (uint32_t number = 0; number < schedule.tile_count(); ++number) {
    double steps = 0;
    for (uint32_t i = schedule.tile_begin[number]; i < schedule.tile_begin[number + 1]; ++i)
      steps += ceil_div(static_cast<double>(pattern.row_length(schedule.row_order[i])),
                        kEntriesOfStep * tile.splitk);
    work.longest_steps = std::max(work.longest_steps, steps);
    all += steps;
  }
  work.mean_steps = all / schedule.tile_count();
  return work;
}

/// The work of a pattern of another density, entries anywhere.
Work scaled(const SpmmSchedule& schedule, const Work& work, double density) {
  const double positions = double(schedule.rows) * schedule.inner;
  const double before = std::max(work.nnz, 1.0) / positions, times = density / before;
  const auto used = [&](double of) { return 1 - std::pow(1 - of, schedule.tile.rows); };
  Work other = work;
  other.nnz *= times;
  other.stream_bytes *= times;
  other.longest_steps *= times;
  other.mean_steps *= times;
  other.loads = std::min(double(schedule.tile_count()) * schedule.inner,
                         work.loads * used(density) / std::max(used(before), 1e-9));
  return other;
}

bool may_be_unrolled(const SpmmSchedule& schedule, double nnz) {
  return schedule.tile.strategy != Strategy::unrolled ||
         nnz * schedule.tile.vec <= static_cast<double>(kDefaultGpuBudget);
}

} // namespace

std::optional<double> predicted_us(const Pattern& pattern, const SpmmSchedule& schedule) {
  if (!is_modelled(schedule))
    return std::nullopt;
  return time_of(schedule, work_of(pattern, schedule));
}

std::vector<StrategyPlan> plan_strategies(const Matrix& weights, const SpmmProblem& problem,
                                          const Target& target, const SpmmTileChoice& choice) {
  std::vector<StrategyPlan> plans;
  for (const Strategy strategy : {Strategy::unrolled, Strategy::streamed, Strategy::compressed,
                                  Strategy::panels, Strategy::bitmap, Strategy::dense}) {
    StrategyPlan plan;
    plan.strategy = strategy;
    SpmmTileChoice words = choice;
    words.strategy = strategy;
    if (strategy != Strategy::dense)
      words.dense.reset();
    if (strategy != Strategy::unrolled)
      words.order.reset();
    try {
      plan.schedule =
          schedule_spmm(weights, problem, target, words, std::numeric_limits<uint64_t>::max());
      plan.us = predicted_us(weights.pattern, plan.schedule);
    } catch (const TileRefusal& error) {
      plan.refused = error.reason();
    } catch (const UsageError& error) {
      plan.refused = error.what();
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

const StrategyPlan* predicted_fastest(const std::vector<StrategyPlan>& plans) {
  const StrategyPlan* best = nullptr;
  for (const StrategyPlan& plan : plans)
    if (plan.us &&
        may_be_unrolled(plan.schedule, static_cast<double>(plan.schedule.prediction.multiply_adds) /
                                           plan.schedule.tile.vec) &&
        (!best || *plan.us < *best->us))
      best = &plan;
  return best;
}

std::vector<Regime> regimes(const Pattern& pattern, const std::vector<StrategyPlan>& plans) {
  constexpr unsigned kSteps = 200; // of half a percent
  std::vector<Regime> found;
  const double positions = double(pattern.rows) * pattern.columns;
  std::vector<Work> works;
  for (const StrategyPlan& plan : plans)
    works.push_back(plan.us ? work_of(pattern, plan.schedule) : Work());
  for (unsigned step = 0; step < kSteps && pattern.nnz() > 0; ++step) {
    const double density = 1 - double(step) / kSteps;
    const StrategyPlan* best = nullptr;
    double best_us = 0;
    for (size_t i = 0; i < plans.size(); ++i) {
      const StrategyPlan& plan = plans[i];
      if (!plan.us || !may_be_unrolled(plan.schedule, density * positions))
        continue;
      const double us = time_of(plan.schedule, scaled(plan.schedule, works[i], density));
      if (!best || us < best_us) {
        best = &plan;
        best_us = us;
      }
    }
    if (best && (found.empty() || found.back().strategy != best->strategy))
      found.push_back({best->strategy, 1 - density});
  }
  return found;
}

} // namespace sparsertc
