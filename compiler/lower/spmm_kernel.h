// The registers that a thread of an SpMM or convolution computes before any tile's code: its
// columns, pointers to them, predicates, the number of its tile.
#pragma once

#include "compiler/lower/kernel_manifest.h"
#include "compiler/lower/number.h"
#include "compiler/lower/pixel_writer.h"
#include "compiler/lower/spmm_tile.h"

#include <vector>

namespace sparsertc {

/// The kernel's parameters.
struct KernelOperands {
  ir::Reg b, c, bias, residual;
  /// N, of a convolution the number of images.
  Number n = 0;
  /// Bytes from row to row where the leading dimensions are parameters.
  ir::Reg b_stride, c_stride;

  /// Declares them, and lists them in the manifest.
  static KernelOperands declare(ir::Builder& builder, const SpmmSchedule& schedule,
                                KernelManifest& manifest);
};

/// Of staged rows and of partial sums; UINT32_MAX where there are none.
struct SharedSymbols {
  uint32_t stage = UINT32_MAX, partial = UINT32_MAX;
};

/// Writes what the blocks of one range begin with.
class RangeWriter {
public:
  /// `schedule` is the variant's. The range begins at block `first_block` along x.
  RangeWriter(ir::Builder& builder, const SpmmSchedule& schedule, const BlockRange& range,
              const KernelOperands& operands, Number first_block, SharedSymbols shared)
      : builder_(builder), arithmetic_(builder), schedule_(schedule), tile_(schedule.tile),
        range_(range), operands_(operands), first_block_(first_block), shared_(shared) {}

  void write_prologue();
  TileArguments& arguments() { return arguments_; }
  /// A predicate, where the columns are guarded.
  ir::Reg first_column_inside() const { return inside_[0]; }
  /// Number of this thread's tile: block_y / cluster * groups + thread_y.
  ir::Reg tile_number();
  /// This thread's part of K, where parts are threads: block_y % cluster * splitk + thread_z.
  ir::Reg part();

private:
  ir::Reg thread_x();
  ir::Reg group();
  Number block_in_range();
  void write_columns();
  void write_matrix_pointers();
  void write_pixel_pointers();
  void write_line_pointers();
  void add_pixel(const PixelWriter& writer, const PixelWriter::Pixel& pixel);
  void write_partial_pointer();
  void write_staging_pointers();
  void write_image_pointers();
  void write_image_staging();

  ir::Builder& builder_;
  Arithmetic arithmetic_;
  const SpmmSchedule& schedule_;
  const SpmmTile& tile_;
  const BlockRange& range_;
  const KernelOperands& operands_;
  Number first_block_;
  SharedSymbols shared_;
  TileArguments arguments_;
  Number columns_ = 0; ///< of all blocks of the range
  ir::Reg thread_x_, group_, part_, block_column_;
  Number first_row_ = 0; ///< of the tall image, in the block's region
  std::vector<ir::Reg> thread_columns_, inside_;
};

} // namespace sparsertc
