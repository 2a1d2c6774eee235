#include "compiler/inspect/compressed_schedule.h"

#include "compiler/inspect/blocks_at_once.h"
#include "compiler/inspect/tile_refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace sparsertc {
namespace {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kThreadsPerBlock = 1024;
constexpr uint32_t kVectorBytes = 16, kLanesTogether = 8;
constexpr uint32_t kLeastInFlight = 2, kMostInFlight = 16;
/// Bytes of steps in flight that a block takes by itself: with twice as many a kernel took 0.4 to
/// 1.9 us longer on an H200 (4096x4096, 11008x4096, 4096x11008; one column).
constexpr uint32_t kEnoughInFlight = 64 * 1024;
/// Threads of a block that hide the latency of staging (half as many where several share a part, as
/// measured), and entries that a part has at least.
constexpr uint32_t kEnoughThreads = 512;
constexpr uint64_t kLeastEntriesOfPart = kCompressedStep;
/// Columns of a block up to which B is staged in the accumulating type: the loads are narrower than
/// a bank, so the conversions would be all that is saved.
constexpr uint32_t kMostWideColumns = 2;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

uint32_t staged_element_bytes(const SpmmSchedule& schedule) {
  return schedule.stream.staged_wide ? ir::size_in_bytes(accumulator_scalar(schedule.problem.type))
                                     : element_bytes(schedule.problem.type);
}

/// Columns of a lane and of a block, for `columns` of a block.
void set_columns(SpmmSchedule& schedule, const SpmmTileChoice& choice, uint32_t columns) {
  const uint32_t widest = kVectorBytes / element_bytes(schedule.problem.type);
  schedule.tile.vec = std::min(choice.vec.value_or(widest), columns);
  CompressedStream& stream = schedule.stream;
  stream.columns_per_block = columns;
  stream.lanes_per_part = columns / schedule.tile.vec;
  stream.staged_wide = columns <= kMostWideColumns;
}

void set_rows(SpmmSchedule& schedule, uint32_t rows, uint32_t parts) {
  CompressedStream& stream = schedule.stream;
  SpmmTile& tile = schedule.tile;
  stream.parts = tile.splitk = parts;
  stream.rows_per_warp = kWarp / (parts * stream.lanes_per_part);
  tile.warps = ceil_div(rows, stream.rows_per_warp);
  tile.rows = tile.warps * stream.rows_per_warp;
  schedule.threads_x = kWarp * tile.warps;
  // A warp's loads of 16 bytes are served eight lanes at a time.
  const uint32_t bytes = tile.vec * staged_element_bytes(schedule);
  stream.parts_together =
      bytes == kVectorBytes ? std::max(1u, kLanesTogether / stream.lanes_per_part) : 1;
}

/// The most that fit, at most `most`.
void set_in_flight(SpmmSchedule& schedule, uint32_t most) {
  uint32_t& prefetch = schedule.tile.prefetch;
  prefetch = std::bit_floor(std::max(most, kLeastInFlight));
  while (prefetch > kLeastInFlight &&
         shared_bytes(schedule) > schedule.target.shared_bytes_per_block)
    prefetch /= 2;
}

void check_words(const SpmmTileChoice& choice) {
  const auto is_power = [](const std::optional<uint32_t>& word) {
    return !word || std::has_single_bit(*word);
  };
  if (!is_power(choice.vec) || !is_power(choice.splitk) || !is_power(choice.prefetch))
    refuse_tile("strategy=compressed takes powers of two for vec, splitk and prefetch",
                "choose 1, 2, 4, ...");
  if (choice.groups.value_or(1) != 1 || choice.stage.value_or(Stage::global) != Stage::global ||
      choice.weights.value_or(WeightOperand::immediate) != WeightOperand::immediate)
    refuse_tile("strategy=compressed has no groups or stage, and no weights but its stream",
                "leave groups, stage and weights out");
}

uint32_t choose_parts(const Pattern& pattern, const SpmmSchedule& schedule, uint32_t rows) {
  const uint32_t lanes = schedule.stream.lanes_per_part;
  const uint64_t row_length = pattern.nnz() / std::max(1u, pattern.rows) / schedule.stream.ranks;
  uint32_t parts = 1;
  while (2 * parts * lanes <= kWarp && uint64_t{rows} * 2 * parts * lanes <= kThreadsPerBlock &&
         row_length >= 2 * parts * kLeastEntriesOfPart &&
         (rows * parts * lanes < (lanes == 1 ? kEnoughThreads : kEnoughThreads / 2) ||
          parts * lanes < kLanesTogether))
    parts *= 2;
  return parts;
}

void deal_rows(const Pattern& pattern, SpmmSchedule& schedule) {
  CompressedStream& stream = schedule.stream;
  deal_to_warps(pattern, element_bytes(schedule.problem.type), stream);
  // Warps of one block are `blocks` apart in the order of lengths, so that blocks are alike.
  const uint32_t blocks = ceil_div(stream.warps(), schedule.tile.warps);
  schedule.tile_begin.assign(1, 0);
  schedule.row_order.clear();
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t warp = block; warp < stream.warps(); warp += blocks) {
      const size_t first = size_t{warp} * stream.rows_per_warp;
      const size_t last = std::min(first + stream.rows_per_warp, stream.rows.size());
      schedule.row_order.insert(schedule.row_order.end(),
                                stream.rows.begin() + static_cast<ptrdiff_t>(first),
                                stream.rows.begin() + static_cast<ptrdiff_t>(last));
    }
    schedule.tile_begin.push_back(static_cast<uint32_t>(schedule.row_order.size()));
  }
}

