// Chooses strategy, tile and rows of each tile for an SpMM:
//
//   check the problem -> strategy (by budget) -> tile (user's words first) -> limits of the target
//   -> rows to tiles -> prediction
#include "compiler/inspect/spmm_schedule.h"

#include "compiler/inspect/bitmap_schedule.h"
#include "compiler/inspect/compressed_schedule.h"
#include "compiler/inspect/convolution_schedule.h"
#include "compiler/inspect/dense_schedule.h"
#include "compiler/inspect/panel_schedule.h"
#include "compiler/inspect/row_order.h"
#include "compiler/inspect/spmm_cost.h"
#include "compiler/inspect/spmm_tile_choice.h"
#include "compiler/inspect/staged_region.h"
#include "compiler/inspect/tile_refusal.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace sparsertc {
namespace {

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

// ---- the problem ----

/// Fills in tight leading dimensions and refuses what cannot be addressed.
void settle_problem(SpmmSchedule& schedule) {
  SpmmProblem& problem = schedule.problem;
  const bool row_major = problem.layout == Layout::row_major;
  if (problem.half_terms != 0 && problem.type != DataType::f16 && problem.type != DataType::bf16)
    throw UsageError(
        fmt::format("half-precision sums need type f16 or bf16, not {}", name_of(problem.type)),
        "leave --half-terms out, or choose --dtype=f16 or bf16");
  if (problem.convolution) {
    settle_convolution(schedule);
    return;
  }
  schedule.leading_dimension_parameters =
      row_major && !problem.columns && problem.ldb == 0 && problem.ldc == 0;
  if (schedule.leading_dimension_parameters) {
    schedule.request = problem;
    return;
  }
  if (row_major && !problem.columns && (problem.ldb == 0 || problem.ldc == 0))
    throw UsageError("with dynamic columns give both leading dimensions or neither",
                     "--ldb and --ldc are parameters of the kernel when neither is given");
  const uint64_t least_b = row_major ? problem.columns.value_or(0) : schedule.inner;
  const uint64_t least_c = row_major ? problem.columns.value_or(0) : schedule.rows;
  auto settle = [&](uint64_t& leading, uint64_t least, const char* name) {
    if (leading == 0)
      leading = std::max<uint64_t>(least, 1);
    if (leading < least)
      throw UsageError(fmt::format("{} is {} but must be at least {}", name, leading, least));
    if (leading * element_bytes(problem.type) > std::numeric_limits<int32_t>::max())
      throw UsageError(fmt::format("{} of {} elements is over 2 GiB a {}", name, leading,
                                   row_major ? "row" : "column"),
                       "split B along its columns");
  };
  settle(problem.ldb, least_b, "ldb");
  settle(problem.ldc, least_c, "ldc");
  schedule.request = problem;
}

// ---- strategy ----

/// Whether the user gave no word at all: their meaning differs between strategies.
bool is_free(const SpmmTileChoice& choice) {
  return !choice.rows && !choice.vec && !choice.warps && !choice.groups && !choice.splitk &&
         !choice.cluster && !choice.chunk && !choice.prefetch && !choice.stage && !choice.weights &&
         !choice.border && !choice.dense && !choice.order;
}

/// `nnz`: of A.
Strategy choose_strategy(SpmmSchedule& schedule, const SpmmTileChoice& choice, uint64_t budget,
                         uint64_t nnz, const CodeSize& unrolled) {
  if (choice.strategy)
    return *choice.strategy;
  if (choice.stage == Stage::smem)
    return Strategy::unrolled; // only unrolled code is staged; the words together say so
  // A bf16 multiply-add takes a CPU some thirty instructions, each of which LLVM has to place.
  if (schedule.target.is_host && schedule.problem.half_terms != 0 &&
      schedule.problem.type == DataType::bf16) {
    schedule.remarks.push_back("sums in bf16 are emulated on the CPU, where unrolled code takes "
                               "long to compile: streamed (--tile=strategy=unrolled "
                               "unrolls)");
    return Strategy::streamed;
  }
  if (is_free(choice) && compressed_is_predicted(schedule, nnz)) {
    schedule.remarks.push_back(fmt::format(
        "with {} columns the bytes of {} weights decide: compressed (--tile=strategy=unrolled or "
        "streamed: otherwise)",
        *schedule.problem.columns, nnz));
    return Strategy::compressed;
  }
  const auto [multiply_adds, stores] = unrolled;
  if (multiply_adds <= budget && stores <= budget)
    return Strategy::unrolled;
  if (multiply_adds <= budget) {
    schedule.remarks.push_back(
        fmt::format("unrolled code would store {} elements a thread in all tiles, over the budget "
                    "of {}: streamed (--budget={} or --tile=strategy=unrolled unrolls)",
                    stores, budget, stores));
    return Strategy::streamed;
  }
  schedule.remarks.push_back(
      fmt::format("unrolled code would take {} multiply-adds, over the budget of {}: streamed "
                  "(--budget={} or --tile=strategy=unrolled unrolls)",
                  multiply_adds, budget, multiply_adds));
  return Strategy::streamed;
}

/// Whether images in NHWC are staged where nobody says a word: neighbouring threads would read
/// addresses apart by all channels.
bool stages_unasked(const Pattern& pattern, SpmmSchedule schedule, const SpmmTileChoice& given,
                    uint64_t budget) {
  const SpmmProblem& problem = schedule.problem;
  if (schedule.target.is_host || !problem.convolution || problem.layout == Layout::row_major ||
      given.strategy || !is_free(given))
    return false;
  SpmmTileChoice choice;
  choice.stage = schedule.tile.stage = Stage::smem;
  if (staging_piece_bytes(schedule) == 0)
    return false;
  plan_border(pattern, BorderCode::shared, schedule);
  const CodeSize size = unrolled_size(pattern, schedule, choose_gpu_vec(schedule));
  if (size.multiply_adds > budget || size.stores > budget)
    return false;
  schedule.tile.strategy = Strategy::unrolled;
  choose_tile(schedule, choice, 0);
  return fits(schedule) && staged_region(schedule).passes <= kMostPasses;
}

} // namespace

