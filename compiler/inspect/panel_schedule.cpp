#include "compiler/inspect/panel_schedule.h"

#include "compiler/inspect/tile_refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

constexpr uint32_t kWarp = 32, kThreadsPerBlock = 1024;
/// Sums a thread, beside which steps of A have room in its registers; of split f32 these are three
/// times as long.
constexpr uint32_t kMostSums = 128, kMostSplitSums = 64;
constexpr uint32_t kLeastInFlight = 2, kUsualInFlight = 3, kMostInFlight = 8;
/// Above so many sums a thread, so many warps of a block have all of a multiprocessor's registers.
constexpr uint32_t kFewSums = 64, kWarpsOfManySums = 8, kWarpsOfFewSums = 16;
/// Columns of A from which on a part is worth having.
constexpr uint32_t kLeastPart = 64, kMostParts = 4;
/// Split f32 is split a round ahead.
constexpr uint32_t kSplitInFlight = 2;
constexpr uint32_t kPieceBytes = 16;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

bool is_tf32(const SpmmSchedule& schedule) {
  return panel_operands(schedule.problem).is_tf32();
}
bool is_split(const SpmmSchedule& schedule) {
  return panel_operands(schedule.problem).is_split();
}
uint32_t most_sums(const SpmmSchedule& schedule) {
  return is_split(schedule) ? kMostSplitSums : kMostSums;
}

uint32_t staged_pitch(const SpmmSchedule& schedule) {
  const PanelOperands operands = panel_operands(schedule.problem);
  return schedule.columns_per_block() * element_bytes(operands.type) * operands.parts +
         (operands.is_tf32() ? 32 : 16);
}

void check_problem(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  if (schedule.target.is_host)
    refuse_tile("strategy=panels is for GPUs: a CPU has no tensor cores",
                "choose strategy=streamed or unrolled");
  if (problem.convolution)
    refuse_tile(
        "strategy=panels is for products of matrices, and for convolutions that are one (1x1, "
        "stride 1; NCHW: one image)",
        "choose strategy=streamed or unrolled");
  if (problem.type == DataType::f64 || problem.half_terms != 0)
    refuse_tile("strategy=panels has sums in f32 of f16, bf16 or f32",
                "choose another --dtype without --half-terms, or strategy=streamed");
  if (problem.nonfinite != Nonfinite::dense)
    refuse_tile(
        "strategy=panels multiplies padding, so that NaN and infinity in B also reach rows that "
        "have no entry there",
        "give --nonfinite=dense if that will do, or choose strategy=unrolled");
  if (!problem.columns)
    refuse_tile("strategy=panels needs a fixed number of columns",
                "give -n, or choose strategy=unrolled");
}

void check_words(const SpmmTileChoice& choice, const SpmmSchedule& schedule) {
  const auto is_one_of = [](const std::optional<uint32_t>& word, uint32_t least, uint32_t most) {
    return !word || (std::has_single_bit(*word) && *word >= least && *word <= most);
  };
  if (!is_one_of(choice.rows, 16, 64) || !is_one_of(choice.vec, 1, 4) ||
      !is_one_of(choice.warps, 1, 32) || !is_one_of(choice.groups, 1, 32))
    refuse_tile(
        "strategy=panels takes rows=16, 32 or 64, vec=1, 2 or 4, and powers of two for warps and "
        "groups",
        "choose one of these");
  if (choice.prefetch && (*choice.prefetch < kLeastInFlight || *choice.prefetch > kMostInFlight))
    refuse_tile(fmt::format("strategy=panels has from {} to {} rounds of B in shared memory",
                            kLeastInFlight, kMostInFlight),
                "choose prefetch=3");
  if (is_split(schedule) && choice.prefetch.value_or(kSplitInFlight) != kSplitInFlight)
    refuse_tile("strategy=panels has two rounds of split f32 in shared memory",
                "choose prefetch=2");
  if (!is_one_of(choice.splitk, 1, kMostParts))
    refuse_tile("strategy=panels has 1, 2 or 4 parts of K", "choose splitk=1, 2 or 4");
  if (!is_one_of(choice.chunk, choice.splitk.value_or(1), PanelShape::kMostStepsOfRound))
    refuse_tile("strategy=panels has 1, 2 or 4 steps in a round, at least one for each part of K",
                "choose chunk=4");
  if (choice.cluster.value_or(1) != 1 || choice.stage.value_or(Stage::global) != Stage::global ||
      choice.weights.value_or(WeightOperand::immediate) != WeightOperand::immediate)
    refuse_tile("strategy=panels has no clusters or stage, and no weights but its stream",
                "leave cluster, stage and weights out");
}