bool rows_allow(const SpmmProblem& problem, uint32_t elements) {
  return problem.layout == Layout::row_major && *problem.columns % elements == 0 &&
         problem.ldb % elements == 0;
}

} // namespace

CompressedRefusal compressed_refusal(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  if (schedule.target.is_host)
    return {"strategy=compressed is for GPUs: a CPU has no shared memory to gather B from",
            "choose strategy=streamed or unrolled"};
  if (problem.convolution)
    return {"strategy=compressed is for products of matrices, and for convolutions that are one "
            "(1x1, stride 1; NCHW: one image)",
            "choose strategy=streamed or unrolled"};
  if (problem.type == DataType::f64 || problem.half_terms != 0)
    return {"strategy=compressed has sums in f32 of f32, f16 or bf16",
            "choose another --dtype without --half-terms, or strategy=streamed"};
  if (!problem.columns || *problem.columns > kMostCompressedColumns)
    return {fmt::format("strategy=compressed needs a fixed number of columns, at most {}",
                        kMostCompressedColumns),
            problem.columns ? "choose strategy=streamed" : "give -n, or choose strategy=streamed"};
  return {};
}

bool compressed_is_predicted(const SpmmSchedule& schedule, uint64_t nnz) {
  // Straight-line code comes at 0.4 TB/s (runtime/tune), 16 bytes for each weight: 4 us here.
  constexpr uint64_t kLeastWeights = 100000;
  constexpr uint32_t kMostColumns = 16;
  constexpr uint32_t kMostInner = 24576; // a column of B fits twice
  return schedule.inner <= kMostInner && nnz >= kLeastWeights &&
         schedule.problem.columns.value_or(kMostColumns + 1) <= kMostColumns &&
         compressed_refusal(schedule).why.empty();
}

uint64_t partial_bytes(const SpmmSchedule& schedule) {
  if (schedule.stream.ranks == 1)
    return 0;
  return uint64_t{schedule.tile.rows} * schedule.stream.columns_per_block *
         ir::size_in_bytes(accumulator_scalar(schedule.problem.type));
}

uint64_t staged_bytes(const SpmmSchedule& schedule) {
  const CompressedStream& stream = schedule.stream;
  const uint64_t bytes =
      uint64_t{stream.staged.count()} * stream.columns_per_block * staged_element_bytes(schedule);
  return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}

uint64_t in_flight_bytes(const SpmmSchedule& schedule) {
  const CompressedStream& stream = schedule.stream;
  return uint64_t{schedule.tile.prefetch} * schedule.threads_x *
         (kCompressedStep * element_bytes(schedule.problem.type) + stream.delta_bytes());
}

SpmmPrediction predict_compressed(const Pattern& pattern, const SpmmSchedule& schedule) {
  // Instructions of the kernel besides the loop, and of the loop for each slot besides columns.
  constexpr uint64_t kAround = 300, kOfSlot = 4;
  const CompressedStream& stream = schedule.stream;
  const uint64_t vec = schedule.tile.vec;
  SpmmPrediction prediction;
  prediction.multiply_adds = kCompressedStep * vec;
  prediction.loads = kCompressedStep;
  prediction.instructions = kAround + kCompressedStep * (kOfSlot + 2 * vec);
  prediction.code_bytes = 16 * prediction.instructions;
  prediction.data_bytes = stream.bytes + 4 * stream.rows.size();
  if (pattern.nnz() != 0) {
    const uint32_t blocks = schedule.tile_count();
    uint64_t heaviest = 0, all = 0;
    for (uint32_t block = 0; block < blocks; ++block) {
      uint64_t steps = 0;
      for (uint32_t warp = block; warp < stream.warps(); warp += blocks)
        for (uint32_t rank = 0; rank < stream.ranks; ++rank)
          steps += stream.steps[rank * stream.warps() + warp];
      heaviest = std::max(heaviest, steps);
      all += steps;
    }
    prediction.balance = static_cast<double>(heaviest) * blocks / static_cast<double>(all);
  }
  return prediction;
}

