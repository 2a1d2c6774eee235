// The tile of unrolled and streamed code: the user's words first, the rest by what fills the
// machine, and what was left open gives way until it fits.
#include "compiler/inspect/spmm_tile_choice.h"

#include "compiler/inspect/convolution_schedule.h"
#include "compiler/inspect/staged_region.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace sparsertc {
namespace {

/// Warps that keep a large GPU busy: about eight for each of 132 multiprocessors (H200).
constexpr uint64_t kEnoughWarps = 1024;
/// N assumed for decisions when it is only known at launch.
constexpr uint32_t kTypicalColumns = 256;
/// Vector accumulators an x86-64 core can keep in registers beside operands.
constexpr uint32_t kHostAccumulators = 24;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

uint32_t floor_power_of_two(uint32_t n) {
  uint32_t power = 1;
  while (power <= n / 2)
    power *= 2;
  return power;
}

/// Vector accesses need every row of B, C and the residual to start at a multiple of the vector.
bool columns_allow_vector(const SpmmProblem& problem, uint32_t vec) {
  return problem.layout == Layout::row_major && problem.columns && *problem.columns % vec == 0 &&
         !problem.convolution && problem.ldb % vec == 0 && problem.ldc % vec == 0;
}

} // namespace

/// Columns that decisions are made for.
uint32_t typical_columns(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  if (problem.convolution)
    return static_cast<uint32_t>(std::min<uint64_t>(
        problem.convolution->out_pixels() * problem.columns.value_or(1), kMaximumDimension));
  return problem.columns.value_or(schedule.columns_per_n == 1 ? kTypicalColumns
                                                              : schedule.columns_per_n);
}

namespace {

/// Columns a lane computes on the host. A block costs its columns plus about 1.5 for index and
/// value; a block that is only partly inside runs lane by lane.
uint32_t choose_host_vec(uint32_t columns, uint32_t lanes) {
  uint32_t best = 1;
  double best_cost = std::numeric_limits<double>::max();
  for (uint32_t vec = 1; vec <= 8; ++vec) {
    const uint32_t full = columns / (lanes * vec);
    const uint32_t rest = columns - full * lanes * vec;
    const double cost = (full + std::min(lanes, rest)) * (vec + 1.5);
    if (cost < best_cost) {
      best_cost = cost;
      best = vec;
    }
  }
  return best;
}

/// Columns of a lane where blocks take lines of pixels. The last block of a line overlaps the one
/// before it, so a block is never partly outside; but it may not be longer than the line.
uint32_t choose_line_vec(uint32_t length, uint32_t lanes) {
  uint32_t best = 1;
  double best_cost = std::numeric_limits<double>::max();
  for (uint32_t vec = 1; vec <= 8 && (vec == 1 || vec * lanes <= length); ++vec) {
    const double cost = ceil_div(length, lanes * vec) * (vec + 1.5);
    if (cost < best_cost) {
      best_cost = cost;
      best = vec;
    }
  }
  return best;
}

/// Lanes that work on columns, or on the pixels of a line, side by side.
uint32_t choose_host_threads(const SpmmSchedule& schedule, const SpmmTileChoice& choice,
                             uint32_t columns) {
  const uint32_t lanes = std::max(1u, schedule.target.lanes_f32);
  const bool lines = schedule.problem.convolution.has_value();
  if (!schedule.problem.columns && !lines)
    return lanes;
  const uint32_t vec = lines ? choice.vec.value_or(1) : 1;
  return std::min(lanes, floor_power_of_two(std::max(1u, columns / vec)));
}

/// Rows of a task: enough work beside what starting it costs, and enough tasks to balance threads.
uint32_t choose_host_rows(const SpmmSchedule& schedule, double mean_row_length, uint32_t columns) {
  constexpr double kVectorOperations = 8192;
  constexpr uint32_t kTasks = 32;
  const uint32_t blocks = ceil_div(std::max(1u, columns), schedule.columns_per_block());
  uint32_t rows = 8;
  while (rows < 64 && 2 * rows * mean_row_length * schedule.tile.vec <= kVectorOperations &&
         uint64_t{ceil_div(schedule.rows, 2 * rows)} * blocks >= kTasks)
    rows *= 2;
  return rows;
}

void choose_host_tile(SpmmSchedule& schedule, const SpmmTileChoice& choice,
                      double mean_row_length) {
  SpmmTile& tile = schedule.tile;
  const bool lines = schedule.problem.convolution.has_value();
  const uint32_t columns = lines ? host_line_length(schedule) : typical_columns(schedule);
  schedule.threads_x = choose_host_threads(schedule, choice, columns);
  tile.warps = 1;
  tile.groups = 1;
  tile.vec = choice.vec.value_or(lines ? choose_line_vec(columns, schedule.threads_x)
                                       : choose_host_vec(columns, schedule.threads_x));
  // A single sum waits for itself at every entry; parts of a row side by side do not.
  const bool single_sum = schedule.threads_x * tile.vec == 1 && tile.strategy == Strategy::streamed;
  constexpr double kLongRow = 64, kShortRow = 16;
  const uint32_t parts = mean_row_length >= kLongRow ? 4 : mean_row_length >= kShortRow ? 2 : 1;
  tile.cluster = choice.cluster.value_or(1);
  tile.splitk = choice.splitk.value_or(single_sum && tile.cluster == 1 ? parts : 1);
  if (single_sum && !choice.prefetch)
    tile.prefetch = 4;
  const uint32_t fitting = std::max(1u, kHostAccumulators / (tile.vec * tile.parts()));
  const uint32_t possible = std::max(1u, kMostSums / (tile.vec * tile.parts()));
  tile.rows = choice.rows.value_or(
      tile.strategy == Strategy::unrolled
          ? std::min(8u, fitting)
          : std::min(possible, choose_host_rows(schedule, mean_row_length, columns)));
}

} // namespace