/// A part of the slots over the columns that a panel with rows like these may need: its columns,
/// and room for its longest row.
double slots_of_panel(const Pattern& pattern, std::span<const uint32_t> rows) {
  constexpr double kSlack = 1.06, kSlotsOfEntry = 2;
  std::vector<bool> met(pattern.columns);
  size_t longest = 0;
  for (const uint32_t row : rows) {
    longest = std::max(longest, pattern.row(row).size());
    for (const uint32_t column : pattern.row(row))
      met[column] = true;
  }
  const auto used = static_cast<double>(std::count(met.begin(), met.end(), true));
  return kSlack * std::max(used, kSlotsOfEntry * static_cast<double>(longest)) /
         std::max(1u, pattern.columns);
}

/// Tries the words that are not given; the least predicted time wins, among equals the first.
class TileSearch {
public:
  TileSearch(const Pattern& pattern, const SpmmTileChoice& choice, const SpmmSchedule& schedule)
      : pattern_(pattern), choice_(choice), schedule_(schedule) {}

  SpmmTile best() {
    best_.rows = choice_.rows.value_or(16);
    best_.vec = choice_.vec.value_or(1);
    best_.warps = choice_.warps.value_or(1);
    best_.groups = choice_.groups.value_or(1);
    best_.splitk = choice_.splitk.value_or(1);
    for (const uint32_t rows : words(choice_.rows, {64, 32, 16})) {
      schedule_.tile.rows = rows;
      schedule_.row_order.clear();
      schedule_.tile_begin = {0};
      deal_rows_by_length(pattern_, schedule_);
      // The first panel has the longest row.
      const std::span<const uint32_t> first(
          schedule_.row_order.data(), schedule_.tile_count() == 0 ? 0 : schedule_.tile_begin[1]);
      slots_ = slots_of_panel(pattern_, first);
      for (const uint32_t vec : words(choice_.vec, {2, 1, 4}))
        for (const uint32_t warps : words(choice_.warps, {1}))
          for (const uint32_t groups : words(choice_.groups, {4, 8, 2, 1, 16}))
            for (const uint32_t splitk : words(choice_.splitk, {1, 2, 4}))
              consider(vec, warps, groups, splitk);
    }
    return best_;
  }

private:
  static std::vector<uint32_t> words(const std::optional<uint32_t>& given,
                                     std::vector<uint32_t> all) {
    return given ? std::vector<uint32_t>{*given} : std::move(all);
  }

  void consider(uint32_t vec, uint32_t warps, uint32_t groups, uint32_t splitk) {
    SpmmTile& tile = schedule_.tile;
    tile.vec = vec;
    tile.warps = warps;
    tile.groups = groups;
    tile.splitk = splitk;
    if (is_too_large() || is_wasted())
      return;
    schedule_.threads_x = kWarp * warps;
    const double steps = std::ceil(slots_ * schedule_.inner / slots_of_step());
    schedule_.panels.steps = static_cast<uint32_t>(std::ceil(steps / splitk) * splitk);
    const double us = panel_us(panel_launch(schedule_, *schedule_.problem.columns));
    if (found_ && us >= least_us_)
      return;
    found_ = true;
    least_us_ = us;
    best_ = tile;
  }
  double slots_of_step() const { return is_tf32(schedule_) ? 16 : 32; }

