#include "compiler/inspect/bitmap_schedule.h"

#include "compiler/inspect/blocks_at_once.h"
#include "compiler/inspect/tile_refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>

namespace sparsertc {
namespace {

constexpr uint32_t kWarp = 32, kThreadsPerBlock = 1024;
/// Registers allow no more: a warp with 64 columns has 32 sums a thread beside fragments.
constexpr uint32_t kMostWarps = 24;
constexpr uint32_t kColumns = 8; ///< of a fragment
constexpr uint32_t kFirstWithClusters = 90;
constexpr uint32_t kLeastInFlight = 2, kMostInFlight = 8;
/// Bytes of the stream that all warps of a block have in flight, where they fit.
constexpr uint32_t kEnoughInFlight = 32 * 1024;
constexpr uint32_t kMostChunks = 4;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

void check_words(const SpmmTileChoice& choice) {
  if (choice.rows.value_or(BitmapStream::kTile) != BitmapStream::kTile)
    refuse_tile("strategy=bitmap has tiles of 16 rows",
                "leave rows out; warps and groups have others");
  if (choice.chunk && (*choice.chunk % BitmapStream::kChunkColumns != 0 ||
                       *choice.chunk > kMostChunks * BitmapStream::kChunkColumns))
    refuse_tile("strategy=bitmap takes chunk=128, 256, 384 or 512", "choose one of these");
  if (choice.prefetch && (*choice.prefetch < kLeastInFlight || *choice.prefetch > kMostInFlight))
    refuse_tile(fmt::format("strategy=bitmap has from {} to {} stages in flight", kLeastInFlight,
                            kMostInFlight),
                "choose prefetch=3");
  if (choice.cluster && !std::has_single_bit(*choice.cluster))
    refuse_tile("strategy=bitmap takes cluster=1, 2, 4 or 8", "choose one of these");
  if (choice.stage.value_or(Stage::global) != Stage::global ||
      choice.weights.value_or(WeightOperand::immediate) != WeightOperand::immediate)
    refuse_tile("strategy=bitmap has no stage, and no weights but its stream",
                "leave stage and weights out");
}

/// How a block's warps share rows and K.
struct Shape {
  uint32_t ranks = 1, parts = 1, warps = 1, row_tiles = 1, chunks = 1, stages = 1;
  uint32_t row_blocks = 1;
  double clocks = 0; ///< of a multiprocessor, estimated
};

/// Of the chunks of a part of K the number in a stage that leaves least empty.
void set_stages(Shape& shape, uint32_t chunks, uint32_t most) {
  const uint32_t of_part = ceil_div(chunks, uint64_t{shape.ranks} * shape.parts);
  uint32_t least = UINT32_MAX;
  for (uint32_t c = std::min(most, of_part); c >= 1; --c)
    if (ceil_div(of_part, c) * c < least) {
      shape.chunks = c;
      shape.stages = ceil_div(of_part, c);
      least = shape.chunks * shape.stages;
    }
}

/// Chunks of a stage where no word says so. With 8 columns one is the fastest (4096x4096, 50 to 98
/// % zeros, H200: up to 23 % faster than the most that fit).
uint32_t most_chunks(const SpmmSchedule& schedule) {
  return schedule.tile.vec == 1 ? 1 : kMostChunks;
}

/// From measurements on an H200; only ratios matter.
double estimate_clocks(const Shape& shape, uint32_t planes) {
  constexpr double kOfTile = 9, kOfFragment = 2.5, kOfStage = 40, kBytesOfB = 19, kMeeting = 3000;
  constexpr double kBusyWarps = 14;
  const double warps = double(shape.warps) * shape.parts;
  const double stages = warps * shape.row_tiles * shape.stages;
  const double tiles = stages * shape.chunks * BitmapStream::kTilesOfChunk;
  const double b = double(shape.parts) * shape.stages * shape.chunks * BitmapStream::kChunkColumns *
                   planes * kColumns * 2 / kBytesOfB;
  return (tiles * (kOfTile + kOfFragment * planes) + stages * kOfStage / 4) *
             std::max(1.0, kBusyWarps / warps) +
         b + (shape.ranks > 1 ? kMeeting * (planes == 1 ? std::bit_width(shape.ranks) - 1 : 1) : 0);
}

void set_stream(const Pattern& pattern, const Shape& shape, SpmmSchedule& schedule) {
  BitmapStream& stream = schedule.bitmap;
  SpmmTile& tile = schedule.tile;
  stream.chunks = shape.chunks;
  stream.stages = shape.stages;
  stream.row_tiles = tile.groups = shape.row_tiles;
  stream.row_warps = tile.warps = shape.warps;
  stream.parts = tile.splitk = shape.parts;
  stream.ranks = tile.cluster = shape.ranks;
  stream.row_blocks = shape.row_blocks;
  stream.leads = std::min(tile.prefetch - 1, stream.stages_of_warp());
  tile.chunk = stream.stage_columns();
  tile.rows = BitmapStream::kTile;
  schedule.threads_x = kWarp * stream.warps();
  size_stream(pattern, stream);
}

/// All that the words allow, the fastest first.
std::vector<Shape> shapes_of(const Pattern& pattern, const SpmmTileChoice& choice,
                             const SpmmSchedule& schedule) {
  const uint32_t rows_of_tiles = ceil_div(std::max(1u, pattern.rows), BitmapStream::kTile);
  const uint32_t chunks = ceil_div(std::max(1u, schedule.inner), BitmapStream::kChunkColumns);
  const bool clusters = schedule.target.compute_capability >= kFirstWithClusters;
  std::vector<Shape> shapes;
  for (const uint32_t ranks : {1u, 2u, 4u, 8u}) {
    if (choice.cluster ? ranks != *choice.cluster : ranks > 1 && (!clusters || ranks > chunks))
      continue;
    for (uint32_t parts = 1; parts <= kMostWarps; ++parts) {
      if (choice.splitk ? parts != *choice.splitk
                        : !std::has_single_bit(parts) || parts * ranks > std::max(ranks, chunks))
        continue;
      for (uint32_t warps = 1; warps * parts <= kThreadsPerBlock / kWarp; ++warps) {
        if (choice.warps ? warps != *choice.warps : warps * parts > kMostWarps)
          continue;
        Shape shape;
        shape.ranks = ranks;
        shape.parts = parts;
        shape.warps = warps;
        shape.row_tiles = choice.groups.value_or(
            ceil_div(rows_of_tiles, uint64_t{clusters_at_once(ranks)} * warps));
        shape.row_blocks = ceil_div(rows_of_tiles, uint64_t{warps} * shape.row_tiles);
        const uint32_t given = choice.chunk.value_or(0) / BitmapStream::kChunkColumns;
        set_stages(shape, chunks, given == 0 ? most_chunks(schedule) : given);
        if (given != 0) {
          shape.chunks = given;
          shape.stages = ceil_div(ceil_div(chunks, uint64_t{ranks} * parts), given);
        }
        shape.clocks = estimate_clocks(shape, schedule.tile.vec);
        shapes.push_back(shape);
      }
    }
  }
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const Shape& a, const Shape& b) { return a.clocks < b.clocks; });
  return shapes;
}

