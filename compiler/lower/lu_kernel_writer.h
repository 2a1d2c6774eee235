// What the writers of the kernels of sparse LU share.
#pragma once

#include "compiler/lower/lu_dataflow.h"
#include "ir/builder.h"

#include <cstdint>
#include <limits>

namespace sparsertc {

/// No number that arithmetic makes: all bits are set.
inline constexpr int64_t kLuNotReady = -1;

/// A number in registers; `im` is there where numbers are complex.
struct LuNumber {
  ir::Reg re, im;
};

/// Operations on the numbers of one type, real or complex.
///
/// A number lies in memory in *pieces*, which are loaded and stored whole: f32, f64 and c64 are one
/// piece, of 4 or 8 bytes, c128 is two of 8. Each piece is its own ready flag, so a number of two
/// is there when both are, whichever comes first: nothing is asked of accesses of 16 bytes, which
/// PTX does not promise to keep whole.
class LuKernelWriter {
public:
  LuKernelWriter(ir::Module& module, const LuKernelOptions& options, const char* name,
                 uint32_t threads)
      : options_(options), type_(options.type), complex_(options.complex),
        wide_(options.type == ir::Scalar::f64),
        piece_(complex_ && !wide_ ? ir::Scalar::i64 : options.type),
        piece_bytes_(complex_ || wide_ ? 8 : 4), pieces_(complex_ && wide_ ? 2 : 1),
        bytes_(piece_bytes_ * pieces_), b_(module, function_of(module, name, threads)) {}

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
  /// To numbers of the factors' type, and of the caller's.
  ir::Reg number_pointer(const char* name) { return pointer(name, piece_); }
  ir::Reg given_pointer(const char* name) { return pointer(name, options_.given); }
  ir::Reg number(const char* name, ir::Scalar type = ir::Scalar::i32) {
    return b_.parameter(type, name);
  }

  // ---- pieces
  ir::Reg zero_pieces() {
    const ir::Reg pieces = b_.fresh_tuple(piece_, pieces_);
    clear(pieces, pieces_);
    return pieces;
  }
  void clear(ir::Reg pieces, uint32_t count) {
    const ir::Operand zero = complex_ && !wide_ ? ir::Operand::integer(0) : real(0);
    for (uint32_t i = 0; i < count; ++i)
      b_.constant(piece_, zero, pieces[i]);
  }
  ir::Reg load_pieces(ir::Reg place, ir::Cache cache, ir::Reg result = {}) {
    return b_.load(place, 0, pieces_, cache, result);
  }
  /// What another thread may be storing: look at the pieces before taking them for a number.
  void load_published(ir::Reg place, ir::Reg pieces) {
    for (uint32_t i = 0; i < pieces_; ++i)
      b_.load_ordered(ir::Order::relaxed_device, place, i * piece_bytes_, pieces[i]);
  }
  LuNumber unpack(ir::Reg pieces) {
    if (!complex_)
      return {pieces, {}};
    if (wide_)
      return {pieces[0], pieces[1]};
    const ir::Reg low = b_.convert(ir::Scalar::i32, pieces, ir::Conversion::exact);
    return {b_.bitcast(type_, low), b_.bitcast(type_, upper_bits(pieces))};
  }
  ir::Reg pack(LuNumber value) {
    if (!complex_)
      return value.re;
    if (wide_) {
      const ir::Reg pieces = b_.fresh_tuple(piece_, pieces_);
      b_.move(value.re, pieces[0]);
      b_.move(value.im, pieces[1]);
      return pieces;
    }
    return join(b_.bitcast(ir::Scalar::i32, value.re), b_.bitcast(ir::Scalar::i32, value.im));
  }
  LuNumber load_number(ir::Reg place, ir::Cache cache = ir::Cache::normal) {
    return unpack(load_pieces(place, cache));
  }
  void store_number(ir::Reg place, LuNumber value) { b_.store(place, 0, pack(value), pieces_); }
  /// Stores a number that others wait for; none of its pieces looks as if it were not there yet.
  void publish(ir::Reg place, LuNumber value) {
    const ir::Reg pieces = pack(canonical(value));
    for (uint32_t i = 0; i < pieces_; ++i)
      b_.store_ordered(ir::Order::relaxed_device, place, i * piece_bytes_, pieces[i]);
  }
  void store_not_ready(ir::Reg place) {
    const ir::Reg bits = b_.constant(piece_bytes_ == 8 ? ir::Scalar::i64 : ir::Scalar::i32,
                                     ir::Operand::integer(kLuNotReady));
    const ir::Reg pieces = b_.fresh_tuple(piece_, pieces_);
    for (uint32_t i = 0; i < pieces_; ++i)
      if (complex_ && !wide_)
        b_.move(bits, pieces[i]);
      else
        b_.bitcast(piece_, bits, pieces[i]);
    b_.store(place, 0, pieces, pieces_);
  }
  /// The bits that tell whether a piece (or a real number) is ready: those of its upper half, which
  /// are all set in no other one.
  ir::Reg upper_bits(ir::Reg piece) {
    const ir::Type type = b_.function().type_of(piece);
    if (type == ir::Scalar::f32)
      return b_.bitcast(ir::Scalar::i32, piece);
    const ir::Reg bits = type == ir::Scalar::f64 ? b_.bitcast(ir::Scalar::i64, piece) : piece;
    const ir::Reg upper =
        b_.value(ir::Opcode::shr, ir::Scalar::i64, {bits, ir::Operand::integer(32)});
    return b_.convert(ir::Scalar::i32, upper, ir::Conversion::exact);
  }

