#include "compiler/inspect/staged_region.h"

#include <algorithm>
#include <numeric>

namespace sparsertc {
namespace {

constexpr uint32_t kWidestLoad = 16;
/// Bytes: what memory is read by, and what the banks of shared memory hold side by side.
constexpr uint32_t kSector = 32, kBanks = 128;
/// Passes beyond which neighbouring channels are shared out to fewer threads: each pass has a
/// pointer in every thread.
constexpr uint32_t kFewPasses = 8;

uint32_t ceil_div(uint32_t a, uint32_t b) {
  return (a + b - 1) / b;
}
uint32_t round_up(uint32_t a, uint32_t to) {
  return ceil_div(a, to) * to;
}

/// Most boundaries between groups of `size` things that `count` consecutive things touch or cross,
/// where they begin at a multiple of `step`.
uint32_t most_crossings(uint32_t count, uint32_t size, uint32_t step) {
  return (size - std::gcd(size, step) + count - 1) / size;
}

/// Rows of the tall image that a block's windows cover.
uint32_t rows_of_block(const SpmmSchedule& schedule, const Convolution& c,
                       const StagedRegion& region) {
  const uint32_t positions = schedule.columns_per_block();
  const uint32_t height = c.out_height();
  uint32_t lines = most_crossings(positions, region.line, positions) + 1;
  const bool whole_lines = positions % region.line == 0;
  uint32_t images = most_crossings(lines, height, whole_lines ? lines : 1);
  if (schedule.problem.columns) {
    lines = std::min(lines, height * std::max(1u, *schedule.problem.columns));
    images = std::min(images, std::max(1u, *schedule.problem.columns) - 1);
  }
  return (lines - 1) * c.stride_h + c.window_height() +
         images * (region.image_rows - height * c.stride_h);
}

/// Lanes along the channels of a chunk read whole sectors, and write to banks that the stride from
/// channel to channel keeps apart.
void share_transposing_copies(const SpmmSchedule& schedule, uint32_t aligned,
                              StagedRegion& region) {
  const uint32_t threads = copying_threads(schedule);
  const uint32_t size = element_bytes(schedule.problem.type);
  uint32_t lanes = kSector / size;
  while (lanes > 1 && (schedule.tile.chunk % lanes != 0 ||
                       ceil_div(region.copied, threads / lanes) > kFewPasses))
    lanes /= 2;
  region.channels_a_pass = lanes;
  region.pieces_a_pass = threads / lanes;
  region.passes = ceil_div(region.copied, region.pieces_a_pass);
  region.last_pass_threads = (region.copied - (region.passes - 1) * region.pieces_a_pass) * lanes;
  const uint32_t banks = kBanks / size;
  if (lanes == 1)
    return;
  const uint32_t apart = std::max(banks / lanes, aligned);
  region.channel = round_up(std::max(region.copied, apart) - apart, banks) + apart;
}

void share_copies(const SpmmSchedule& schedule, StagedRegion& region) {
  const uint32_t threads = copying_threads(schedule);
  const uint32_t pieces = region.copied / region.piece;
  region.passes = ceil_div(pieces, threads);
  region.channels_a_pass = std::clamp(threads / pieces, 1u, schedule.tile.chunk);
  while (schedule.tile.chunk % region.channels_a_pass != 0)
    --region.channels_a_pass;
  region.pieces_a_pass = threads / region.channels_a_pass;
  region.last_pass_threads =
      region.passes > 1 ? pieces - (region.passes - 1) * threads : region.channels_a_pass * pieces;
}

} // namespace

bool stages_images(const SpmmSchedule& schedule) {
  return schedule.problem.convolution && schedule.tile.stage == Stage::smem &&
         !schedule.target.is_host;
}

uint32_t copying_threads(const SpmmSchedule& schedule) {
  return schedule.threads_x * schedule.tile.groups * schedule.tile.splitk;
}

uint32_t part_of_row(const SpmmSchedule& schedule, uint32_t row) {
  const SpmmTile& tile = schedule.tile;
  const uint32_t channel = tap_of(*schedule.problem.convolution, row).channel;
  return channel % tile.chunk / (tile.chunk / tile.splitk);
}

StagedRegion staged_region(const SpmmSchedule& schedule) {
  const Convolution& c = *schedule.problem.convolution;
  const uint32_t size = element_bytes(schedule.problem.type);
  const uint32_t vec = schedule.tile.vec;
  StagedRegion region;
  region.piece = staging_piece_bytes(schedule) / size;
  region.wide =
      (vec & (vec - 1)) == 0 && vec * size <= kWidestLoad && c.stride_w == 1 && c.dilation_w == 1;
  const uint32_t aligned = std::max(region.piece, region.wide ? vec : 1);

  region.pad_top = c.pad_top;
  region.pad_left = round_up(c.pad_left, region.piece);
  region.first_column = region.pad_left - c.pad_left;
  const uint32_t columns_read =
      region.first_column + (c.out_width() - 1) * c.stride_w + c.window_width();
  const uint32_t rows_read = (c.out_height() - 1) * c.stride_h + c.window_height();
  const auto less = [](uint32_t a, uint32_t b) { return a > b ? a - b : 0; };
  region.pitch =
      round_up(std::max(region.pad_left + c.width, less(columns_read, region.pad_left)), aligned);
  region.image_rows =
      std::max({c.pad_top + c.height, less(rows_read, c.pad_top), c.out_height() * c.stride_h});
  region.line =
      round_up(c.stride_w == 1 ? std::max(c.out_width(), region.pitch) : c.out_width(), vec);

  region.rows = rows_of_block(schedule, c, region);
  // The last thread of a line reads behind a row where its columns, or its vectors, go on.
  const uint32_t last = (c.out_width() - 1) / vec * vec;
  const uint32_t last_read =
      round_up(region.first_column + (last + vec - 1) * c.stride_w + c.window_width(), aligned);
  // An image that is too large for shared memory in any case need not be counted exactly.
  constexpr uint64_t kTooMany = 1u << 28;
  region.copied =
      round_up(static_cast<uint32_t>(std::min(kTooMany, uint64_t{region.rows} * region.pitch +
                                                            less(last_read, region.pitch))),
               aligned);
  region.channel = region.copied;
  if (schedule.problem.layout == Layout::row_major)
    share_copies(schedule, region);
  else
    share_transposing_copies(schedule, aligned, region);
  return region;
}

uint64_t staged_region_bytes(const SpmmSchedule& schedule) {
  const StagedRegion region = staged_region(schedule);
  const SpmmTile& tile = schedule.tile;
  constexpr uint64_t kAligned = 16; // partial sums follow
  const uint64_t bytes =
      uint64_t{tile.prefetch} * tile.chunk * region.channel * element_bytes(schedule.problem.type);
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

} // namespace sparsertc