/// Columns of a thread: pairs of half-precision numbers where they are aligned.
uint32_t choose_gpu_vec(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const uint32_t columns = typical_columns(schedule);
  const bool half = problem.type == DataType::f16 || problem.type == DataType::bf16;
  return half && columns_allow_vector(problem, 2) && columns > 32 ? 2 : 1;
}

/// How unrolled code for the interior and the border is shared out where nobody says so. Code of
/// its own for the border takes a multiply-add for each weight: as much as code for interior
/// threads of one column, which together would be twice what is needed, half as much beside code
/// for two. What is fetched once is dear (candidate.h), questions about taps are few: with one
/// column a thread all pixels share the border's code. Streamed code is short; there the questions
/// of a row, with few entries under each, are what costs.
BorderCode choose_border(const Pattern& pattern, const SpmmSchedule& schedule,
                         const SpmmTileChoice& choice, Strategy strategy) {
  if (choice.border || !schedule.problem.convolution)
    return choice.border.value_or(BorderCode::own);
  if (!interior_pays(schedule))
    return BorderCode::shared;
  if (strategy != Strategy::unrolled)
    return BorderCode::own;
  uint32_t vec = 1;
  if (choice.vec) {
    vec = *choice.vec;
  } else if (schedule.target.is_host) {
    SpmmSchedule parted = schedule;
    plan_border(pattern, BorderCode::own, parted);
    const uint32_t length = host_line_length(parted);
    vec = choose_line_vec(length, choose_host_threads(parted, choice, length));
  } else {
    vec = choose_gpu_vec(schedule);
  }
  return vec == 1 ? BorderCode::shared : BorderCode::own;
}

namespace {

/// Rows and parts of K such that enough warps are in flight: large tiles reuse loads of B, small
/// ones fill the GPU.
void choose_gpu_tile(SpmmSchedule& schedule, const SpmmTileChoice& choice) {
  SpmmTile& tile = schedule.tile;
  const uint32_t columns = std::max(1u, typical_columns(schedule));
  tile.vec = choice.vec.value_or(choose_gpu_vec(schedule));
  const uint32_t warps_needed = ceil_div(columns, 32ull * tile.vec);
  tile.warps = choice.warps.value_or(std::clamp(floor_power_of_two(warps_needed), 1u, 8u));
  tile.groups = choice.groups.value_or(1);
  const bool streamed = tile.strategy == Strategy::streamed;
  auto warps_in_flight = [&](uint32_t rows, uint32_t splitk) {
    return uint64_t{warps_needed} * ceil_div(std::max(1u, schedule.rows), rows) * splitk;
  };
  const uint32_t most_rows = streamed ? 4 : 32;
  const uint32_t least_rows = streamed ? 1 : 8;
  tile.rows = choice.rows.value_or(most_rows);
  if (!choice.rows)
    while (tile.rows > least_rows && warps_in_flight(tile.rows, 1) < kEnoughWarps)
      tile.rows /= 2;
  tile.splitk = choice.splitk.value_or(1);
  tile.cluster = choice.cluster.value_or(1);
  const bool may_split = !choice.splitk && tile.stage == Stage::global && schedule.inner >= 128;
  if (may_split)
    while (tile.splitk < 4 && warps_in_flight(tile.rows, tile.parts()) < kEnoughWarps)
      tile.splitk *= 2;
  schedule.threads_x = 32 * tile.warps;
}

} // namespace