// ---- rows to tiles ----

void deal_rows_by_length(const Pattern& pattern, SpmmSchedule& schedule) {
  const uint32_t rows = pattern.rows;
  const uint32_t tiles = ceil_div(rows, schedule.tile.rows);
  std::vector<uint32_t> by_length(rows);
  std::iota(by_length.begin(), by_length.end(), 0u);
  std::stable_sort(by_length.begin(), by_length.end(), [&](uint32_t a, uint32_t b) {
    return pattern.row_length(a) > pattern.row_length(b);
  });
  schedule.tile_begin.assign(1, 0);
  schedule.row_order.clear();
  schedule.row_order.reserve(rows);
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    for (uint64_t round = 0; round * tiles < rows; ++round) {
      const uint64_t place = round * tiles + (round % 2 == 0 ? tile : tiles - 1 - tile);
      if (place < rows)
        schedule.row_order.push_back(by_length[place]);
    }
    std::sort(schedule.row_order.begin() + schedule.tile_begin.back(), schedule.row_order.end());
    schedule.tile_begin.push_back(static_cast<uint32_t>(schedule.row_order.size()));
  }
}

namespace {

/// Rows with similar columns in the same tile where that is asked for, or where nothing is and the
/// model of times says that it saves a part of the time that is worth it.
void choose_row_order(const Pattern& pattern, std::optional<RowOrder> asked,
                      SpmmSchedule& schedule) {
  constexpr double kWorthIt = 0.06;
  schedule.tile.order = RowOrder::natural;
  if (asked == RowOrder::natural)
    return;
  const std::optional<double> natural_us = predicted_us(pattern, schedule);
  if (!asked && !natural_us)
    return;
  SpmmSchedule similar = schedule;
  similar.tile.order = RowOrder::similar;
  bring_similar_rows_together(pattern, similar.tile_begin, similar.row_order);
  similar.prediction = predict_spmm(pattern, similar);
  if (asked || *predicted_us(pattern, similar) <= (1 - kWorthIt) * *natural_us)
    std::swap(schedule, similar);
  schedule.prediction.loads_in_other_order = similar.prediction.loads;
}

} // namespace

