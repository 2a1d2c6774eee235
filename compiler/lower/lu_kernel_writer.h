// What the writers of the kernels of sparse LU share.
#pragma once

#include "compiler/lower/lu_dataflow.h"
#include "ir/builder.h"

#include <cstdint>
#include <limits>

namespace sparsertc {

/// No number that arithmetic makes: all bits are set.
inline constexpr int64_t kLuNotReady = -1;

/// Operations on the numbers of one type.
class LuKernelWriter {
public:
  LuKernelWriter(ir::Module& module, const LuKernelOptions& options, const char* name,
                 uint32_t threads)
      : options_(options), type_(options.type), wide_(options.type == ir::Scalar::f64),
        bytes_(wide_ ? 8 : 4), b_(module, function_of(module, name, threads)) {}

protected:
  static ir::Function& function_of(ir::Module& module, const char* name, uint32_t threads) {
    ir::Function& function = module.functions.emplace_back();
    function.name = name;
    function.kind = ir::FunctionKind::kernel;
    function.block[0] = threads;
    return function;
  }

  ir::Reg pointer(const char* name, ir::Scalar element) {
    return b_.parameter(ir::Type::pointer(ir::Space::device, element), name);
  }
  ir::Reg number(const char* name, ir::Scalar type = ir::Scalar::i32) {
    return b_.parameter(type, name);
  }

  ir::Operand real(double value) const {
    return wide_ ? ir::Operand::f64(value) : ir::Operand::f32(static_cast<float>(value));
  }
  ir::Reg real_constant(double value) { return b_.constant(type_, real(value)); }

  /// The bits that tell whether a number is ready: those of its upper half, which are all set in no
  /// other number.
  ir::Reg upper_bits(ir::Reg value) {
    if (!wide_)
      return b_.bitcast(ir::Scalar::i32, value);
    const ir::Reg bits = b_.bitcast(ir::Scalar::i64, value);
    const ir::Reg upper =
        b_.value(ir::Opcode::shr, ir::Scalar::i64, {bits, ir::Operand::integer(32)});
    return b_.convert(ir::Scalar::i32, upper, ir::Conversion::exact);
  }

  ir::Reg not_ready() {
    const ir::Scalar bits = wide_ ? ir::Scalar::i64 : ir::Scalar::i32;
    return b_.bitcast(type_, b_.constant(bits, ir::Operand::integer(kLuNotReady)));
  }

  /// `value`, or the canonical NaN in the place of any NaN.
  ir::Reg canonical(ir::Reg value) {
    const ir::Reg is_nan = b_.compare(ir::Comparison::ne, type_, value, value);
    const ir::Reg nan =
        wide_ ? b_.constant(type_, ir::Operand::f64(std::numeric_limits<double>::quiet_NaN()))
              : b_.constant(type_, ir::Operand::f32(std::numeric_limits<float>::quiet_NaN()));
    return b_.select(type_, is_nan, nan, value);
  }

  /// 1 where a number is infinite or a NaN.
  ir::Reg is_not_finite(ir::Reg value) {
    const ir::Reg difference = b_.sub(type_, value, value);
    return b_.compare(ir::Comparison::ne, type_, difference, difference);
  }

  ir::Reg to_f64(ir::Reg value) {
    return wide_ ? value : b_.convert(ir::Scalar::f64, value, ir::Conversion::exact);
  }
  ir::Reg from_f64(ir::Reg value) {
    return wide_ ? value : b_.convert(type_, value, ir::Conversion::nearest);
  }
  /// The bits of a non-negative number as f64, for comparing as integers.
  ir::Reg ordered_bits(ir::Reg value) { return b_.bitcast(ir::Scalar::i64, to_f64(value)); }

  ir::Reg given_to_f64(ir::Reg value) {
    return options_.given == ir::Scalar::f64
               ? value
               : b_.convert(ir::Scalar::f64, value, ir::Conversion::exact);
  }
  ir::Reg f64_to_given(ir::Reg value) {
    return options_.given == ir::Scalar::f64
               ? value
               : b_.convert(ir::Scalar::f32, value, ir::Conversion::nearest);
  }
  uint32_t given_bytes() const { return options_.given == ir::Scalar::f64 ? 8 : 4; }

  /// The number of the thread in a grid along x.
  ir::Reg thread_number(uint32_t threads) {
    const ir::Reg before =
        b_.mul(ir::Scalar::i32, b_.special(ir::Special::block_x), ir::Operand::integer(threads));
    return b_.add(ir::Scalar::i32, before, b_.special(ir::Special::thread_x));
  }

  ir::Reg element(ir::Reg pointer, ir::Reg index, uint32_t bytes) {
    return b_.index(pointer, index, ir::Operand::integer(bytes));
  }

  /// The sum over the lanes of a group, in all of them: the same bits whichever lane adds.
  void add_lanes(ir::Reg sum, ir::Reg group) {
    for (uint32_t distance = 16; distance > 0; distance /= 2) {
      const ir::Operand step = ir::Operand::integer(distance);
      b_.if_begin(b_.compare(ir::Comparison::gt, ir::Scalar::i32, group, step));
      b_.add(type_, sum, from_lane(ir::Shuffle::butterfly, sum, step), sum);
      b_.end();
    }
  }

  /// The number that another lane has.
  ir::Reg from_lane(ir::Shuffle which, ir::Reg value, ir::Operand lane) {
    if (!wide_)
      return b_.shuffle(which, value, lane);
    const ir::Reg bits = b_.bitcast(ir::Scalar::i64, value);
    const ir::Reg low = b_.convert(ir::Scalar::i32, bits, ir::Conversion::exact);
    const ir::Reg upper = upper_bits(value);
    const ir::Reg other_low = b_.shuffle(which, low, lane);
    const ir::Reg other_upper = b_.shuffle(which, upper, lane);
    const ir::Reg left = b_.value(
        ir::Opcode::shl, ir::Scalar::i64,
        {b_.convert(ir::Scalar::i64, other_upper, ir::Conversion::zero), ir::Operand::integer(32)});
    const ir::Reg right = b_.convert(ir::Scalar::i64, other_low, ir::Conversion::zero);
    return b_.bitcast(type_, b_.value(ir::Opcode::bit_or, ir::Scalar::i64, {left, right}));
  }

  const LuKernelOptions& options_;
  const ir::Type type_;
  const bool wide_;
  const uint32_t bytes_;
  ir::Builder b_;
};

/// The two kernels that go before those of the dataflow.
void write_lu_input(ir::Module& module, const LuKernelOptions& options);
void write_lu_solve_input(ir::Module& module, const LuKernelOptions& options);
/// The two kernels of the solve by one block; options.block_rows is not 0.
void write_lu_block_solve(ir::Module& module, const LuKernelOptions& options);

} // namespace sparsertc
