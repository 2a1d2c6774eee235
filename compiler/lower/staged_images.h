// A convolution's B read from staged images: chunks of channels in shared memory, of each the
// region that the windows of the block's output pixels cover (StagedRegion), taps as offsets.
#pragma once

#include "compiler/inspect/staged_region.h"
#include "compiler/lower/spmm_tile.h"
#include "compiler/lower/staged_chunks.h"

#include <vector>

namespace sparsertc {

class StagedImages {
public:
  StagedImages(ir::Builder& builder, const SpmmSchedule& schedule, TileArguments& arguments);
  StagedImages(const StagedImages&) = delete;

  /// The thread's elements of row k; valid until the next call. Where its pixels are loaded in
  /// vectors, taps side by side share them.
  const std::vector<ir::Reg>& load(uint32_t k);
  void finish() { chunks_.finish(); }

private:
  void copy_chunk(uint32_t chunk);
  void copy_pass(uint32_t chunk, uint32_t pass);
  ir::Reg load_vector(uint32_t first_of_row, uint32_t vector);

  ir::Builder& builder_;
  const SpmmSchedule& schedule_;
  const Convolution& convolution_;
  const SpmmTile& tile_;
  TileArguments& arguments_;
  StagedRegion region_;
  uint32_t element_;
  RowAddress source_;
  std::vector<ir::Reg> loaded_;
  /// Of the filter row that was read last: its place, and the vectors of its elements.
  uint32_t vectors_of_ = UINT32_MAX;
  std::vector<ir::Reg> vectors_;
  StagedChunks chunks_; ///< begins to copy when it is made
};

} // namespace sparsertc
