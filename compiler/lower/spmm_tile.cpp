#include "compiler/lower/spmm_tile.h"

#include "compiler/input/convert.h"
#include "compiler/lower/activation.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sparsertc {

using ir::Builder;
using ir::Conversion;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

namespace {

/// A load or store reaches 2^23 - 1 bytes from its base register without an instruction more.
constexpr int kWindowBits = 23;

} // namespace

TileArguments TileArguments::declare(const SpmmSchedule& schedule, Builder& builder) {
  TileArguments arguments;
  arguments.for_each(schedule, [&](Reg& reg, ir::Type type, std::string name) {
    reg = builder.parameter(type, std::move(name));
  });
  return arguments;
}

std::vector<Reg> TileArguments::list(const SpmmSchedule& schedule) {
  std::vector<Reg> registers;
  for_each(schedule, [&](Reg& reg, ir::Type, const std::string&) { registers.push_back(reg); });
  return registers;
}

int64_t RowMap::bytes(uint32_t row) const {
  if (convolution_ == nullptr)
    return stride_ * row;
  const Tap tap = tap_of(*convolution_, row);
  return stride_ * tap.channel + row_ * tap.row + column_ * tap.column;
}

uint32_t RowMap::table_value(uint32_t row) const {
  return convolution_ == nullptr ? row : static_cast<uint32_t>(bytes(row));
}

RowAddress::RowAddress(Builder& builder, const std::vector<Reg>& pointers, RowMap rows,
                       Reg stride_register)
    : builder_(builder), pointers_(pointers), rows_(rows), stride_register_(stride_register),
      windows_(pointers.size()) {}

RowAddress::Place RowAddress::at(uint32_t row, uint32_t pointer) {
  if (stride_register_.valid()) {
    if (row == 0)
      return {pointers_[pointer], 0};
    return {builder_.index(pointers_[pointer], stride_register_, Operand::integer(row)), 0};
  }
  const int64_t bytes = rows_.bytes(row);
  const int64_t number = bytes >> kWindowBits;
  if (number == 0)
    return {pointers_[pointer], bytes};
  Window& window = windows_[pointer];
  const int64_t start = number << kWindowBits;
  if (window.number != number)
    window = {number, builder_.offset(pointers_[pointer], Operand::integer(start))};
  return {window.base, bytes - start};
}

RowAddress::Place RowAddress::at(Reg row, uint32_t pointer) {
  const Operand stride =
      stride_register_.valid() ? Operand(stride_register_) : Operand::integer(rows_.table_stride());
  return {builder_.index(pointers_[pointer], row, stride), 0};
}

void RowAddress::forget_bases() {
  std::fill(windows_.begin(), windows_.end(), Window{});
}

int64_t b_row_bytes(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const int64_t element = element_bytes(problem.type);
  return problem.layout == Layout::row_major ? static_cast<int64_t>(problem.ldb) * element
                                             : element;
}

RowMap b_rows(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  if (!problem.convolution)
    return RowMap(b_row_bytes(schedule));
  const Convolution& convolution = *problem.convolution;
  const int64_t element = element_bytes(problem.type);
  const bool nchw = problem.layout == Layout::row_major;
  const int64_t pixel = nchw ? element : static_cast<int64_t>(problem.ldb) * element;
  return RowMap(convolution,
                nchw ? static_cast<int64_t>(convolution.in_pixels()) * element : element,
                pixel * convolution.width * convolution.dilation_h, pixel * convolution.dilation_w);
}

RowMap c_rows(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const int64_t element = element_bytes(problem.type);
  if (problem.layout == Layout::column_major)
    return RowMap(element);
  return RowMap(element * static_cast<int64_t>(problem.convolution
                                                   ? problem.convolution->out_pixels()
                                                   : problem.ldc));
}

bool parts_are_threads(const SpmmSchedule& schedule) {
  return schedule.tile.parts() > 1 && !schedule.target.is_host;
}

bool tiles_meet_in_clusters(const SpmmSchedule& schedule) {
  return schedule.tile.cluster > 1 && !schedule.target.is_host;
}

bool tiles_meet(const SpmmSchedule& schedule) {
  return schedule.tile.stage == Stage::smem || tiles_meet_in_clusters(schedule);
}

bool leaves_early(const SpmmSchedule& schedule) {
  return schedule.guarded && !parts_are_threads(schedule) && schedule.tile.stage == Stage::global;
}

