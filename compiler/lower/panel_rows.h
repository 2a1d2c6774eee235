// Rows of B on their way into shared memory, for the panels kernel (spmm_panels.h), in the order of
// positions (panel_packing.h). Rows lie as
// PanelStaging says, a block has its columns of them. f16, bf16 and tf32 come by asynchronous
// copies where B has pieces of 16 bytes; so does f32 in three parts, a round earlier, into places
// of the thread that copies (panel_raw_bytes), from where a share is split behind each step's
// products. (Loads into registers were sunk by the assembler to where they are used, and waited for
// there.)
#pragma once

#include "compiler/inspect/panel_schedule.h"
#include "compiler/lower/number.h"
#include "ir/builder.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace sparsertc {

/// A word of B in shared memory.
ir::Scalar panel_staged_scalar(const SpmmProblem& problem);

class PanelRows {
public:
  struct Place {
    ir::Reg b;            ///< device memory
    ir::Reg staged;       ///< shared memory
    ir::Reg raw;          ///< shared memory for what is not split yet (panel_raw_bytes)
    ir::Reg thread;       ///< its number in the block
    ir::Reg block_column; ///< of B
  };
  PanelRows(ir::Builder& builder, const SpmmSchedule& schedule, const Place& place);

  /// Starts to copy rows [first, end), or copies them; a group of copies, perhaps an empty one.
  void copy_first(uint32_t first, uint32_t end);
  /// From here on a round brings `advance` rows, the first one those from `row` on.
  void begin_rounds(uint32_t row);
  /// Starts to copy a round's rows, or copies them, as far as A has columns; a group of copies.
  /// Where its steps take their shares of them, nothing.
  void copy_round();
  /// Splits a step's share of a round's rows, and starts the copies of the next round's.
  void split_share(uint32_t step);
  /// The rows of the next round take their turn.
  void end_round();
  /// An empty group of copies, where copies have groups.
  void commit();
  /// Waits until no more than `groups` of copies are on their way.
  void wait(uint32_t groups);

private:
  /// Rows that are copied at once: where this thread's first one lies in memory and in shared
  /// memory (below staging_.rows), and how many rows there are from that one on. Where positions
  /// leap `row` is its number in B, and `source` that of row 0.
  struct Front {
    ir::Reg source, place, left, row;
    uint32_t most = UINT32_MAX; ///< from the block's first row on
  };
  /// 16 bytes of a row in registers.
  struct Piece {
    ir::Reg target, inside, values;
  };

  uint32_t threads() const {
    return schedule_.threads_x * schedule_.tile.groups * schedule_.tile.splitk;
  }
  uint32_t block_columns() const { return schedule_.columns_per_block(); }
  uint32_t pieces_of_row() const { return block_columns() / (piece_bytes_ / size_); }
  uint32_t rows_at_once() const { return threads() / pieces_of_row(); }
  uint32_t passes(uint32_t rows) const;
  bool leaps() const { return schedule_.panels.stride != 1; }
  /// Rows of B that `positions` leap over, modulo all of them.
  uint32_t rows_over(uint64_t positions) const {
    return schedule_.panels.column_at(static_cast<uint32_t>(positions % schedule_.panels.columns));
  }
  bool has_shares() const { return panel_raw_bytes(schedule_) != 0; }
  /// Of a round: one for each step of a warp.
  uint32_t shares() const { return schedule_.panels.shape.steps_of_round / schedule_.tile.splitk; }
  /// Passes of a round's rows that are a step's share: [first, end).
  std::pair<uint32_t, uint32_t> share(uint32_t step) const;
  void copy_share(uint32_t step);

  Front front_of(uint32_t first, uint32_t end);
  void move_on(Front& front);
  /// `rows`: no more than these.
  void copy_pieces(const Front& front, uint32_t rows);
  void copy_elements(ir::Reg first, uint32_t most, uint32_t end);
  void set_piece();
  /// Of the row `offset` rows behind the front's.
  ir::Reg inside(const Front& front, Number offset);
  ir::Reg source_of(const Front& front, Number offset);
  ir::Reg target_of(const Front& front, Number offset);
  ir::Reg wrapped(ir::Reg number, uint32_t count, ir::Reg result = {});
  void copy_piece(const Front& front, Number offset);
  Piece piece_of(const Front& front, Number offset);
  Piece load_piece(const Front& front, Number offset);
  void store_piece(const Piece& piece);
  std::vector<ir::Reg> split(ir::Reg first, ir::Reg second);

  ir::Reg add(ir::Reg a, Number b) { return arithmetic_.in_register(arithmetic_.add(a, b)); }
  ir::Reg less(ir::Reg a, ir::Operand b);
  ir::Reg both(ir::Reg a, ir::Reg b);
  ir::Reg masked(ir::Reg bits);

  ir::Builder& builder_;
  Arithmetic arithmetic_;
  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  Place place_;
  PanelOperands operands_;
  PanelStaging staging_;
  uint32_t size_;        ///< of an element of B
  uint32_t piece_bytes_; ///< 0: elements are copied one by one
  ir::Reg raw_place_;    ///< of this thread
  ir::Reg piece_, piece_row_, piece_source_, piece_staged_, piece_filled_;
  Front front_; ///< of a round, where there are pieces
  Front raw_;   ///< of the next one, where rounds have shares
  ir::Reg row_; ///< its first row, where there are none
};

} // namespace sparsertc
