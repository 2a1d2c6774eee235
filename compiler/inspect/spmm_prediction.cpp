// Counts the code of a schedule without writing it.
#include "compiler/inspect/spmm_schedule.h"

#include <algorithm>

namespace sparsertc {
namespace {

constexpr uint64_t kInstructionBytes = 16; // Volta and newer
/// Instructions of a tile function besides loads, multiply-adds and stores: parameters, return.
constexpr uint64_t kTileOverhead = 16;
constexpr uint64_t kStreamedCode = 160;

/// Distinct columns used by the rows of one tile, added over all tiles.
uint64_t count_used_columns(const Pattern& pattern, const SpmmSchedule& schedule) {
  std::vector<uint32_t> last_tile(pattern.columns, UINT32_MAX);
  uint64_t used = 0;
  for (uint32_t tile = 0; tile < schedule.tile_count(); ++tile)
    for (uint32_t i = schedule.tile_begin[tile]; i < schedule.tile_begin[tile + 1]; ++i)
      for (uint32_t column : pattern.row(schedule.row_order[i]))
        if (last_tile[column] != tile) {
          last_tile[column] = tile;
          ++used;
        }
  return used;
}

double tile_balance(const Pattern& pattern, const SpmmSchedule& schedule) {
  if (schedule.tile_count() == 0 || pattern.nnz() == 0)
    return 1.0;
  uint64_t heaviest = 0;
  for (uint32_t tile = 0; tile < schedule.tile_count(); ++tile) {
    uint64_t work = 0;
    for (uint32_t i = schedule.tile_begin[tile]; i < schedule.tile_begin[tile + 1]; ++i)
      work += pattern.row_length(schedule.row_order[i]);
    heaviest = std::max(heaviest, work);
  }
  return static_cast<double>(heaviest) * schedule.tile_count() / static_cast<double>(pattern.nnz());
}

} // namespace

SpmmPrediction predict_spmm(const Pattern& pattern, const SpmmSchedule& schedule) {
  SpmmPrediction prediction;
  if (schedule.tile_count() == 0)
    return prediction;
  const SpmmTile& tile = schedule.tile;
  const uint64_t outputs = uint64_t{schedule.rows} * tile.vec;
  prediction.balance = tile_balance(pattern, schedule);
  if (tile.strategy == Strategy::streamed) {
    const uint64_t entries = streamed_entries_per_step(tile);
    prediction.multiply_adds = (entries + 1) * tile.vec;
    prediction.loads = (entries + 1) * tile.vec;
    prediction.instructions =
        kStreamedCode + (entries + 1) * (4 + 2 * tile.vec) + 8ull * tile.vec * tile.splitk;
    prediction.code_bytes = prediction.instructions * kInstructionBytes;
    prediction.data_bytes = pattern.nnz() * (4 + element_bytes(schedule.problem.type)) +
                            uint64_t{schedule.rows} * tile.splitk * 16;
    return prediction;
  }
  const uint64_t loads_a_column = schedule.neighbouring_columns ? 1 : tile.vec;
  prediction.multiply_adds = pattern.nnz() * tile.vec;
  prediction.loads = count_used_columns(pattern, schedule) * loads_a_column;
  const uint64_t address = schedule.leading_dimension_parameters ? prediction.loads : 0;
  const bool half =
      schedule.problem.type == DataType::f16 || schedule.problem.type == DataType::bf16;
  const uint64_t conversions = half ? prediction.loads / loads_a_column * tile.vec : 0;
  const uint64_t reduction = tile.splitk > 1 ? 2 * outputs * tile.splitk : 0;
  prediction.instructions = prediction.multiply_adds + prediction.loads + address + conversions +
                            reduction + 2 * outputs +
                            uint64_t{schedule.tile_count()} * tile.splitk * kTileOverhead;
  prediction.code_bytes = prediction.instructions * kInstructionBytes;
  if (tile.weights == WeightOperand::constant_bank)
    prediction.data_bytes = std::min<uint64_t>(
        65536, pattern.nnz() * ir::size_in_bytes(accumulator_scalar(schedule.problem.type)));
  return prediction;
}

uint32_t streamed_entries_per_step(const SpmmTile& tile) {
  return tile.prefetch >= 8 ? 8 : 4;
}

} // namespace sparsertc
