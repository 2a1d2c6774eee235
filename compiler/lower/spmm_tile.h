// What the writers of SpMM code share: the arguments of a tile, addresses of rows, the epilogue.
#pragma once

#include "compiler/input/matrix.h"
#include "compiler/inspect/spmm_schedule.h"
#include "compiler/inspect/staged_region.h"
#include "compiler/lower/tap_bits.h"
#include "ir/builder.h"

#include <vector>

namespace sparsertc {

/// Registers that a thread's tile code works on. The kernel makes them and hands them to the tile's
/// function, where they are parameters in the same order (see for_each).
struct TileArguments {
  /// Pointers to the thread's columns in row 0: one where the columns are neighbours, else one for
  /// each column.
  std::vector<ir::Reg> b, c, residual;
  /// Predicates "this column is below N", one for each pointer; empty where no store needs a
  /// guard.
  std::vector<ir::Reg> inside;
  ir::Reg bias;
  /// Bytes from row to row (i32) where the leading dimensions are parameters.
  ir::Reg b_stride, c_stride;
  /// Split K on a GPU: this thread's first partial sum, and its group's barrier (i32; clusters
  /// have their own).
  ir::Reg partial, barrier;
  /// Staged B: where this thread's columns are read, where its copies go, where they come from (for
  /// each pass of them), and the row of B or channel (i32) its first copy belongs to.
  ir::Reg staged_columns, staged_copies, copy_row;
  std::vector<ir::Reg> copy_sources;
  /// Staged images: bytes (i32) that each pass reads, 0 outside the image; whether the thread takes
  /// part in the last pass, invalid where all do.
  std::vector<ir::Reg> copy_bytes;
  ir::Reg copies_last;
  /// Border of a convolution: which rows and columns of the filter are inside the image, as bits of
  /// i32 words (TapBits).
  std::vector<ir::Reg> taps;

  /// Calls visit(register, type, name) for every register that this schedule uses, in order.
  template <class Visit>
  void for_each(const SpmmSchedule& schedule, Visit visit);
  /// The parameters of a new device function, in the order of for_each.
  static TileArguments declare(const SpmmSchedule& schedule, ir::Builder& builder);
  /// The registers as an argument list.
  std::vector<ir::Reg> list(const SpmmSchedule& schedule);
};

/// Where the rows of a matrix lie: bytes from a thread's pointer to its column in row k.
class RowMap {
public:
  /// Rows that are `stride` bytes apart.
  explicit RowMap(int64_t stride) : stride_(stride) {}
  /// The rows of the virtual B of a convolution: `channel`, `row` and `column` are the bytes from
  /// one channel, and from one tap along each axis, to the next.
  RowMap(const Convolution& convolution, int64_t channel, int64_t row, int64_t column)
      : convolution_(&convolution), stride_(channel), row_(row), column_(column) {}

  int64_t bytes(uint32_t row) const;
  /// What stands for a row in tables, and by how many bytes to multiply it.
  uint32_t table_value(uint32_t row) const;
  int64_t table_stride() const { return convolution_ != nullptr ? 1 : stride_; }

private:
  const Convolution* convolution_ = nullptr;
  int64_t stride_;
  int64_t row_ = 0, column_ = 0;
};
/// Of B, and of C and the residual.
RowMap b_rows(const SpmmSchedule& schedule);
RowMap c_rows(const SpmmSchedule& schedule);

/// Addresses rows of a matrix: constant offsets where they are known, kept within the 24 signed
/// bits of an instruction by moving the base; a product otherwise.
class RowAddress {
public:
  struct Place {
    ir::Reg pointer;
    int64_t offset;
  };

  /// Where `stride_register` (i32) is valid, rows are that many bytes apart.
  RowAddress(ir::Builder& builder, const std::vector<ir::Reg>& pointers, RowMap rows,
             ir::Reg stride_register);