  bool is_too_large() const {
    const SpmmTile& tile = schedule_.tile;
    const uint32_t sums = tile.rows * tile.vec, warps = tile.warps * tile.groups * tile.splitk;
    const uint64_t exchange =
        tile.splitk == 1 ? 0 : uint64_t{warps} * panel_exchange(schedule_).warp_bytes;
    return sums > most_sums(schedule_) ||
           warps > (sums > kFewSums ? kWarpsOfManySums : kWarpsOfFewSums) ||
           exchange > schedule_.target.shared_bytes_per_block ||
           (choice_.chunk && tile.splitk > *choice_.chunk);
  }
  /// Of what a word asks for that is not given less than half is needed.
  bool is_wasted() const {
    const SpmmTile& tile = schedule_.tile;
    return (!choice_.vec && tile.vec > 1 &&
            kWarp * tile.vec * tile.warps / 2 >= *schedule_.problem.columns) ||
           (!choice_.groups && tile.groups > 1 && tile.rows * tile.groups / 2 >= schedule_.rows) ||
           (!choice_.splitk && tile.splitk > 1 && schedule_.inner < kLeastPart * tile.splitk);
  }

  const Pattern& pattern_;
  const SpmmTileChoice& choice_;
  SpmmSchedule schedule_;
  double slots_ = 0, least_us_ = 0;
  bool found_ = false;
  SpmmTile best_; ///< of what is given, where nothing that is tried will do
};

void choose_tile(const Pattern& pattern, const SpmmTileChoice& choice, SpmmSchedule& schedule) {
  const SpmmTile best = TileSearch(pattern, choice, schedule).best();
  SpmmTile& tile = schedule.tile;
  tile.rows = best.rows;
  tile.vec = best.vec;
  tile.warps = best.warps;
  tile.groups = best.groups;
  tile.splitk = best.splitk;
  tile.chunk = choice.chunk.value_or(PanelShape::kMostStepsOfRound);
  if (tile.rows * tile.vec > most_sums(schedule))
    refuse_tile(fmt::format("rows={} and vec={} need {} sums a thread, at most {} are possible",
                            tile.rows, tile.vec, tile.rows * tile.vec, most_sums(schedule)),
                "choose fewer rows or columns a thread");
  schedule.threads_x = kWarp * tile.warps;
  const uint32_t threads = schedule.threads_x * tile.groups * tile.splitk;
  if (threads > kThreadsPerBlock)
    refuse_tile(
        fmt::format("warps={}, groups={}, splitk={} make {} threads a block, at most {} fit",
                    tile.warps, tile.groups, tile.splitk, threads, kThreadsPerBlock),
        "choose fewer warps, groups or parts of K");
}

PanelShape shape_of(const Pattern& pattern, const SpmmSchedule& schedule) {
  PanelShape shape;
  shape.rows = schedule.tile.rows;
  shape.group = is_tf32(schedule) ? 2 : 4;
  shape.parts = schedule.tile.splitk;
  shape.steps_of_round = schedule.tile.chunk;
  // Half as many columns again as a round takes, where some are empty; with as many as a window
  // has on their way, which is the most, they have to fit.
  const double positions = std::max(1.0, double(pattern.rows) * pattern.columns);
  const double density = static_cast<double>(pattern.nnz()) / positions;
  const double used = std::max(0.1, 1 - std::pow(1 - density, shape.rows));
  const uint32_t slots = shape.slots_of_round();
  const uint32_t wanted = std::max(2 * slots, static_cast<uint32_t>(1.5 * slots / used));
  // A row of split f32 has its place before it is split, too.
  const uint32_t before = is_split(schedule) ? schedule.columns_per_block() * 4 : 0;
  const auto fitting = static_cast<uint32_t>(schedule.target.shared_bytes_per_block /
                                             (2 * staged_pitch(schedule) + before));
  shape.window = std::max(slots, std::min(wanted, fitting) / 8 * 8);
  return shape;
}

