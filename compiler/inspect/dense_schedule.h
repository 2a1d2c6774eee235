// The dense strategy: A with its zeros, in one array. Its words mean: `rows` of C (16, 32 or 64)
// and 32 * `vec` columns for a warp, `warps` along N, `groups` along M, `chunk` rows of B and
// columns of A copied to shared memory at once, `prefetch` such chunks in flight, the one at hand
// included; `dense` says whose code runs.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

#include <string_view>

namespace sparsertc {

/// The array of A: a row of `leading` elements for each column of A, zeros beyond M, and up to
/// `depth` such rows, zeros beyond K. As column-major storage it is A with that leading dimension.
struct DenseArray {
  uint32_t leading = 0, depth = 0;
  uint64_t elements() const { return uint64_t{leading} * depth; }
};
DenseArray dense_array(const SpmmSchedule& schedule);
/// The name of the array, under which a driver finds it in the loaded code.
constexpr std::string_view kDenseSymbol = "sparsertc_weights";

/// Chooses tile and ranges; throws UsageError for what cannot be.
void schedule_dense(const Pattern& pattern, const SpmmTileChoice& choice, SpmmSchedule& schedule);

/// Counts the code and the data of a schedule of this strategy.
SpmmPrediction predict_dense(const SpmmSchedule& schedule);

/// Whether products are made on tensor cores: f16, bf16, tf32.
bool is_dense_on_tensor_cores(const SpmmSchedule& schedule);

/// One chunk of A (a column of A a row) and one of B, behind each other in shared memory. The
/// pitches, in bytes, spread neighbouring rows over the banks.
struct DenseStaging {
  uint32_t a_pitch = 0, b_pitch = 0;
  uint32_t b_offset = 0, chunk_bytes = 0;
  uint64_t bytes = 0; ///< of all chunks in flight
};
DenseStaging dense_staging(const SpmmSchedule& schedule);
/// Whether rows of B are copied in pieces of 16 bytes; else elements pass registers.
bool dense_copies_pieces(const SpmmSchedule& schedule);
/// Columns of C that a thread stores at once.
uint32_t dense_store_columns(const SpmmSchedule& schedule);
/// Bytes to which B, C and the residual must be aligned.
uint32_t dense_alignment(const SpmmSchedule& schedule);

} // namespace sparsertc
