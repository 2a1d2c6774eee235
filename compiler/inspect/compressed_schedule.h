// The tile of the compressed strategy. Its words mean: `rows` of C for a block, `splitk` parts of a
// row in neighbouring lanes, `vec` columns for a lane, `prefetch` steps of the stream in flight;
// `warps` follows.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

namespace sparsertc {

/// Most columns of B.
constexpr uint32_t kMostCompressedColumns = 64;

/// Why the strategy is not for this problem and target, with a way out; empty where it is.
struct CompressedRefusal {
  std::string why, way_out;
};
CompressedRefusal compressed_refusal(const SpmmSchedule& schedule);

/// Whether it is taken where nobody names a strategy: few columns, and so many weights that their
/// bytes decide.
bool compressed_is_predicted(const SpmmSchedule& schedule, uint64_t nnz);

/// Chooses tile, ranges and the stream; throws UsageError for what cannot be.
void schedule_compressed(const Pattern& pattern, const SpmmTileChoice& choice,
                         SpmmSchedule& schedule);

/// Counts the code and the data of a schedule of this strategy.
SpmmPrediction predict_compressed(const Pattern& pattern, const SpmmSchedule& schedule);

/// Bytes of a block's staged rows of B, and of its steps in flight.
uint64_t staged_bytes(const SpmmSchedule& schedule);
uint64_t in_flight_bytes(const SpmmSchedule& schedule);
/// Of the sums that the blocks of a cluster bring together.
uint64_t partial_bytes(const SpmmSchedule& schedule);

/// Bytes of the asynchronous copies by which rows of B come into shared memory; 0 where elements
/// pass registers, one by one.
uint32_t row_staging_bytes(const SpmmSchedule& schedule);

} // namespace sparsertc