/// A pass of copies by all threads covers whole rows of B; a chunk is a whole number of passes.
void round_chunk(SpmmSchedule& schedule) {
  SpmmTile& tile = schedule.tile;
  if (stages_images(schedule)) { // parts of K share the channels of a chunk
    tile.chunk = ceil_div(tile.chunk, tile.splitk) * tile.splitk;
    return;
  }
  const uint32_t row_bytes = schedule.columns_per_block() * element_bytes(schedule.problem.type);
  const uint32_t rows_a_pass =
      schedule.threads_x * tile.groups * staging_piece_bytes(schedule) / row_bytes;
  tile.chunk = ceil_div(tile.chunk, rows_a_pass) * rows_a_pass;
}

/// Groups that can share the pieces of a row of B evenly.
uint32_t groups_for_staging(const SpmmSchedule& schedule) {
  const uint32_t piece = staging_piece_bytes(schedule);
  if (piece == 0 || stages_images(schedule))
    return 1;
  const uint32_t row_bytes = schedule.columns_per_block() * element_bytes(schedule.problem.type);
  const uint32_t pieces = row_bytes / piece;
  return pieces / std::gcd(schedule.threads_x, pieces);
}

/// Groups that exchange partial sums inside of a block wait for each other alone.
bool meets_at_named_barriers(const SpmmTile& tile) {
  return tile.splitk > 1 && tile.cluster == 1;
}

bool fits(SpmmSchedule schedule) {
  const SpmmTile& tile = schedule.tile;
  if (schedule.threads_x * tile.groups * tile.splitk > kMostThreadsOfBlock)
    return false;
  if (meets_at_named_barriers(tile) && tile.groups > kNamedBarriers)
    return false;
  const bool can_stage = staging_piece_bytes(schedule) != 0 && // else it is refused later
                         tile.groups % groups_for_staging(schedule) == 0;
  if (tile.stage == Stage::smem && can_stage)
    round_chunk(schedule);
  return shared_bytes(schedule) <= schedule.target.shared_bytes_per_block;
}

namespace {

/// What the user left open gives way, in this order, until the tile fits the target.
void fit_gpu_tile(SpmmSchedule& schedule, const SpmmTileChoice& choice) {
  SpmmTile& tile = schedule.tile;
  const bool staged = tile.stage == Stage::smem;
  if (staged && !choice.groups)
    tile.groups = groups_for_staging(schedule);
  const auto halve = [&](uint32_t SpmmTile::*word, bool may_change, uint32_t least) {
    while (may_change && tile.*word / 2 >= least && !fits(schedule)) {
      tile.*word /= 2;
      schedule.threads_x = 32 * tile.warps;
    }
  };
  halve(&SpmmTile::splitk, !choice.splitk, 1);
  halve(&SpmmTile::chunk, staged && !choice.chunk, 1);
  while (staged && !choice.prefetch && tile.prefetch > kLeastChunks && !fits(schedule))
    --tile.prefetch;
  halve(&SpmmTile::warps, !choice.warps, 1);
  halve(&SpmmTile::rows, !choice.rows, 1);
}

} // namespace

void choose_tile(SpmmSchedule& schedule, const SpmmTileChoice& choice, double mean_row_length) {
  SpmmTile& tile = schedule.tile;
  const SpmmProblem& problem = schedule.problem;
  tile.stage = choice.stage.value_or(Stage::global);
  tile.weights = choice.weights.value_or(WeightOperand::immediate);
  const bool images = stages_images(schedule);
  tile.chunk = choice.chunk.value_or(images ? 16 : 32);
  tile.prefetch = choice.prefetch.value_or(tile.stage != Stage::smem ? 8 : images ? 2 : 3);
  if (schedule.target.is_host) {
    choose_host_tile(schedule, choice, mean_row_length);
  } else {
    choose_gpu_tile(schedule, choice);
    fit_gpu_tile(schedule, choice);
  }
  schedule.neighbouring_columns =
      !schedule.target.is_host && tile.vec > 1 && (tile.vec & (tile.vec - 1)) == 0 &&
      columns_allow_vector(problem, tile.vec) && tile.vec * element_bytes(problem.type) <= 16;
  add_ranges(schedule);
}

} // namespace sparsertc
