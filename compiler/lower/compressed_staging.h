// How a compressed kernel brings rows of B into shared memory, spaced by rows of zeros
// (compiler/inspect/compressed_stream.h).
#pragma once

#include "compiler/inspect/spmm_schedule.h"
#include "ir/builder.h"

namespace sparsertc {

class CompressedStaging {
public:
  struct Given {
    ir::Reg thread;       ///< i32
    ir::Reg block_column; ///< i32, the block's first
    ir::Reg b;            ///< the block's first row of B
    ir::Reg staged;       ///< where it goes
  };
  /// `builder` and `schedule` must outlive it.
  CompressedStaging(ir::Builder& builder, const SpmmSchedule& schedule, const Given& given);

  /// Whole pieces of rows, by asynchronous copies (row_staging_bytes).
  void copy_pieces();
  /// One column after the other through registers, neighbouring threads with neighbouring rows.
  void copy_elements();
  void store_zeros();

private:
  ir::Reg add(ir::Reg a, ir::Operand b);
  ir::Reg mul(ir::Reg a, int64_t b);
  ir::Reg div(ir::Reg a, uint32_t b);
  ir::Reg rem(ir::Reg a, uint32_t b);
  ir::Reg less(ir::Reg a, ir::Operand b);
  ir::Reg place_of(ir::Reg row);
  template <class Body, class Finish>
  void for_rows(ir::Reg first, uint32_t stride, uint32_t in_flight, Body body, Finish finish);

  ir::Builder& builder_;
  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  const CompressedStream& stream_;
  const Given given_;
  ir::Scalar element_, staged_element_;
  uint32_t size_, staged_size_, row_bytes_;
  int64_t b_row_bytes_, b_column_bytes_;
};

} // namespace sparsertc
