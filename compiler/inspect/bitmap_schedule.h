// The tile of the bitmap strategy (compiler/inspect/bitmap_stream.h). Its words mean: `warps` rows
// of tiles side by side in a block, `groups` such rows one after the other, `splitk` parts of K in
// a block, `cluster` blocks with parts of K, `vec` times 8 columns of B, `chunk` columns of A in a
// stage, `prefetch` stages of a warp in flight, the one at hand included; `rows` is 16.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

#include <string>

namespace sparsertc {

/// Most columns of B.
constexpr uint32_t kMostBitmapColumns = 64;

/// Why the strategy is not for this problem and target, with a way out; empty where it is.
struct BitmapRefusal {
  std::string why, way_out;
};
BitmapRefusal bitmap_refusal(const SpmmSchedule& schedule);

/// Chooses tile, ranges and the stream; throws UsageError for what cannot be.
void schedule_bitmap(const Pattern& pattern, const SpmmTileChoice& choice, SpmmSchedule& schedule);

/// Counts the code and the data of a schedule of this strategy.
SpmmPrediction predict_bitmap(const Pattern& pattern, const SpmmSchedule& schedule);

/// B in shared memory: `vec` planes of 8 columns, row k of a plane 16 k bytes from its beginning.
struct BitmapStaging {
  uint32_t columns = 8; ///< of a block
  uint32_t rows = 0;    ///< of B, of a block's rank
  uint32_t plane = 0;   ///< bytes
  uint64_t bytes = 0;   ///< of all planes
  /// A row of sums, all columns of the block, f32.
  uint32_t sums_pitch = 0;
};
BitmapStaging bitmap_staging(const SpmmSchedule& schedule);
/// Shared memory of a block, in bytes.
struct BitmapShared {
  uint64_t staged = 0, heads = 0, pairs = 0, sums = 0;
  uint64_t all() const { return staged + heads + pairs + sums; }
};
BitmapShared bitmap_shared(const SpmmSchedule& schedule);

/// Whether rows of B are copied in pieces of 16 bytes; else element by element.
bool bitmap_copies_pieces(const SpmmSchedule& schedule);
/// Columns of C that a thread stores at once: 4 where these are aligned, else 1.
uint32_t bitmap_store_columns(const SpmmSchedule& schedule);

} // namespace sparsertc
