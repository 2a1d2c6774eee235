// What a tile may be, and the shared memory that it takes.
#include "compiler/inspect/spmm_tile_choice.h"

#include "compiler/inspect/bitmap_schedule.h"
#include "compiler/inspect/compressed_schedule.h"
#include "compiler/inspect/dense_schedule.h"
#include "compiler/inspect/panel_schedule.h"
#include "compiler/inspect/staged_region.h"
#include "compiler/inspect/tile_refusal.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc {
namespace {

/// Compute capability.
constexpr uint32_t kFirstWithClusters = 90;

void check_staging(const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  const SpmmProblem& problem = schedule.problem;
  if (tile.strategy != Strategy::unrolled)
    refuse_tile("stage=smem needs strategy=unrolled",
                "leave stage out, or choose strategy=unrolled");
  if (tile.splitk != 1 && !problem.convolution)
    refuse_tile("stage=smem and splitk cannot go together", "choose splitk=1 or stage=global");
  if (tile.cluster != 1)
    refuse_tile("stage=smem and cluster cannot go together", "choose cluster=1 or stage=global");
  if (problem.layout != Layout::row_major && !problem.convolution)
    refuse_tile("stage=smem needs row-major B", "choose stage=global or --layout=row");
  if (problem.layout != Layout::row_major && element_bytes(problem.type) < kLeastCopy)
    refuse_tile(
        fmt::format("stage=smem of {} needs images in NCHW: those in NHWC are copied by single "
                    "elements of at least 4 bytes",
                    name_of(problem.type)),
        "choose stage=global, --layout=nchw or --dtype=f32");
  if (tile.prefetch < kLeastChunks)
    refuse_tile("stage=smem needs at least two chunks in flight", "choose prefetch=2 or more");
  const uint32_t piece = staging_piece_bytes(schedule);
  if (piece == 0)
    refuse_tile(
        fmt::format("stage=smem copies at least 4 aligned bytes at a time, which {} or ldb of "
                    "this problem do not allow",
                    problem.convolution ? "the width of the images" : "N"),
        fmt::format("choose stage=global, or pad {} and ldb to a multiple of 4 bytes",
                    problem.convolution ? "the images" : "N"));
  if (stages_images(schedule)) {
    if (staged_region(schedule).passes > kMostPasses)
      refuse_tile(fmt::format("stage=smem: {} threads would copy {} elements each of a channel",
                              copying_threads(schedule), staged_region(schedule).passes),
                  "choose more groups, or a smaller vec");
    return;
  }
  const uint32_t pieces = schedule.columns_per_block() * element_bytes(problem.type) / piece;
  if (tile.groups % groups_for_staging(schedule) != 0)
    refuse_tile(fmt::format("stage=smem: {} threads cannot share {} pieces of a row evenly",
                            schedule.threads_x * tile.groups, pieces),
                fmt::format("choose groups a multiple of {}, or a smaller vec",
                            groups_for_staging(schedule)));
}

} // namespace

void check_limits(SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  const Target& target = schedule.target;
  const uint32_t parts_of_thread = target.is_host ? std::max(1u, tile.parts()) : 1;
  const uint64_t sums = uint64_t{tile.rows} * tile.vec * parts_of_thread;
  if (sums > kMostSums)
    refuse_tile(
        fmt::format("rows={} and vec={}{} need {} sums a thread, at most {} are possible",
                    tile.rows, tile.vec,
                    parts_of_thread > 1 ? fmt::format(" in {} parts of K", parts_of_thread) : "",
                    sums, kMostSums),
        "choose fewer rows, columns a thread or parts");
  if (schedule.problem.half_terms != 0 && schedule.problem.half_terms > 64)
    throw UsageError("half-precision sums over more than 64 terms are not offered",
                     "choose --half-terms from 1 to 64");
  if (tile.strategy == Strategy::streamed && tile.weights == WeightOperand::constant_bank)
    refuse_tile("strategy=streamed keeps its weights in memory, not in the constant bank",
                "leave weights out, or choose strategy=unrolled");
  if ((tile.cluster & (tile.cluster - 1)) != 0)
    refuse_tile(fmt::format("there are no clusters of {} blocks", tile.cluster),
                "choose cluster=1, 2, 4 or 8");
  if (target.is_host) {
    if (tile.stage == Stage::smem)
      refuse_tile("stage=smem is for GPUs", "leave stage out");
    return;
  }
  if (tile.cluster > 1 && target.compute_capability < kFirstWithClusters)
    refuse_tile(fmt::format("cluster={}: {} has no clusters of blocks", tile.cluster, target.name),
                "choose cluster=1 and splitk for parts of K, or sm_90 or newer as target");
  const uint32_t threads = schedule.threads_x * tile.groups * tile.splitk;
  if (threads > kMostThreadsOfBlock)
    refuse_tile(
        fmt::format("warps={}, groups={}, splitk={} make {} threads a block, at most {} fit",
                    tile.warps, tile.groups, tile.splitk, threads, kMostThreadsOfBlock),
        "choose fewer warps, groups or parts");
  if (meets_at_named_barriers(tile) && tile.groups > kNamedBarriers)
    refuse_tile("splitk allows at most 15 groups", "choose fewer groups");
  if (tile.stage == Stage::smem) {
    check_staging(schedule);
    round_chunk(schedule);
  }
  const uint64_t shared = shared_bytes(schedule);
  if (shared > target.shared_bytes_per_block)
    refuse_tile(fmt::format("the tile needs {} bytes of shared memory, {} has {} a block", shared,
                            target.name, target.shared_bytes_per_block),
                tile.stage == Stage::smem ? "choose a smaller chunk, prefetch, vec or fewer warps"
                                          : "choose fewer rows, warps, groups or parts");
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
    return panel_shared_bytes(schedule);
  if (tile.strategy == Strategy::bitmap)
    return bitmap_shared(schedule).all();
  if (tile.strategy == Strategy::dense)
    return dense_staging(schedule).bytes;
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

} // namespace sparsertc