void fit_block(const SpmmTileChoice& choice, SpmmSchedule& schedule) {
  SpmmTile& tile = schedule.tile;
  const auto fits = [&] {
    return panel_shared_bytes(schedule) <= schedule.target.shared_bytes_per_block;
  };
  tile.prefetch = choice.prefetch.value_or(is_split(schedule) ? kSplitInFlight : kUsualInFlight);
  while (!choice.prefetch && tile.prefetch > kLeastInFlight && !fits())
    --tile.prefetch;
  while (!choice.warps && tile.warps > 1 && !fits()) {
    tile.warps /= 2;
    schedule.threads_x = kWarp * tile.warps;
  }
  if (!fits())
    refuse_tile(fmt::format("strategy=panels would stage {} bytes of B, {} has {} a block",
                            panel_shared_bytes(schedule), schedule.target.name,
                            schedule.target.shared_bytes_per_block),
                "choose fewer warps, columns a thread or rounds in flight");
}

} // namespace

PanelOperands panel_operands(const SpmmProblem& problem) {
  if (problem.type == DataType::f32 && problem.precision == Precision::full)
    return {DataType::bf16, 3};
  return {problem.type, 1};
}

uint32_t panel_steps_ahead(const SpmmProblem& problem) {
  return panel_operands(problem).is_split() ? 1 : 3;
}

PanelStep panel_step(const SpmmSchedule& schedule) {
  constexpr uint32_t kLine = 128;
  const uint32_t parts = panel_operands(schedule.problem).parts;
  PanelStep step;
  step.fragments = schedule.tile.rows / 16;
  step.metadata_words = (step.fragments + 1) / 2;
  step.metadata_offset = parts * step.fragments * kWarp * 16;
  step.places_offset = step.metadata_offset + step.metadata_words * kWarp * 4;
  const uint32_t end = step.places_offset + 4 * schedule.panels.shape.slots_of_step();
  step.bytes = ceil_div(end, kLine) * kLine;
  return step;
}

PanelStaging panel_staging(const SpmmSchedule& schedule) {
  const PanelPacking& packing = schedule.panels;
  PanelStaging staging;
  const uint32_t rows = packing.shape.window + (schedule.tile.prefetch - 1) * packing.advance;
  // A multiple of 8, so that columns modulo 8 are places modulo 8.
  staging.rows = (std::min(rows, std::max(1u, schedule.inner)) + 7) / 8 * 8;
  staging.pitch = staged_pitch(schedule);
  return staging;
}

uint64_t panel_raw_bytes(const SpmmSchedule& schedule) {
  const uint32_t piece = panel_copy_bytes(schedule);
  if (!is_split(schedule) || piece == 0)
    return 0;
  const uint32_t threads = schedule.threads_x * schedule.tile.groups * schedule.tile.splitk;
  const uint32_t pieces = schedule.columns_per_block() * element_bytes(DataType::f32) / piece;
  return uint64_t{ceil_div(schedule.panels.advance, threads / pieces)} * threads * piece;
}

PanelExchange panel_exchange(const SpmmSchedule& schedule) {
  // Eight words more: lanes store pairs of four rows at a time.
  constexpr uint32_t kWord = 4, kMore = 8;
  PanelExchange exchange;
  exchange.pitch = (kWarp * schedule.tile.vec + kMore) * kWord;
  exchange.warp_bytes = schedule.tile.rows * exchange.pitch;
  return exchange;
}

uint64_t panel_shared_bytes(const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  const uint64_t exchange = tile.splitk == 1 ? 0
                                             : uint64_t{tile.warps} * tile.groups * tile.splitk *
                                                   panel_exchange(schedule).warp_bytes;
  return std::max(panel_staging(schedule).bytes(), exchange) + panel_raw_bytes(schedule);
}

uint32_t panel_copy_bytes(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const uint32_t size = element_bytes(problem.type);
  // Asynchronous copies fill up with zeros what is beyond N; others have whole pieces.
  const bool fits = !is_split(schedule) || *problem.columns * size % kPieceBytes == 0;
  return problem.layout == Layout::row_major && problem.ldb * size % kPieceBytes == 0 && fits
             ? kPieceBytes
             : 0;
}

uint32_t panel_store_columns(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  if (problem.layout != Layout::row_major)
    return 1;
  for (const uint32_t together : {4u, 2u})
    if (*problem.columns % together == 0 && problem.ldc % together == 0)
      return together;
  return 1;
}