uint32_t row_staging_bytes(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const uint32_t size = element_bytes(problem.type);
  const uint32_t bytes = std::min(schedule.stream.columns_per_block * size, kVectorBytes);
  const bool converts = schedule.stream.staged_wide && problem.type != DataType::f32;
  return !converts && bytes >= 4 && rows_allow(problem, bytes / size) ? bytes : 0;
}

void schedule_compressed(const Pattern& pattern, const SpmmTileChoice& choice,
                         SpmmSchedule& schedule) {
  if (const CompressedRefusal refusal = compressed_refusal(schedule); !refusal.why.empty())
    refuse_tile(refusal.why, refusal.way_out);
  check_words(choice);
  const SpmmProblem& problem = schedule.problem;
  SpmmTile& tile = schedule.tile;
  tile.groups = 1;
  const uint32_t value_bytes = element_bytes(problem.type);
  const CompressedSize runs = smallest_stream(pattern, value_bytes);
  // As many columns as fit beside the stream; the rest in other blocks, which read it again.
  uint32_t columns = std::bit_ceil(std::max(1u, *problem.columns));
  while (true) {
    set_columns(schedule, choice, columns);
    const uint32_t column_blocks = ceil_div(std::max(1u, *problem.columns), columns);
    const uint32_t ranks = choice.cluster.value_or(1);
    schedule.stream.ranks = tile.cluster = ranks;
    const uint32_t even_rows =
        ceil_div(std::max(1u, pattern.rows), std::max(1u, clusters_at_once(ranks) / column_blocks));
    const uint32_t most_rows = kThreadsPerBlock / schedule.stream.lanes_per_part;
    uint32_t rows = choice.rows.value_or(std::min(even_rows, std::min(256u, most_rows)));
    if (schedule.stream.lanes_per_part <= kWarp) {
      const uint32_t parts = choice.splitk.value_or(choose_parts(pattern, schedule, rows));
      if (parts * schedule.stream.lanes_per_part <= kWarp) {
        const uint32_t lanes = parts * schedule.stream.lanes_per_part;
        if (!choice.rows)
          rows = choice.warps ? *choice.warps * (kWarp / lanes)
                              : std::min(rows, kThreadsPerBlock / lanes);
        set_rows(schedule, rows, parts);
        choose_format(pattern, value_bytes, runs, schedule.stream);
        tile.prefetch = 1;
        const uint64_t step = in_flight_bytes(schedule);
        set_in_flight(schedule,
                      choice.prefetch.value_or(std::clamp<uint32_t>(
                          static_cast<uint32_t>(kEnoughInFlight / step), 4, kMostInFlight)));
        if (shared_bytes(schedule) <= schedule.target.shared_bytes_per_block)
          break;
      }
    }
    if (columns == 1)
      refuse_tile(fmt::format("strategy=compressed would stage {} bytes of B, {} has {} a block",
                              shared_bytes(schedule), schedule.target.name,
                              schedule.target.shared_bytes_per_block),
                  "choose fewer rows or parts, or strategy=streamed");
    columns /= 2;
  }
  if (choice.warps && *choice.warps != tile.warps)
    refuse_tile(fmt::format("rows={} with splitk={} and vec={} take {} warps, not {}", tile.rows,
                            tile.splitk, tile.vec, tile.warps, *choice.warps),
                "leave warps out");
  if (schedule.threads_x > kThreadsPerBlock)
    refuse_tile(fmt::format("rows={}, splitk={} make {} threads a block, at most {} fit", tile.rows,
                            tile.splitk, schedule.threads_x, kThreadsPerBlock),
                "choose fewer rows or parts");
  schedule.ranges.push_back({{1, columns}, false, {}});
  schedule.guarded = *problem.columns % columns != 0;
  schedule.neighbouring_columns = tile.vec > 1 && problem.layout == Layout::row_major &&
                                  *problem.columns % tile.vec == 0 && problem.ldb % tile.vec == 0 &&
                                  problem.ldc % tile.vec == 0 &&
                                  tile.vec * element_bytes(problem.type) <= kVectorBytes;
  if (*problem.columns != 0)
    deal_rows(pattern, schedule);
  // No more than there are.
  if (!choice.prefetch)
    tile.prefetch = std::min(
        tile.prefetch, std::max(kLeastInFlight, std::bit_ceil(schedule.stream.most_steps() + 1)));
}

} // namespace sparsertc