  // ---- arithmetic
  ir::Operand real(double value) const {
    return wide_ ? ir::Operand::f64(value) : ir::Operand::f32(static_cast<float>(value));
  }
  ir::Reg real_constant(double value) { return b_.constant(type_, real(value)); }
  LuNumber zero() { return {real_constant(0), complex_ ? real_constant(0) : ir::Reg{}}; }
  void move(LuNumber value, LuNumber result) {
    b_.move(value.re, result.re);
    if (complex_)
      b_.move(value.im, result.im);
  }
  void clear(LuNumber value) {
    b_.constant(type_, real(0), value.re);
    if (complex_)
      b_.constant(type_, real(0), value.im);
  }
  ir::Reg negated(ir::Reg value, ir::Reg result = {}) {
    return b_.value(ir::Opcode::neg, b_.function().type_of(value), {value}, result);
  }
  LuNumber negated(LuNumber value, LuNumber result = {}) {
    return {negated(value.re, result.re), complex_ ? negated(value.im, result.im) : ir::Reg{}};
  }
  LuNumber add(LuNumber x, LuNumber y, LuNumber result = {}) {
    return {b_.add(type_, x.re, y.re, result.re),
            complex_ ? b_.add(type_, x.im, y.im, result.im) : ir::Reg{}};
  }
  LuNumber sub(LuNumber x, LuNumber y) {
    return {b_.sub(type_, x.re, y.re), complex_ ? b_.sub(type_, x.im, y.im) : ir::Reg{}};
  }
  LuNumber mul(LuNumber x, LuNumber y) {
    if (!complex_)
      return {b_.mul(type_, x.re, y.re), {}};
    const ir::Reg re = b_.fma(type_, negated(x.im), y.im, b_.mul(type_, x.re, y.re));
    return {re, b_.fma(type_, x.im, y.re, b_.mul(type_, x.re, y.im))};
  }
  /// x y + z, each part with two roundings where numbers are complex; `result` may be z.
  LuNumber fma(LuNumber x, LuNumber y, LuNumber z, LuNumber result = {}) {
    const ir::Reg re = b_.fma(type_, x.re, y.re, z.re, result.re);
    if (!complex_)
      return {re, {}};
    b_.fma(type_, negated(x.im), y.im, re, re);
    const ir::Reg im = b_.fma(type_, x.re, y.im, z.im, result.im);
    b_.fma(type_, x.im, y.re, im, im);
    return {re, im};
  }
  LuNumber select(ir::Reg condition, LuNumber x, LuNumber y) {
    return {b_.select(type_, condition, x.re, y.re),
            complex_ ? b_.select(type_, condition, x.im, y.im) : ir::Reg{}};
  }
  ir::Reg absolute(ir::Reg value) { return b_.value(ir::Opcode::abs, type_, {value}); }
  /// |x|, or |re x| + |im x|.
  ir::Reg magnitude(LuNumber x) {
    return complex_ ? b_.add(type_, absolute(x.re), absolute(x.im)) : absolute(x.re);
  }
  /// 1 / x; complex by Smith's method, as in runtime/lu/scalar.h.
  LuNumber reciprocal(LuNumber x) {
    const ir::Reg one = real_constant(1);
    const auto divide = [&](ir::Reg a, ir::Reg b) {
      return b_.value(ir::Opcode::div, type_, {a, b});
    };
    if (!complex_)
      return {divide(one, x.re), {}};
    const ir::Reg steep = b_.compare(ir::Comparison::ge, type_, absolute(x.re), absolute(x.im));
    const ir::Reg larger = b_.select(type_, steep, x.re, x.im);
    const ir::Reg smaller = b_.select(type_, steep, x.im, x.re);
    const ir::Reg ratio = divide(smaller, larger);
    const ir::Reg scale = b_.add(type_, larger, b_.mul(type_, smaller, ratio));
    const ir::Reg first = divide(one, scale), second = divide(ratio, scale);
    return {b_.select(type_, steep, first, second),
            negated(b_.select(type_, steep, second, first))};
  }
  /// `size` with the sign of x, or with its phase; `size` itself of zero.
  LuNumber with_phase(LuNumber x, ir::Reg size) {
    if (!complex_) {
      const ir::Reg negative = b_.compare(ir::Comparison::lt, ir::Scalar::i32, upper_bits(x.re),
                                          ir::Operand::integer(0));
      return {b_.select(type_, negative, negated(size), size), {}};
    }
    // The larger part is made 1 first: squares of small numbers would vanish.
    const ir::Reg re = absolute(x.re), im = absolute(x.im);
    const ir::Reg steep = b_.compare(ir::Comparison::ge, type_, re, im);
    const ir::Reg larger = b_.select(type_, steep, re, im);
    const auto unit = [&](ir::Reg part) {
      return b_.value(ir::Opcode::div, type_, {part, larger});
    };
    const ir::Reg a = unit(x.re), b = unit(x.im);
    const ir::Reg length =
        b_.value(ir::Opcode::sqrt, type_, {b_.fma(type_, a, a, b_.mul(type_, b, b))});
    const ir::Reg factor = b_.value(ir::Opcode::div, type_, {size, length});
    const ir::Reg is_zero = b_.compare(ir::Comparison::eq, type_, larger, real(0));
    return {b_.select(type_, is_zero, size, b_.mul(type_, a, factor)),
            b_.select(type_, is_zero, real_constant(0), b_.mul(type_, b, factor))};
  }