PanelLaunch panel_launch(const SpmmSchedule& schedule, double columns) {
  PanelLaunch launch;
  launch.rows = schedule.rows;
  launch.inner = schedule.inner;
  launch.columns = columns;
  launch.element_bytes = element_bytes(schedule.problem.type);
  launch.operand_parts = panel_operands(schedule.problem).parts;
  launch.panel_rows = schedule.tile.rows;
  launch.vec = schedule.tile.vec;
  launch.warps = schedule.tile.warps;
  launch.groups = schedule.tile.groups;
  launch.splitk = schedule.tile.splitk;
  launch.steps = schedule.panels.steps;
  return launch;
}

SpmmPrediction predict_panels(const SpmmSchedule& schedule) {
  // Instructions of the kernel besides steps and the stores of sums, and for each of these.
  constexpr uint64_t kAround = 400, kOfStep = 40, kOfSum = 4;
  const PanelPacking& packing = schedule.panels;
  const PanelStep step = panel_step(schedule);
  const uint64_t blocks = 4 * schedule.tile.vec; // of 8 columns
  const uint64_t round = packing.shape.steps_of_round;
  SpmmPrediction prediction;
  const uint64_t parts = panel_operands(schedule.problem).parts;
  prediction.multiply_adds = round * step.fragments * blocks * parts * (parts + 1) / 2;
  prediction.loads = round * blocks * parts;
  prediction.instructions = kAround + round * kOfStep + prediction.multiply_adds +
                            prediction.loads + kOfSum * schedule.tile.rows * schedule.tile.vec;
  prediction.code_bytes = 16 * prediction.instructions;
  prediction.data_bytes = uint64_t{schedule.tile_count()} *
                          (uint64_t{packing.steps} * step.bytes + 4 * schedule.tile.rows);
  return prediction;
}

PanelError panel_error(const SpmmProblem& problem, uint64_t entries, double largest) {
  // Products are exact. Tensor cores add blocks of them to a sum and cut every addend, and the new
  // sum, below 24 bits of the largest of them; zeros lose nothing. At worst each entry has a block
  // of its own: one product, the sum before, the sum after.
  const auto count = static_cast<double>(entries);
  PanelError error;
  if (panel_operands(problem).is_split()) {
    // A step's sum begins at zero and is cut, those of the steps are rounded (README.md).
    constexpr double kEntriesOfStep = 16;
    error.terms = count + 7 * std::min(count, kEntriesOfStep) + 4;
    error.unit = 0x1p-24;
    error.operands = 0x1p-22 + 0x1p-31;
    error.least = std::max(0x1p-121, largest * 0x1p-133);
    return error;
  }
  error.terms = 3 * count + 2;
  error.unit = 0x1p-23;
  if (problem.type == DataType::f32) // weights to nearest, B toward zero
    error.operands = 0x1p-11 + 0x1p-10 + 0x1p-21;
  error.least = 0x1p-126;
  return error;
}

void schedule_panels(const Pattern& pattern, const SpmmTileChoice& choice, SpmmSchedule& schedule) {
  check_problem(schedule);
  check_words(choice, schedule);
  const SpmmProblem& problem = schedule.problem;
  choose_tile(pattern, choice, schedule);
  if (*problem.columns != 0)
    deal_rows_by_length(pattern, schedule);
  schedule.panels =
      pack_panels(pattern, schedule.row_order, schedule.tile_begin, shape_of(pattern, schedule));
  fit_block(choice, schedule);
  schedule.ranges.push_back({{1, schedule.columns_per_block()}, false, {}});
  schedule.guarded = *problem.columns % schedule.columns_per_block() != 0;
  schedule.neighbouring_columns = panel_store_columns(schedule) > 1;
  schedule.remarks.push_back(
      "panels multiply padding: NaN and infinity in B may reach rows without an entry there "
      "(--nonfinite=dense allows it)");
  if (is_tf32(schedule))
    schedule.remarks.push_back("products are of operands with 10 bits of the fraction "
                               "(--precision=tf32 allows it)");
  if (is_split(schedule))
    schedule.remarks.push_back("products are of f32 in three parts of bf16: infinity in B becomes "
                               "NaN (--nonfinite=dense allows it)");
}

} // namespace sparsertc
