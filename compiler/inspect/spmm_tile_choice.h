// What choosing a schedule (spmm_schedule.cpp) has in parts of its own: the tile of unrolled and
// streamed code (spmm_tile_choice.cpp), and what cannot be (spmm_limits.cpp).
#pragma once

#include "compiler/inspect/spmm_schedule.h"

namespace sparsertc {

constexpr uint32_t kMostThreadsOfBlock = 1024;
constexpr uint32_t kNamedBarriers = 15;
/// A thread's sums: beyond, neither a GPU's registers nor a compiler's patience suffices.
constexpr uint32_t kMostSums = 512;
/// Chunks of B in flight that staging needs at least.
constexpr uint32_t kLeastChunks = 2;
/// Bytes of the smallest asynchronous copy.
constexpr uint32_t kLeastCopy = 4;
/// Elements of a channel that a thread copies: each has a pointer.
constexpr uint32_t kMostPasses = 16;

/// Columns that decisions are made for.
uint32_t typical_columns(const SpmmSchedule& schedule);
/// Columns of a thread: pairs of half-precision numbers where they are aligned.
uint32_t choose_gpu_vec(const SpmmSchedule& schedule);
/// How unrolled code for the interior and the border is shared out where nobody says so.
BorderCode choose_border(const Pattern& pattern, const SpmmSchedule& schedule,
                         const SpmmTileChoice& choice, Strategy strategy);
/// Tile, columns of threads and ranges of blocks.
void choose_tile(SpmmSchedule& schedule, const SpmmTileChoice& choice, double mean_row_length);
/// Whether the tile fits the target.
bool fits(SpmmSchedule schedule);

/// Groups that can share the pieces of a row of B evenly.
uint32_t groups_for_staging(const SpmmSchedule& schedule);
/// A pass of copies by all threads covers whole rows of B; a chunk is a whole number of passes.
void round_chunk(SpmmSchedule& schedule);
/// Groups that exchange partial sums inside of a block wait for each other alone.
bool meets_at_named_barriers(const SpmmTile& tile);
/// Throws UsageError for a tile that cannot be.
void check_limits(SpmmSchedule& schedule);

} // namespace sparsertc