  /// Of row `row` for the pointer-th pointer.
  Place at(uint32_t row, uint32_t pointer);
  /// Of a row in a register (i32), as tables have it.
  Place at(ir::Reg row, uint32_t pointer);
  /// Forgets moved bases: where a block of control flow begins or ends.
  void forget_bases();

private:
  struct Window {
    int64_t number = 0;
    ir::Reg base;
  };
  ir::Builder& builder_;
  const std::vector<ir::Reg>& pointers_;
  RowMap rows_;
  ir::Reg stride_register_;
  std::vector<Window> windows_;
};

/// Bytes from row to row of B, not of a convolution: for column-major storage one element.
int64_t b_row_bytes(const SpmmSchedule& schedule);

/// The order in which border sums go through the rows of B: a chunk of channels, in it the taps, in
/// these the channels; one question for each tap of a chunk.
class BorderOrder {
public:
  explicit BorderOrder(const SpmmSchedule& schedule)
      : convolution_(*schedule.problem.convolution), channels_(schedule.border_channels),
        classes_(border_taps(schedule)), bits_(convolution_) {}

  uint64_t question_of(uint32_t row_of_b) const {
    return row_of_b / classes_.size() / channels_ * classes_.size() + row_of_b % classes_.size();
  }
  bool is_possible(uint32_t row_of_b) const { return class_of(row_of_b).possible; }
  /// Masks of TapBits' words.
  std::vector<uint32_t> asked(uint32_t row_of_b) const {
    const Tap tap = tap_of(convolution_, row_of_b);
    return bits_.asked(class_of(row_of_b), tap.row, tap.column);
  }

private:
  const TapClass& class_of(uint32_t row_of_b) const { return classes_[row_of_b % classes_.size()]; }

  const Convolution& convolution_;
  uint32_t channels_;
  std::vector<TapClass> classes_;
  TapBits bits_;
};

/// Split K with a thread for each part, of one block or of several in a cluster, and sums exchanged
/// in shared memory.
bool parts_are_threads(const SpmmSchedule& schedule);
/// Of which some are threads of other blocks.
bool tiles_meet_in_clusters(const SpmmSchedule& schedule);
/// All threads of a block meet at barriers in its tiles' code.
bool tiles_meet(const SpmmSchedule& schedule);

/// Threads whose first column is beyond N leave before the tile's code. Not where threads meet at
/// barriers.
bool leaves_early(const SpmmSchedule& schedule);

/// The weights rounded to the type of the problem (nearest even), as f64. Throws UserError for a
/// weight that becomes infinite, and for complex ones.
std::vector<double> rounded_weights(const Matrix& weights, DataType type);

/// An immediate of f32 or f64.
ir::Operand float_operand(ir::Scalar type, double value);
/// An immediate of f16, bf16 (one element) or f16x2, bf16x2 (both halves the same).
ir::Operand half_operand(ir::Scalar type, double value);

/// Converts f16 and bf16 exactly to f32; f32 and f64 pass.
ir::Reg widen(ir::Builder& builder, ir::Reg value);

/// Writes out = activation(sum + bias + residual) for one row and stores it. `sums` holds the
/// tile's `vec` sums of the row (consecutive registers); `Row` is a number or a register.
class EpilogueWriter {
public:
  EpilogueWriter(ir::Builder& builder, const SpmmSchedule& schedule, TileArguments& arguments);
  void write_row(uint32_t row, ir::Reg sums) { write(row, sums); }
  void write_row(ir::Reg row, ir::Reg sums) { write(row, sums); }

private:
  template <class Row>
  void write(Row row, ir::Reg sums);
  ir::Reg load_bias(uint32_t row);
  ir::Reg load_bias(ir::Reg row);