  /// `value`, or the canonical NaN in the place of any NaN.
  ir::Reg canonical(ir::Reg value) {
    const ir::Reg is_nan = b_.compare(ir::Comparison::ne, type_, value, value);
    const ir::Reg nan =
        wide_ ? b_.constant(type_, ir::Operand::f64(std::numeric_limits<double>::quiet_NaN()))
              : b_.constant(type_, ir::Operand::f32(std::numeric_limits<float>::quiet_NaN()));
    return b_.select(type_, is_nan, nan, value);
  }
  LuNumber canonical(LuNumber value) {
    return {canonical(value.re), complex_ ? canonical(value.im) : ir::Reg{}};
  }

  /// 1 where a number is infinite or a NaN.
  ir::Reg is_not_finite(LuNumber value) {
    ir::Reg difference = b_.sub(type_, value.re, value.re);
    if (complex_)
      difference = b_.add(type_, difference, b_.sub(type_, value.im, value.im));
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

  // ---- numbers of the caller
  uint32_t given_bytes() const {
    return (options_.given == ir::Scalar::f64 ? 8 : 4) * (complex_ ? 2 : 1);
  }
  /// One of the caller's numbers times a factor (f64), rounded to the factors' type.
  LuNumber load_scaled(ir::Reg place, ir::Reg factor, ir::Cache cache) {
    return scaled(load_given(place, cache), factor);
  }
  ir::Reg load_given(ir::Reg place, ir::Cache cache) {
    return b_.load(place, 0, complex_ ? 2 : 1, cache);
  }
  LuNumber scaled(ir::Reg given, ir::Reg factor) {
    const auto part = [&](ir::Reg value) {
      const ir::Reg exact = options_.given == ir::Scalar::f64
                                ? value
                                : b_.convert(ir::Scalar::f64, value, ir::Conversion::exact);
      return from_f64(b_.mul(ir::Scalar::f64, exact, factor));
    };
    return {part(given), complex_ ? part(given[1]) : ir::Reg{}};
  }
  /// A number times a factor (f64) becomes one of the caller's.
  void store_scaled(ir::Reg place, LuNumber value, ir::Reg factor) {
    const auto part = [&](ir::Reg number) {
      const ir::Reg scaled = b_.mul(ir::Scalar::f64, to_f64(number), factor);
      return options_.given == ir::Scalar::f64
                 ? scaled
                 : b_.convert(ir::Scalar::f32, scaled, ir::Conversion::nearest);
    };
    if (!complex_) {
      b_.store(place, 0, part(value.re));
      return;
    }
    const ir::Reg parts = b_.fresh_tuple(options_.given, 2);
    b_.move(part(value.re), parts[0]);
    b_.move(part(value.im), parts[1]);
    b_.store(place, 0, parts, 2);
  }

  /// Parameters by which a solve can be told to leave right-hand sides alone.
  void declare_active() {
    active_ = pointer("active", ir::Scalar::i32);
    conditional_ = number("conditional");
  }
  /// Code for a right-hand side that is to be solved for; close with end().
  void if_active(ir::Reg side) {
    const ir::Reg word = b_.constant(ir::Scalar::i32, ir::Operand::integer(1));
    const ir::Operand zero = ir::Operand::integer(0);
    b_.if_begin(b_.compare(ir::Comparison::ne, ir::Scalar::i32, conditional_, zero));
    b_.load(element(active_, side, sizeof(int32_t)), 0, 1, ir::Cache::readonly, word);
    b_.end();
    b_.if_begin(b_.compare(ir::Comparison::ne, ir::Scalar::i32, word, zero));
  }

  // ---- threads
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
  void add_lanes(LuNumber sum, ir::Reg group) {
    for (uint32_t distance = 16; distance > 0; distance /= 2) {
      const ir::Operand step = ir::Operand::integer(distance);
      b_.if_begin(b_.compare(ir::Comparison::gt, ir::Scalar::i32, group, step));
      add(sum, from_lane(ir::Shuffle::butterfly, sum, step), sum);
      b_.end();
    }
  }

  /// The number that another lane has.
  LuNumber from_lane(ir::Shuffle which, LuNumber value, ir::Operand lane) {
    return {from_lane(which, value.re, lane),
            complex_ ? from_lane(which, value.im, lane) : ir::Reg{}};
  }
  ir::Reg from_lane(ir::Shuffle which, ir::Reg value, ir::Operand lane) {
    if (!wide_)
      return b_.shuffle(which, value, lane);
    const ir::Reg bits = b_.bitcast(ir::Scalar::i64, value);
    const ir::Reg low = b_.convert(ir::Scalar::i32, bits, ir::Conversion::exact);
    const ir::Reg upper = upper_bits(value);
    const ir::Reg other_low = b_.shuffle(which, low, lane);
    return b_.bitcast(type_, join(other_low, b_.shuffle(which, upper, lane)));
  }
  /// Two halves of 64 bits.
  ir::Reg join(ir::Reg low, ir::Reg upper) {
    const ir::Reg left = b_.value(
        ir::Opcode::shl, ir::Scalar::i64,
        {b_.convert(ir::Scalar::i64, upper, ir::Conversion::zero), ir::Operand::integer(32)});
    const ir::Reg right = b_.convert(ir::Scalar::i64, low, ir::Conversion::zero);
    return b_.value(ir::Opcode::bit_or, ir::Scalar::i64, {left, right});
  }

  const LuKernelOptions& options_;
  const ir::Type type_; ///< of a real number, and of the parts of a complex one
  const bool complex_, wide_;
  const ir::Scalar piece_; ///< i64 for both parts of c64
  const uint32_t piece_bytes_, pieces_, bytes_;
  ir::Builder b_;
  ir::Reg active_, conditional_;
};

/// The two kernels that go before those of the dataflow.
void write_lu_input(ir::Module& module, const LuKernelOptions& options);
void write_lu_solve_input(ir::Module& module, const LuKernelOptions& options);
/// The two kernels of the solve by one block; options.block_rows is not 0.
void write_lu_block_solve(ir::Module& module, const LuKernelOptions& options);

} // namespace sparsertc
