// The end of the panels kernel (spmm_panels.h): sums of parts of K meet in shared memory, and are
// added up in the order of the parts; then epilogue and stores.
#pragma once

#include "compiler/inspect/panel_schedule.h"
#include "compiler/lower/index_arithmetic.h"
#include "compiler/lower/spmm_kernel.h"
#include "compiler/lower/spmm_tile.h"
#include "ir/builder.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

class PanelStore : IndexArithmetic {
public:
  struct Place {
    ir::Reg staged;       ///< shared memory, which nobody reads any more behind a barrier
    ir::Reg sums;         ///< for each 16 rows, for each 8 columns, four
    ir::Reg thread;       ///< its number in the block
    ir::Reg block_column; ///< of B
    ir::Reg warp_column;  ///< in the block
    ir::Reg panel, has_panel;
  };
  /// `rows`: the symbol of the rows of panels.
  PanelStore(ir::Builder& builder, const SpmmSchedule& schedule, uint32_t rows,
             const KernelOperands& operands, const Place& place);

  void write();

private:
  ir::Reg sums(uint32_t fragment, uint32_t block) const;
  ir::Reg rows_of_panel();
  /// Columns that the epilogue takes at once.
  uint32_t epilogue_columns() const;

  void write_sums();
  ir::Reg exchanged(uint32_t fragment, uint32_t half, uint32_t run, ir::Reg is_odd);
  void put_sums(ir::Reg to);
  /// Another type for the same bits.
  void as_bits(ir::Scalar type, ir::Reg value, ir::Reg result);
  void write_parts();
  ir::Reg added_parts(ir::Reg from, uint32_t offset);

  /// Of runs of four columns that begin at `first`, and each 16 further on.
  std::vector<TileArguments> arguments_of_runs(ir::Reg first, uint32_t runs);
  TileArguments arguments_of(ir::Reg first, uint32_t count);
  /// `out`: for each run four columns of `row`, where there is such a row.
  void write_row(ir::Reg row, const std::vector<ir::Reg>& out,
                 std::vector<TileArguments>& arguments);

  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  const SpmmTile& tile_;
  const KernelOperands& operands_;
  Place place_;
  uint32_t rows_;
  uint32_t fragments_, blocks_; ///< of 16 rows, of 8 columns, that a warp has
  SpmmSchedule of_run_;         ///< as the epilogue sees it
  ir::Scalar staged_;           ///< a word of shared memory
};

} // namespace sparsertc