/// Shared memory of a block that has two stages of one chunk a warp, for pairs as in the mean.
double least_shared_bytes(const Pattern& pattern, const Shape& shape, uint32_t planes) {
  const double density =
      static_cast<double>(pattern.nnz()) / std::max(1.0, double(pattern.rows) * pattern.columns);
  const double pairs = BitmapStream::kChunkColumns * 8 * (1 - (1 - density) * (1 - density));
  const double stage = 160 + 4.6 * pairs;
  const double rows =
      double(shape.stages) * shape.chunks * shape.parts * BitmapStream::kChunkColumns;
  return rows * planes * 16 + 2.0 * shape.warps * shape.parts * stage +
         double(shape.parts) * shape.warps * shape.row_tiles * BitmapStream::kTile * planes * 32;
}

/// With as many stages in flight, and chunks in these, as fit. False where not even two do.
bool fits_with(const Pattern& pattern, const SpmmTileChoice& choice, Shape shape,
               SpmmSchedule& schedule) {
  const uint32_t limit = schedule.target.shared_bytes_per_block;
  const uint32_t chunks_of_k = ceil_div(std::max(1u, schedule.inner), BitmapStream::kChunkColumns);
  for (uint32_t most = shape.chunks; most >= 1; --most) {
    if (!choice.chunk)
      set_stages(shape, chunks_of_k, most);
    for (uint32_t wanted = 3; wanted >= kLeastInFlight; --wanted) {
      schedule.tile.prefetch = choice.prefetch.value_or(wanted);
      set_stream(pattern, shape, schedule);
      if (bitmap_shared(schedule).all() <= limit) {
        const auto in_flight = [&] {
          return uint64_t{schedule.bitmap.warps()} * (schedule.tile.prefetch - 1) *
                 (schedule.bitmap.head_bytes() + schedule.bitmap.pair_bytes);
        };
        while (!choice.prefetch && schedule.tile.prefetch < kMostInFlight &&
               schedule.tile.prefetch <= schedule.bitmap.stages_of_warp() &&
               in_flight() < kEnoughInFlight) {
          ++schedule.tile.prefetch;
          set_stream(pattern, shape, schedule);
          if (bitmap_shared(schedule).all() > limit) {
            --schedule.tile.prefetch;
            set_stream(pattern, shape, schedule);
            break;
          }
        }
        return true;
      }
      if (choice.prefetch)
        break;
    }
    if (choice.chunk)
      break;
  }
  return false;
}

} // namespace

