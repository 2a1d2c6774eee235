// Counts the code of a schedule without writing it.
#include "compiler/inspect/bitmap_schedule.h"
#include "compiler/inspect/compressed_schedule.h"
#include "compiler/inspect/dense_schedule.h"
#include "compiler/inspect/panel_schedule.h"

#include <algorithm>

namespace sparsertc {
namespace {

constexpr uint64_t kInstructionBytes = 16; // Volta and newer
/// Instructions of a tile function besides loads, multiply-adds and stores: parameters, return.
constexpr uint64_t kTileOverhead = 16;
constexpr uint64_t kStreamedCode = 160;

/// Distinct columns used by the rows of one tile, added over all tiles. `counts(column)`: whether
/// the code has it at all.
template <class Counts>
uint64_t count_used_columns(const Pattern& pattern, const SpmmSchedule& schedule, Counts counts) {
  std::vector<uint32_t> last_tile(pattern.columns, UINT32_MAX);
  uint64_t used = 0;
  for (uint32_t tile = 0; tile < schedule.tile_count(); ++tile)
    for (uint32_t i = schedule.tile_begin[tile]; i < schedule.tile_begin[tile + 1]; ++i)
      for (uint32_t column : pattern.row(schedule.row_order[i]))
        if (last_tile[column] != tile && counts(column)) {
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
  if (tile.strategy == Strategy::compressed)
    return predict_compressed(pattern, schedule);
  if (tile.strategy == Strategy::panels)
    return predict_panels(schedule);
  if (tile.strategy == Strategy::bitmap)
    return predict_bitmap(pattern, schedule);
  if (tile.strategy == Strategy::dense)
    return predict_dense(schedule);
  prediction.balance = tile_balance(pattern, schedule);
  bool has[2] = {}; // interior, border
  for (const BlockRange& range : schedule.ranges)
    has[range.border] = true;
  if (tile.strategy == Strategy::streamed) {
    const uint64_t entries = streamed_entries_per_step(tile);
    for (const bool border : {false, true}) {
      if (!has[border])
        continue;
      const uint64_t vec = border ? 1 : tile.vec;
      const uint64_t products = (entries + 1) * vec;
      prediction.multiply_adds += products;
      prediction.loads += products;
      prediction.instructions +=
          kStreamedCode + (entries + 1) * (4 + 2 * vec) + 8 * vec * tile.parts();
      prediction.data_bytes += pattern.nnz() * (4 + element_bytes(schedule.problem.type)) +
                               uint64_t{schedule.rows} * tile.parts() * 16;
      if (border)
        prediction.border_multiply_adds = prediction.border_loads = products;
    }
    prediction.code_bytes = prediction.instructions * kInstructionBytes;
    return prediction;
  }
  const bool half =
      schedule.problem.type == DataType::f16 || schedule.problem.type == DataType::bf16;
  const auto add_variant = [&](uint64_t multiply_adds, uint64_t used_columns, uint64_t vec) {
    const uint64_t loads = used_columns * (schedule.neighbouring_columns ? 1 : vec);
    const uint64_t outputs = uint64_t{schedule.rows} * vec;
    const uint64_t address = schedule.leading_dimension_parameters ? loads : 0;
    const uint64_t conversions = half ? used_columns * vec : 0;
    const uint64_t reduction = tile.parts() > 1 ? 2 * outputs * tile.parts() : 0;
    prediction.multiply_adds += multiply_adds * vec;
    prediction.loads += loads;
    prediction.instructions += multiply_adds * vec + loads + address + conversions + reduction +
                               2 * outputs +
                               uint64_t{schedule.tile_count()} * tile.parts() * kTileOverhead;
  };
  if (has[0])
    add_variant(pattern.nnz(), count_used_columns(pattern, schedule, [](uint32_t) { return true; }),
                tile.vec);
  if (has[1]) {
    const std::vector<TapClass> taps = border_taps(schedule);
    const auto possible = [&](uint32_t column) { return taps[column % taps.size()].possible; };
    const uint64_t entries = static_cast<uint64_t>(
        std::count_if(pattern.column_index.begin(), pattern.column_index.end(), possible));
    const uint64_t multiply_adds = prediction.multiply_adds, loads = prediction.loads;
    add_variant(entries, count_used_columns(pattern, schedule, possible), 1);
    prediction.border_multiply_adds = prediction.multiply_adds - multiply_adds;
    prediction.border_loads = prediction.loads - loads;
  }
  prediction.code_bytes = prediction.instructions * kInstructionBytes;
  if (pattern.nnz() != 0)
    prediction.multiply_adds_ratio = static_cast<double>(prediction.multiply_adds) /
                                     static_cast<double>(pattern.nnz() * tile.vec);
  if (tile.weights == WeightOperand::constant_bank)
    prediction.data_bytes = std::min<uint64_t>(
        65536, pattern.nnz() * ir::size_in_bytes(accumulator_scalar(schedule.problem.type)));
  return prediction;
}

uint32_t streamed_entries_per_step(const SpmmTile& tile) {
  return tile.prefetch >= 8 ? 8 : 4;
}

} // namespace sparsertc