  ir::Builder& builder_;
  const SpmmSchedule& schedule_;
  TileArguments& arguments_;
  RowAddress c_, residual_;
};

/// Writes the body of tile `tile`, part `part` (parts_are_threads) into the builder's function.
void write_unrolled_tile(ir::Builder& builder, const SpmmSchedule& schedule, const Pattern& pattern,
                         const std::vector<double>& weights, TileArguments& arguments,
                         uint32_t tile, uint32_t part);

/// Device symbols of the streamed strategy; `segments` for the border of convolutions only.
struct StreamSymbols {
  uint32_t tile_begin, row_table, columns, values, segments;
};
StreamSymbols add_stream_symbols(ir::Module& module, const SpmmSchedule& schedule,
                                 const Pattern& pattern, const std::vector<double>& weights);
/// Writes the loop over the rows of tile number `tile` (register, i32) for part `part` (a register,
/// valid where parts are threads).
void write_streamed_tile(ir::Builder& builder, const SpmmSchedule& schedule,
                         const StreamSymbols& symbols, TileArguments& arguments, ir::Reg tile,
                         ir::Reg part);

// ---- implementation of the template ----

template <class Visit>
void TileArguments::for_each(const SpmmSchedule& schedule, Visit visit) {
  using ir::Scalar;
  using ir::Space;
  using ir::Type;
  const SpmmProblem& problem = schedule.problem;
  const Type element = Type::pointer(Space::device, element_scalar(problem.type));
  const Type staged = Type::pointer(Space::shared, element_scalar(problem.type));
  const uint32_t pointers = schedule.neighbouring_columns ? 1 : schedule.tile.vec;
  const bool stage = schedule.tile.stage == Stage::smem;
  auto visit_all = [&](std::vector<ir::Reg>& registers, Type type, const char* name) {
    registers.resize(pointers);
    for (uint32_t i = 0; i < pointers; ++i)
      visit(registers[i], type, name + (pointers == 1 ? std::string() : std::to_string(i)));
  };
  if (!stage)
    visit_all(b, element, "b");
  visit_all(c, element, "c");
  if (problem.epilogue.bias)
    visit(bias, element, std::string("bias"));
  if (problem.epilogue.residual)
    visit_all(residual, element, "residual");
  if (schedule.guarded && !(leaves_early(schedule) && pointers == 1))
    visit_all(inside, Scalar::pred, "inside");
  if (schedule.leading_dimension_parameters) {
    visit(b_stride, Scalar::i32, std::string("b_stride"));
    visit(c_stride, Scalar::i32, std::string("c_stride"));
  }
  if (parts_are_threads(schedule)) {
    visit(partial, Type::pointer(Space::shared, accumulator_scalar(problem.type)),
          std::string("partial"));
    if (!tiles_meet_in_clusters(schedule))
      visit(barrier, Scalar::i32, std::string("barrier"));
  }
  if (schedule.asks_taps) {
    taps.resize(TapBits(*problem.convolution).words());
    for (size_t i = 0; i < taps.size(); ++i)
      visit(taps[i], Scalar::i32, taps.size() == 1 ? "taps" : "taps" + std::to_string(i));
  }
  if (stage) {
    visit(staged_columns, staged, std::string("staged_columns"));
    visit(staged_copies, staged, std::string("staged_copies"));
    const bool images = stages_images(schedule);
    const StagedRegion region = images ? staged_region(schedule) : StagedRegion();
    copy_sources.resize(region.passes);
    copy_bytes.resize(images ? region.passes : 0);
    for (size_t i = 0; i < copy_sources.size(); ++i)
      visit(copy_sources[i], element, "copy_source" + std::to_string(i));
    for (size_t i = 0; i < copy_bytes.size(); ++i)
      visit(copy_bytes[i], Scalar::i32, "copy_bytes" + std::to_string(i));
    if (!images || region.channels_a_pass > 1)
      visit(copy_row, Scalar::i32, std::string("copy_row"));
    if (images && region.last_pass_threads != copying_threads(schedule))
      visit(copies_last, Scalar::pred, std::string("copies_last"));
  }
}

} // namespace sparsertc