BitmapRefusal bitmap_refusal(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  if (schedule.target.is_host)
    return {"strategy=bitmap is for GPUs: a CPU has no tensor cores",
            "choose strategy=streamed or unrolled"};
  if (problem.convolution)
    return {"strategy=bitmap is for products of matrices, and for convolutions that are one (1x1, "
            "stride 1; NCHW: one image)",
            "choose strategy=streamed or unrolled"};
  if ((problem.type != DataType::f16 && problem.type != DataType::bf16) || problem.half_terms != 0)
    return {"strategy=bitmap has sums in f32 of f16 or bf16",
            "choose another --dtype without --half-terms, or strategy=compressed"};
  if (!problem.columns || *problem.columns > kMostBitmapColumns)
    return {fmt::format("strategy=bitmap needs a fixed number of columns, at most {}",
                        kMostBitmapColumns),
            problem.columns ? "choose strategy=streamed" : "give -n, or choose strategy=streamed"};
  if (problem.nonfinite != Nonfinite::dense)
    return {"strategy=bitmap multiplies zeros, so that NaN and infinity in B also reach rows that "
            "have no entry there",
            "give --nonfinite=dense if that will do, or choose strategy=compressed"};
  return {};
}

BitmapStaging bitmap_staging(const SpmmSchedule& schedule) {
  constexpr uint32_t kLine = 128;
  BitmapStaging staging;
  const uint32_t planes = schedule.tile.vec;
  staging.columns = kColumns * planes;
  staging.rows = schedule.bitmap.rank_columns();
  // Pieces of a row of B go to different banks.
  staging.plane = 16 * staging.rows + (planes == 1 ? 0 : kLine / std::bit_ceil(planes));
  staging.bytes = uint64_t{planes} * staging.plane;
  staging.sums_pitch = 4 * staging.columns;
  return staging;
}

