// What the writers of the kernels of refinement share: the places of a right-hand side, magnitudes,
// and sums and maxima over the lanes of a warp.
#pragma once

#include "compiler/lower/lu_kernel_writer.h"
#include "compiler/lower/lu_refine.h"
#include "ir/lu_refine.h"

#include <cstdint>
#include <utility>

namespace sparsertc {

inline LuKernelOptions double_precision(const LuRefineOptions& options) {
  LuKernelOptions result;
  result.complex = options.complex;
  if (options.given_single)
    result.given = ir::Scalar::f32;
  return result;
}

/// Holds the options that LuKernelWriter refers to.
struct LuRefineKernelOptions {
  explicit LuRefineKernelOptions(const LuRefineOptions& refine)
      : kernels(double_precision(refine)) {}
  LuKernelOptions kernels;
};

class RefineWriter : LuRefineKernelOptions, protected LuKernelWriter {
public:
  RefineWriter(ir::Module& module, const LuRefineOptions& options, const char* name)
      : LuRefineKernelOptions(options), LuKernelWriter(module, kernels, name, kLuRefineThreads),
        single_(options.single_solution) {}

protected:
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kWarps = kLuRefineThreads / kLanes;
  static constexpr uint32_t kWord = sizeof(uint32_t);
  static constexpr uint32_t kReal = sizeof(double);

  ir::Reg side() { return b_.special(ir::Special::block_y); }
  /// The right-hand side's part of an array.
  ir::Reg vector_of(ir::Reg pointer, ir::Reg n) { return vector_of(pointer, n, bytes_); }
  ir::Reg given_vector_of(ir::Reg pointer, ir::Reg n) {
    return vector_of(pointer, n, given_bytes());
  }
  /// A number of the caller's type, exactly; and one rounded to it.
  LuNumber load_exact(ir::Reg place, ir::Cache cache = ir::Cache::normal) {
    if (kernels.given == ir::Scalar::f64)
      return load_number(place, cache);
    const ir::Reg given = load_given(place, cache);
    const auto part = [&](ir::Reg value) {
      return b_.convert(ir::Scalar::f64, value, ir::Conversion::exact);
    };
    return {part(given), complex_ ? part(given[1]) : ir::Reg{}};
  }
  void store_rounded(ir::Reg place, LuNumber value) {
    if (kernels.given == ir::Scalar::f64) {
      store_number(place, value);
      return;
    }
    const auto part = [&](ir::Reg number, ir::Reg result = {}) {
      return b_.convert(ir::Scalar::f32, number, ir::Conversion::nearest, result);
    };
    if (!complex_) {
      b_.store(place, 0, part(value.re));
      return;
    }
    const ir::Reg parts = b_.fresh_tuple(ir::Scalar::f32, 2);
    part(value.re, parts[0]);
    part(value.im, parts[1]);
    b_.store(place, 0, parts, 2);
  }
  ir::Reg record_of(ir::Reg pointer) { return element(pointer, side(), sizeof(LuRefineRecord)); }
  ir::Reg parts_of(ir::Reg pointer, uint32_t parts, uint32_t numbers) {
    return element(pointer, side(), parts * numbers * kReal);
  }
  /// Code for right-hand sides that are worked on; close with end().
  void if_active(ir::Reg active) {
    const ir::Reg word = b_.load(element(active, side(), kWord), 0);
    b_.if_begin(b_.compare(ir::Comparison::ne, ir::Scalar::i32, word, ir::Operand::integer(0)));
  }

  ir::Reg bits(ir::Reg value) { return b_.bitcast(ir::Scalar::i64, value); }
  ir::Reg number_of(ir::Reg word) { return b_.bitcast(ir::Scalar::f64, word); }
  /// The bits of a magnitude; a NaN has no sign.
  ir::Reg ordered(ir::Reg value) { return bits(absolute(value)); }
  ir::Reg larger(ir::Reg x, ir::Reg y, ir::Reg result = {}) {
    return b_.value(ir::Opcode::max, ir::Scalar::i64, {x, y}, result);
  }
  ir::Reg zero_bits() { return b_.constant(ir::Scalar::i64, ir::Operand::integer(0)); }

