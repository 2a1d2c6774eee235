// The tile of the panels strategy (compiler/inspect/panel_packing.h), and what follows from it. Its
// words mean: `rows` of C for a panel (16, 32 or 64), 32 * `vec` columns for a warp, `warps` along
// N, `groups` panels in a block, `splitk` warps (1, 2 or 4) that have parts of a panel's K, `chunk`
// steps of a round (1, 2 or 4), `prefetch` rounds of B in shared memory, the one at hand included.
#pragma once

#include "compiler/inspect/spmm_schedule.h"
#include "ir/panel_time.h"

namespace sparsertc {

/// Chooses tile, ranges and the packing; throws UsageError for what cannot be.
void schedule_panels(const Pattern& pattern, const SpmmTileChoice& choice, SpmmSchedule& schedule);

/// What decides the time of a schedule's kernel for `columns` of B.
PanelLaunch panel_launch(const SpmmSchedule& schedule, double columns);

/// Counts the code and the data of a schedule of this strategy.
SpmmPrediction predict_panels(const SpmmSchedule& schedule);

/// What tensor cores multiply: f16, bf16, tf32 (`type` f32), or, where f32 keeps all its digits,
/// three bf16 that add up to it (README.md).
struct PanelOperands {
  DataType type = DataType::f16;
  uint32_t parts = 1;
  bool is_tf32() const { return type == DataType::f32; }
  bool is_split() const { return parts > 1; }
};
PanelOperands panel_operands(const SpmmProblem& problem);

/// How one step of a panel lies in memory. Everything is in the order in which lanes load it:
///   values    for each part, for each 16 rows a fragment of A, 16 bytes a lane
///   metadata  for each 32 rows (16 where there are no more) a word a lane
///   places    f16, bf16: of slot l for lane l, bytes from the start of staged B; tf32: of slots
///             q, q + 4, q + 8, q + 12 for q = 0 to 3
struct PanelStep {
  uint32_t fragments = 0;      ///< of 16 rows
  uint32_t metadata_words = 0; ///< a lane
  uint32_t metadata_offset = 0, places_offset = 0, bytes = 0;
};
PanelStep panel_step(const SpmmSchedule& schedule);
/// Steps of which a warp has the data in registers or on the way, and that the stream has behind
/// its end.
uint32_t panel_steps_ahead(const SpmmProblem& problem);

/// B in shared memory: the row of position k at place k % rows, which are `pitch` bytes apart; of
/// split f32 the first parts of a row, then the second ones, then the third. Rows that differ
/// modulo 8 (tf32: 4) begin in different banks.
struct PanelStaging {
  uint32_t rows = 0, pitch = 0;
  uint64_t bytes() const { return uint64_t{rows} * pitch; }
};
PanelStaging panel_staging(const SpmmSchedule& schedule);
/// Of split f32: shared memory for what a round brings, before it is split, 16 bytes for each copy
/// of each thread; 0 where elements are copied one by one, or windows do not move.
uint64_t panel_raw_bytes(const SpmmSchedule& schedule);
/// Sums of parts of K, in shared memory where rows of B were: for each warp its rows and columns in
/// f32, rows `pitch` bytes apart, which begin in banks of their own.
struct PanelExchange {
  uint32_t pitch = 0;
  uint32_t warp_bytes = 0;
};
PanelExchange panel_exchange(const SpmmSchedule& schedule);
/// All of a block's shared memory.
uint64_t panel_shared_bytes(const SpmmSchedule& schedule);
/// Bytes of the copies; 0 where elements are copied one by one.
uint32_t panel_copy_bytes(const SpmmSchedule& schedule);
/// Columns of C that a lane stores at once: four, or two, where these are aligned.
uint32_t panel_store_columns(const SpmmSchedule& schedule);

/// What sums on tensor cores may be off by for a row of `entries` entries, with S the sum of
/// magnitudes:  (g + operands) S + terms least,  g = terms u / (1 - terms u)  (README.md).
struct PanelError {
  double terms = 0;    ///< additions
  double unit = 0;     ///< u
  double operands = 0; ///< relative, of a product for its rounded, cut or missing factors
  double least = 0;    ///< below it a sum may be lost
};
/// `largest`: magnitude of the row's entries.
PanelError panel_error(const SpmmProblem& problem, uint64_t entries, double largest);

} // namespace sparsertc
