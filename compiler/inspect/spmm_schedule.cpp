// Chooses strategy, tile and rows of each tile for an SpMM:
//
//   check the problem -> strategy (by budget) -> tile (user's words first) -> limits of the target
//   -> rows to tiles -> prediction
#include "compiler/inspect/spmm_schedule.h"

#include "compiler/inspect/compressed_schedule.h"
#include "compiler/inspect/convolution_schedule.h"
#include "compiler/inspect/panel_schedule.h"
#include "compiler/inspect/staged_region.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace sparsertc {
namespace {

constexpr uint32_t kThreadsPerBlock = 1024;
constexpr uint32_t kNamedBarriers = 15;
/// Warps that keep a large GPU busy: about eight for each of 132 multiprocessors (H200).
constexpr uint64_t kEnoughWarps = 1024;
/// N assumed for decisions when it is only known at launch.
constexpr uint32_t kTypicalColumns = 256;
/// Vector accumulators an x86-64 core can keep in registers beside operands.
constexpr uint32_t kHostAccumulators = 24;
/// A thread's: beyond, neither a GPU's registers nor a compiler's patience suffices.
constexpr uint32_t kMostSums = 512;
/// Compute capability.
constexpr uint32_t kFirstWithClusters = 90;
/// Chunks of B in flight that staging needs at least.
constexpr uint32_t kLeastChunks = 2;
/// Bytes of the smallest asynchronous copy.
constexpr uint32_t kLeastCopy = 4;
/// Elements of a channel that a thread copies: each has a pointer.
constexpr uint32_t kMostPasses = 16;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

uint32_t floor_power_of_two(uint32_t n) {
  uint32_t power = 1;
  while (power <= n / 2)
    power *= 2;
  return power;
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
         !choice.border;
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

// ---- tile ----

/// Vector accesses need every row of B, C and the residual to start at a multiple of the vector.
bool columns_allow_vector(const SpmmProblem& problem, uint32_t vec) {
  return problem.layout == Layout::row_major && problem.columns && *problem.columns % vec == 0 &&
         !problem.convolution && problem.ldb % vec == 0 && problem.ldc % vec == 0;
}

/// Columns that decisions are made for.
uint32_t typical_columns(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  if (problem.convolution)
    return static_cast<uint32_t>(std::min<uint64_t>(
        problem.convolution->out_pixels() * problem.columns.value_or(1), kMaximumDimension));
  return problem.columns.value_or(schedule.columns_per_n == 1 ? kTypicalColumns
                                                              : schedule.columns_per_n);
}

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
  if (schedule.threads_x * tile.groups * tile.splitk > kThreadsPerBlock)
    return false;
  if (meets_at_named_barriers(tile) && tile.groups > kNamedBarriers)
    return false;
  const bool can_stage = staging_piece_bytes(schedule) != 0 && // else it is refused later
                         tile.groups % groups_for_staging(schedule) == 0;
  if (tile.stage == Stage::smem && can_stage)
    round_chunk(schedule);
  return shared_bytes(schedule) <= schedule.target.shared_bytes_per_block;
}

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

// ---- limits ----

[[noreturn]] void refuse(const std::string& message, const std::string& way_out) {
  throw UsageError("--tile: " + message, way_out);
}

void check_staging(const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  const SpmmProblem& problem = schedule.problem;
  if (tile.strategy != Strategy::unrolled)
    refuse("stage=smem needs strategy=unrolled", "leave stage out, or choose strategy=unrolled");
  if (tile.splitk != 1 && !problem.convolution)
    refuse("stage=smem and splitk cannot go together", "choose splitk=1 or stage=global");
  if (tile.cluster != 1)
    refuse("stage=smem and cluster cannot go together", "choose cluster=1 or stage=global");
  if (problem.layout != Layout::row_major && !problem.convolution)
    refuse("stage=smem needs row-major B", "choose stage=global or --layout=row");
  if (problem.layout != Layout::row_major && element_bytes(problem.type) < kLeastCopy)
    refuse(fmt::format("stage=smem of {} needs images in NCHW: those in NHWC are copied by single "
                       "elements of at least 4 bytes",
                       name_of(problem.type)),
           "choose stage=global, --layout=nchw or --dtype=f32");
  if (tile.prefetch < kLeastChunks)
    refuse("stage=smem needs at least two chunks in flight", "choose prefetch=2 or more");
  const uint32_t piece = staging_piece_bytes(schedule);
  if (piece == 0)
    refuse(fmt::format("stage=smem copies at least 4 aligned bytes at a time, which {} or ldb of "
                       "this problem do not allow",
                       problem.convolution ? "the width of the images" : "N"),
           fmt::format("choose stage=global, or pad {} and ldb to a multiple of 4 bytes",
                       problem.convolution ? "the images" : "N"));
  if (stages_images(schedule)) {
    if (staged_region(schedule).passes > kMostPasses)
      refuse(fmt::format("stage=smem: {} threads would copy {} elements each of a channel",
                         copying_threads(schedule), staged_region(schedule).passes),
             "choose more groups, or a smaller vec");
    return;
  }
  const uint32_t pieces = schedule.columns_per_block() * element_bytes(problem.type) / piece;
  if (tile.groups % groups_for_staging(schedule) != 0)
    refuse(fmt::format("stage=smem: {} threads cannot share {} pieces of a row evenly",
                       schedule.threads_x * tile.groups, pieces),
           fmt::format("choose groups a multiple of {}, or a smaller vec",
                       groups_for_staging(schedule)));
}

void check_limits(SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  const Target& target = schedule.target;
  const uint32_t parts_of_thread = target.is_host ? std::max(1u, tile.parts()) : 1;
  const uint64_t sums = uint64_t{tile.rows} * tile.vec * parts_of_thread;
  if (sums > kMostSums)
    refuse(fmt::format("rows={} and vec={}{} need {} sums a thread, at most {} are possible",
                       tile.rows, tile.vec,
                       parts_of_thread > 1 ? fmt::format(" in {} parts of K", parts_of_thread) : "",
                       sums, kMostSums),
           "choose fewer rows, columns a thread or parts");
  if (schedule.problem.half_terms != 0 && schedule.problem.half_terms > 64)
    throw UsageError("half-precision sums over more than 64 terms are not offered",
                     "choose --half-terms from 1 to 64");
  if (tile.strategy == Strategy::streamed && tile.weights == WeightOperand::constant_bank)
    refuse("strategy=streamed keeps its weights in memory, not in the constant bank",
           "leave weights out, or choose strategy=unrolled");
  if ((tile.cluster & (tile.cluster - 1)) != 0)
    refuse(fmt::format("there are no clusters of {} blocks", tile.cluster),
           "choose cluster=1, 2, 4 or 8");
  if (target.is_host) {
    if (tile.stage == Stage::smem)
      refuse("stage=smem is for GPUs", "leave stage out");
    return;
  }
  if (tile.cluster > 1 && target.compute_capability < kFirstWithClusters)
    refuse(fmt::format("cluster={}: {} has no clusters of blocks", tile.cluster, target.name),
           "choose cluster=1 and splitk for parts of K, or sm_90 or newer as target");
  const uint32_t threads = schedule.threads_x * tile.groups * tile.splitk;
  if (threads > kThreadsPerBlock)
    refuse(fmt::format("warps={}, groups={}, splitk={} make {} threads a block, at most {} fit",
                       tile.warps, tile.groups, tile.splitk, threads, kThreadsPerBlock),
           "choose fewer warps, groups or parts");
  if (meets_at_named_barriers(tile) && tile.groups > kNamedBarriers)
    refuse("splitk allows at most 15 groups", "choose fewer groups");
  if (tile.stage == Stage::smem) {
    check_staging(schedule);
    round_chunk(schedule);
  }
  const uint64_t shared = shared_bytes(schedule);
  if (shared > target.shared_bytes_per_block)
    refuse(fmt::format("the tile needs {} bytes of shared memory, {} has {} a block", shared,
                       target.name, target.shared_bytes_per_block),
           tile.stage == Stage::smem ? "choose a smaller chunk, prefetch, vec or fewer warps"
                                     : "choose fewer rows, warps, groups or parts");
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

uint32_t split_begin(uint32_t inner, uint32_t parts, uint32_t part) {
  return static_cast<uint32_t>(uint64_t{inner} * part / parts);
}

uint32_t staging_piece_bytes(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const uint32_t size = element_bytes(problem.type);
  if (problem.convolution) { // padding shifts the rows of images: elements, or pairs of halves
    const uint32_t elements = size < kLeastCopy ? kLeastCopy / size : 1;
    const bool whole =
        problem.layout == Layout::row_major
            ? problem.convolution->width % elements == 0 && problem.ldb % elements == 0
            : elements == 1;
    return whole ? elements * size : 0;
  }
  for (uint32_t piece : {16u, 8u, kLeastCopy}) {
    if (piece < size)
      break;
    const uint32_t elements = piece / size;
    if (elements == 1 || (problem.columns && *problem.columns % elements == 0 &&
                          problem.ldb % elements == 0 && *problem.columns > 0))
      return piece;
  }
  return 0;
}

uint64_t shared_bytes(const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  if (schedule.target.is_host)
    return 0;
  if (tile.strategy == Strategy::compressed)
    return staged_bytes(schedule) + in_flight_bytes(schedule) + partial_bytes(schedule);
  if (tile.strategy == Strategy::panels)
    return panel_staging(schedule).bytes();
  return staging_bytes(schedule) + exchange_bytes(schedule);
}

uint64_t staging_bytes(const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  if (stages_images(schedule))
    return staging_piece_bytes(schedule) == 0 ? 0 : staged_region_bytes(schedule);
  if (tile.stage == Stage::smem)
    return uint64_t{tile.prefetch} * tile.chunk * schedule.columns_per_block() *
           element_bytes(schedule.problem.type);
  return 0;
}

uint64_t exchange_bytes(const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  if (tile.parts() == 1)
    return 0;
  return uint64_t{tile.groups} * tile.splitk * tile.rows * schedule.columns_per_block() *
         ir::size_in_bytes(accumulator_scalar(schedule.problem.type));
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
    refuse("border= is for convolutions", "leave border out");
  if (budget == 0)
    budget = target.is_host ? kDefaultHostBudget : kDefaultGpuBudget;
  SpmmTileChoice choice = given;
  if (stages_unasked(pattern, schedule, given, budget))
    choice.stage = Stage::smem;
  schedule.tile.stage = choice.stage.value_or(Stage::global);
  if (given.border && stages_images(schedule))
    refuse("border= is for images that are not staged", "leave border out, or choose stage=global");
  plan_border(pattern, choose_border(pattern, schedule, choice, Strategy::unrolled), schedule);
  const uint32_t vec = choice.vec.value_or(target.is_host ? 1 : choose_gpu_vec(schedule));
  schedule.tile.strategy = choose_strategy(schedule, choice, budget, pattern.nnz(),
                                           unrolled_size(pattern, schedule, vec));
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
  } else {
    choose_tile(schedule, choice, static_cast<double>(pattern.nnz()) / std::max(1u, pattern.rows));
    check_limits(schedule);
    if (problem.columns != 0u)
      deal_rows_by_length(pattern, schedule);
  }
  schedule.prediction = predict_spmm(pattern, schedule);
  return schedule;
}

} // namespace sparsertc