  /// |x|. The larger part is taken out of a complex one, so that no square over- or underflows.
  ir::Reg modulus(LuNumber x) {
    if (!complex_)
      return absolute(x.re);
    const ir::Reg re = absolute(x.re), im = absolute(x.im);
    const ir::Reg steep = b_.compare(ir::Comparison::ge, type_, re, im);
    const ir::Reg top = b_.select(type_, steep, re, im), low = b_.select(type_, steep, im, re);
    const ir::Reg ratio = b_.value(ir::Opcode::div, type_, {low, top});
    const ir::Reg root =
        b_.value(ir::Opcode::sqrt, type_, {b_.fma(type_, ratio, ratio, real_constant(1))});
    const ir::Reg is_zero = b_.compare(ir::Comparison::eq, type_, top, real(0));
    return b_.select(type_, is_zero, top, b_.mul(type_, top, root));
  }
  /// As the solution's type has it.
  LuNumber rounded(LuNumber x) {
    const auto part = [&](ir::Reg value) {
      return b_.convert(ir::Scalar::f64,
                        b_.convert(ir::Scalar::f32, value, ir::Conversion::nearest),
                        ir::Conversion::exact);
    };
    if (!single_)
      return x;
    return {part(x.re), complex_ ? part(x.im) : ir::Reg{}};
  }

  // Over all lanes of a warp, in all of them.
  void add_over_lanes(LuNumber sum) {
    for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2)
      add(sum, from_lane(ir::Shuffle::butterfly, sum, ir::Operand::integer(distance)), sum);
  }
  void add_over_lanes(ir::Reg sum) {
    for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2)
      b_.add(type_, sum, from_lane(ir::Shuffle::butterfly, sum, ir::Operand::integer(distance)),
             sum);
  }
  void largest_over_lanes(ir::Reg word) {
    for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2)
      larger(
          word,
          bits(from_lane(ir::Shuffle::butterfly, number_of(word), ir::Operand::integer(distance))),
          word);
  }

  /// Of the update, in all lanes of a warp.
  struct Sizes {
    ir::Reg correction, largest_x, sum_x; ///< f64
  };
  Sizes read_sizes(ir::Reg parts, ir::Reg count, ir::Reg lane) {
    const ir::Reg correction = zero_bits(), largest = zero_bits();
    const ir::Reg sum = real_constant(0);
    for (uint32_t part = 0; part < kLuRefineUpdateParts; part += kLanes) {
      const ir::Reg number = b_.add(ir::Scalar::i32, lane, ir::Operand::integer(part));
      const ir::Reg place = element(parts, number, kLuRefineUpdateNumbers * kReal);
      b_.if_begin(b_.compare(ir::Comparison::lt, ir::Scalar::i32, number, count));
      larger(correction, b_.load(place, 0), correction);
      larger(largest, b_.load(place, kReal), largest);
      b_.add(type_, sum, number_of(b_.load(place, 2 * kReal)), sum);
      b_.end();
    }
    largest_over_lanes(correction);
    largest_over_lanes(largest);
    add_over_lanes(sum);
    return {number_of(correction), number_of(largest), sum};
  }

  uint32_t add_shared(ir::Module& module, const char* name, uint64_t words) {
    ir::Symbol symbol;
    symbol.name = name;
    symbol.type = ir::Type::pointer(ir::Space::shared, ir::Scalar::i64);
    symbol.count = words;
    module.symbols.push_back(std::move(symbol));
    return static_cast<uint32_t>(module.symbols.size() - 1);
  }

  /// Rows of this thread, `blocks` blocks taking part.
  template <class Body>
  void for_each_row(ir::Reg n, uint32_t blocks, const Body& body) {
    const ir::Reg thread = thread_number(kLuRefineThreads);
    const ir::Reg i = b_.add(ir::Scalar::i32, b_.for_loop(n, blocks * kLuRefineThreads), thread);
    b_.if_begin(b_.compare(ir::Comparison::lt, ir::Scalar::i32, i, n));
    body(i);
    b_.end();
    b_.end();
  }

  /// For the one thread of each right-hand side that takes notes.
  void if_first_thread() {
    const ir::Reg thread = thread_number(kLuRefineThreads);
    b_.if_begin(b_.compare(ir::Comparison::eq, ir::Scalar::i32, thread, ir::Operand::integer(0)));
  }

  const bool single_;

private:
  ir::Reg vector_of(ir::Reg pointer, ir::Reg n, uint32_t bytes) {
    return b_.index(pointer, side(), b_.mul(ir::Scalar::i32, n, ir::Operand::integer(bytes)));
  }
};

} // namespace sparsertc