uint32_t split_begin(uint32_t inner, uint32_t parts, uint32_t part) {
  return static_cast<uint32_t>(uint64_t{inner} * part / parts);
}

SpmmSchedule schedule_spmm(const Matrix& weights, const SpmmProblem& problem, const Target& target,
                           const SpmmTileChoice& given, uint64_t budget) {
  const Pattern& pattern = weights.pattern;
  SpmmSchedule schedule;
  schedule.problem = problem;
  schedule.target = target;
  schedule.rows = pattern.rows;
  schedule.inner = pattern.columns;
  settle_problem(schedule);
  if (given.border && !problem.convolution)
    refuse_tile("border= is for convolutions", "leave border out");
  if (given.dense && given.strategy != Strategy::dense)
    refuse_tile("dense= is for strategy=dense", "leave dense out, or choose strategy=dense");
  if (budget == 0)
    budget = target.is_host ? kDefaultHostBudget : kDefaultGpuBudget;
  SpmmTileChoice choice = given;
  if (stages_unasked(pattern, schedule, given, budget))
    choice.stage = Stage::smem;
  schedule.tile.stage = choice.stage.value_or(Stage::global);
  if (given.border && stages_images(schedule))
    refuse_tile("border= is for images that are not staged",
                "leave border out, or choose stage=global");
  plan_border(pattern, choose_border(pattern, schedule, choice, Strategy::unrolled), schedule);
  const uint32_t vec = choice.vec.value_or(target.is_host ? 1 : choose_gpu_vec(schedule));
  schedule.tile.strategy = choose_strategy(schedule, choice, budget, pattern.nnz(),
                                           unrolled_size(pattern, schedule, vec));
  if (given.order && schedule.tile.strategy != Strategy::unrolled)
    refuse_tile(fmt::format("order= is for unrolled code, not strategy={}",
                            name_of(schedule.tile.strategy)),
                "leave order out, or choose strategy=unrolled");
  if (schedule.tile.strategy != Strategy::unrolled)
    plan_border(pattern, choose_border(pattern, schedule, choice, schedule.tile.strategy),
                schedule);
  if (schedule.problem.convolution && schedule.pixels.interior.empty()) {
    if (choice.vec.value_or(1) != 1)
      schedule.remarks.push_back(
          "all pixels share the border's code, which takes them singly: vec=1");
    choice.vec = 1;
  }
  if (schedule.tile.strategy == Strategy::compressed) {
    schedule_compressed(pattern, choice, schedule);
  } else if (schedule.tile.strategy == Strategy::panels) {
    schedule_panels(pattern, choice, schedule);
  } else if (schedule.tile.strategy == Strategy::bitmap) {
    schedule_bitmap(pattern, choice, schedule);
  } else if (schedule.tile.strategy == Strategy::dense) {
    schedule_dense(pattern, choice, schedule);
  } else {
    choose_tile(schedule, choice, static_cast<double>(pattern.nnz()) / std::max(1u, pattern.rows));
    check_limits(schedule);
    if (problem.columns != 0u)
      deal_rows_by_length(pattern, schedule);
  }
  schedule.prediction = predict_spmm(pattern, schedule);
  if (schedule.tile.strategy == Strategy::unrolled)
    choose_row_order(pattern, choice.order, schedule);
  return schedule;
}

} // namespace sparsertc