BitmapShared bitmap_shared(const SpmmSchedule& schedule) {
  const BitmapStream& stream = schedule.bitmap;
  const BitmapStaging staging = bitmap_staging(schedule);
  const uint64_t stages = uint64_t{stream.warps()} * schedule.tile.prefetch;
  constexpr uint64_t kLine = 128;
  const auto whole = [](uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  return {whole(staging.bytes), whole(stages * stream.head_bytes()),
          whole(stages * stream.pair_bytes),
          whole(uint64_t{stream.parts} * stream.block_rows() * staging.sums_pitch)};
}

bool bitmap_copies_pieces(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  return problem.layout == Layout::row_major && *problem.columns % kColumns == 0 &&
         problem.ldb % kColumns == 0;
}

uint32_t bitmap_store_columns(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  constexpr uint32_t kTogether = 4;
  return problem.layout == Layout::row_major && *problem.columns % kTogether == 0 &&
                 problem.ldc % kTogether == 0
             ? kTogether
             : 1;
}

SpmmPrediction predict_bitmap(const Pattern& pattern, const SpmmSchedule& schedule) {
  // Instructions of the kernel besides the loop over chunks, for a chunk, for a tile, and for each
  // of its fragments of B.
  constexpr uint64_t kAround = 400, kOfChunk = 50, kOfTile = 20, kOfFragment = 2;
  const BitmapStream& stream = schedule.bitmap;
  const uint64_t tiles = BitmapStream::kTilesOfChunk;
  SpmmPrediction prediction;
  prediction.multiply_adds = tiles * schedule.tile.vec;
  prediction.loads = tiles * (BitmapStream::kPairsOfLane + schedule.tile.vec);
  prediction.instructions =
      kAround + kOfChunk + tiles * (kOfTile + kOfFragment * schedule.tile.vec);
  prediction.code_bytes = 16 * prediction.instructions;
  prediction.data_bytes = stream.bytes;
  if (stream.pairs != 0) {
    const std::vector<uint32_t> pairs = pairs_of_stages(pattern, stream);
    const auto of_block = static_cast<ptrdiff_t>(stream.warps()) * stream.stages_of_warp();
    uint64_t heaviest = 0;
    for (auto first = pairs.begin(); first != pairs.end(); first += of_block)
      heaviest = std::max(heaviest, std::accumulate(first, first + of_block, uint64_t{0}));
    prediction.balance = static_cast<double>(heaviest * stream.row_blocks * stream.ranks) /
                         static_cast<double>(stream.pairs);
  }
  return prediction;
}

void schedule_bitmap(const Pattern& pattern, const SpmmTileChoice& choice, SpmmSchedule& schedule) {
  if (const BitmapRefusal refusal = bitmap_refusal(schedule); !refusal.why.empty())
    refuse_tile(refusal.why, refusal.way_out);
  check_words(choice);
  const SpmmProblem& problem = schedule.problem;
  SpmmTile& tile = schedule.tile;
  const uint32_t limit = schedule.target.shared_bytes_per_block;
  tile.vec = std::min(choice.vec.value_or(8), ceil_div(std::max(1u, *problem.columns), kColumns));
  bool fits = false, any = false;
  // As many columns as fit; the rest in other blocks, which read and expand the stream again.
  while (!fits) {
    for (const Shape& shape : shapes_of(pattern, choice, schedule)) {
      any = true;
      if (least_shared_bytes(pattern, shape, tile.vec) <= limit &&
          fits_with(pattern, choice, shape, schedule)) {
        fits = true;
        break;
      }
    }
    if (!fits && (tile.vec == 1 || choice.vec))
      break;
    if (!fits)
      tile.vec /= 2;
  }
  if (!any)
    refuse_tile(
        fmt::format("strategy=bitmap has at most {} warps in a block, rows of tiles times parts "
                    "of K",
                    kThreadsPerBlock / kWarp),
        "choose fewer warps or parts");
  if (!fits)
    refuse_tile(
        fmt::format("strategy=bitmap has no shape whose rows of B, stages and sums fit into the "
                    "{} bytes of a block on {}",
                    limit, schedule.target.name),
        "choose fewer warps, groups or stages in flight, or a larger cluster");
  const uint32_t columns = kColumns * tile.vec;
  schedule.ranges.push_back({{1, columns}, false, {}});
  schedule.guarded = *problem.columns % columns != 0;
  if (*problem.columns != 0) {
    schedule.row_order.resize(pattern.rows);
    std::iota(schedule.row_order.begin(), schedule.row_order.end(), 0u);
    schedule.tile_begin.assign(1, 0);
    const uint32_t rows = BitmapStream::kTile * tile.warps;
    for (uint32_t begin = 0; begin < pattern.rows; begin += rows)
      schedule.tile_begin.push_back(std::min(begin + rows, pattern.rows));
  }
  schedule.remarks.push_back(
      "tiles are multiplied with their zeros: NaN and infinity in B may reach "
      "rows without an entry there (--nonfinite=dense allows it)");
}

} // namespace sparsertc