std::vector<double> rounded_weights(const Matrix& weights, DataType type) {
  // SpMM has no complex arithmetic, and the real parts alone would be another matrix.
  if (!weights.imaginary.empty())
    throw UserError(fmt::format("{}: the values are complex, and code is made for real ones only",
                                weights.name),
                    "give real and imaginary parts as two matrices; sparsertc solve takes complex "
                    "ones");
  constexpr StoredType kStored[] = {StoredType::f32, StoredType::f16, StoredType::bf16,
                                    StoredType::f64};
  const StoredType stored = kStored[static_cast<unsigned>(type)];
  std::vector<double> rounded(weights.values.size());
  const Pattern& pattern = weights.pattern;
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint64_t i = pattern.row_offset[row]; i < pattern.row_offset[row + 1]; ++i) {
      if (!std::isfinite(weights.values[i])) // of a file the reader says so, with the place
        throw UserError(fmt::format("{}: weight {} at row {}, column {} is not finite",
                                    weights.name, weights.values[i], row, pattern.column_index[i]),
                        "repair the weights");
      rounded[i] = round_to(weights.values[i], stored);
      if (!std::isfinite(rounded[i]))
        throw UserError(fmt::format("{}: weight {} at row {}, column {} is too large for {}",
                                    weights.name, weights.values[i], row, pattern.column_index[i],
                                    name_of(type)),
                        "choose a wider --dtype, or scale the weights");
    }
  return rounded;
}

Operand float_operand(Scalar type, double value) {
  return type == Scalar::f64 ? Operand::f64(value) : Operand::f32(static_cast<float>(value));
}

Operand half_operand(Scalar type, double value) {
  const bool is_f16 = type == Scalar::f16 || type == Scalar::f16x2;
  const uint32_t bits = is_f16 ? to_f16(value) : to_bf16(value);
  const bool pair = type == Scalar::f16x2 || type == Scalar::bf16x2;
  return Operand::bits(pair ? static_cast<int64_t>(bits | (bits << 16)) : bits);
}

Reg widen(Builder& builder, Reg value) {
  const Scalar type = builder.function().type_of(value).element();
  if (type == Scalar::f16 || type == Scalar::bf16)
    return builder.convert(Scalar::f32, value, Conversion::exact);
  return value;
}

EpilogueWriter::EpilogueWriter(Builder& builder, const SpmmSchedule& schedule,
                               TileArguments& arguments)
    : builder_(builder), schedule_(schedule), arguments_(arguments),
      c_(builder, arguments.c, c_rows(schedule), arguments.c_stride),
      residual_(builder, arguments.residual, c_rows(schedule), arguments.c_stride) {}

Reg EpilogueWriter::load_bias(uint32_t row) {
  return builder_.load(arguments_.bias, int64_t{row} * element_bytes(schedule_.problem.type), 1,
                       ir::Cache::readonly);
}

Reg EpilogueWriter::load_bias(Reg row) {
  const Reg address =
      builder_.index(arguments_.bias, row, Operand::integer(element_bytes(schedule_.problem.type)));
  return builder_.load(address, 0, 1, ir::Cache::readonly);
}

template <class Row>
void EpilogueWriter::write(Row row, Reg sums) {
  const SpmmProblem& problem = schedule_.problem;
  const Scalar accumulator = accumulator_scalar(problem.type);
  const Scalar element = element_scalar(problem.type);
  const uint32_t vec = schedule_.tile.vec;
  const uint32_t width = schedule_.neighbouring_columns ? vec : 1;
  Reg bias;
  if (problem.epilogue.bias)
    bias = widen(builder_, load_bias(row));
  const bool sums_are_out = element == accumulator && !bias.valid() && !problem.epilogue.residual &&
                            problem.epilogue.activation == Activation::none;
  const Reg out = sums_are_out ? sums : builder_.fresh_tuple(element, vec);
  for (uint32_t v = 0; !sums_are_out && v < vec; v += width) {
    Reg residual;
    if (problem.epilogue.residual) {
      const auto place = residual_.at(row, v / width);
      residual = builder_.load(place.pointer, place.offset, width);
    }
    for (uint32_t i = 0; i < width; ++i) {
      Reg value = sums[v + i];
      if (bias.valid())
        value = builder_.add(accumulator, value, bias);
      if (residual.valid())
        value = builder_.add(accumulator, value, widen(builder_, residual[i]));
      value = write_activation(builder_, accumulator, problem.epilogue.activation, value);
      if (element == accumulator)
        builder_.move(value, out[v + i]);
      else
        builder_.convert(element, value, Conversion::nearest, out[v + i]);
    }
  }
  for (uint32_t v = 0; v < vec; v += width) {
    const auto place = c_.at(row, v / width);
    const bool guarded = !arguments_.inside.empty();
    if (guarded)
      builder_.if_begin(arguments_.inside[v / width]);
    builder_.store(place.pointer, place.offset, out[v], width);
    if (guarded)
      builder_.end();
  }
}

template void EpilogueWriter::write<uint32_t>(uint32_t, Reg);
template void EpilogueWriter::write<Reg>(Reg, Reg);

} // namespace sparsertc
