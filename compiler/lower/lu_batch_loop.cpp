#include "compiler/lower/lu_batch_loop.h"

#include "compiler/lower/lu_batch.h"
#include "compiler/lower/lu_kernel_writer.h"
#include "ir/lu_batch_loop.h"
#include "ir/verifier.h"

#include <array>

namespace sparsertc {
namespace {

using ir::Cache;
using ir::Comparison;
using ir::Conversion;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Special;

constexpr uint32_t kWord = sizeof(uint32_t);
constexpr uint32_t kProducts = LuBatchLoop::kProducts;
constexpr uint32_t kWords = LuBatchLoop::kWords;
constexpr uint32_t kGroup = LuBatchLoop::kGroup;

/// Holds the options that LuKernelWriter refers to.
struct LoopKernelOptions {
  LuKernelOptions kernels;
};

class LoopWriter : LoopKernelOptions, protected LuKernelWriter {
public:
  /// `given`: the type of the matrix, or of the vectors.
  LoopWriter(ir::Module& module, const char* name, const LuBatchOptions& options, Scalar given)
      : LoopKernelOptions{kernel_options(options, given)},
        LuKernelWriter(module, kernels, name, kLuBatchLanes) {}

protected:
  static LuKernelOptions kernel_options(const LuBatchOptions& options, Scalar given) {
    LuKernelOptions kernels;
    kernels.type = options.type;
    kernels.given = given;
    kernels.complex = options.complex;
    return kernels;
  }

  Reg is_word(Reg word) {
    return b_.compare(Comparison::ge, Scalar::i32, word, Operand::integer(0));
  }

  /// For the lanes that have an instance; close with end().
  void begin_instance(Reg instances) {
    const Reg group = b_.special(Special::block_x);
    lane_ = b_.special(Special::thread_x);
    instance_ =
        b_.add(Scalar::i32, b_.mul(Scalar::i32, group, Operand::integer(kLuBatchLanes)), lane_);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, instance_, instances));
    // Of a vector [row][instance].
    row_bytes_ = b_.mul(Scalar::i64, b_.convert(Scalar::i64, instances, Conversion::sign),
                        Operand::integer(given_bytes()));
  }
  void find_numbers(Reg factors, Reg numbers) {
    const Reg group = b_.special(Special::block_x);
    const Reg bytes = b_.mul(Scalar::i64, b_.convert(Scalar::i64, numbers, Conversion::sign),
                             Operand::integer(kLuBatchLanes * bytes_));
    const Reg before = b_.mul(Scalar::i64, b_.convert(Scalar::i64, group, Conversion::sign), bytes);
    numbers_ = element(b_.offset(factors, before), lane_, bytes_);
  }
  Reg place(Reg number) { return element(numbers_, number, kLuBatchLanes * bytes_); }
  LuNumber load(Reg number) { return load_number(place(number)); }
  void store(Reg number, LuNumber value) { store_number(place(number), value); }
  void move(LuNumber from, LuNumber to) {
    b_.move(from.re, to.re);
    if (complex_)
      b_.move(from.im, to.im);
  }
  /// vector[row * instances + instance].
  Reg in_vector(Reg vector, Reg row) {
    const Reg bytes =
        b_.mul(Scalar::i64, b_.convert(Scalar::i64, row, Conversion::sign), row_bytes_);
    return element(b_.offset(vector, bytes), instance_, given_bytes());
  }

  /// A loop over packets, the next one being read while this one is worked on. `add` adds a
  /// product, `finish` takes the words of one that ends a sum, and the sum.
  template <class Add, class Finish>
  void for_each_packet(Reg packets, Reg count, const Add& add, const Finish& finish) {
    const Reg next = b_.fresh_tuple(Scalar::i32, kWords), now = b_.fresh_tuple(Scalar::i32, kWords);
    const LuNumber sum = zero();
    read_packet(packets, next);
    const Reg packet = b_.for_loop(count, 1);
    for (uint32_t i = 0; i < kWords; ++i)
      b_.move(next[i], now[i]);
    // One packet stands behind the last one.
    read_packet(
        b_.offset(element(packets, packet, kWords * kWord), Operand::integer(kWords * kWord)),
        next);
    b_.if_begin(is_word(now[LuBatchLoop::start]));
    move(load(now[LuBatchLoop::start]), sum);
    b_.end();
    std::array<LuNumber, 2 * kProducts> operand;
    for (uint32_t i = 0; i < 2 * kProducts; ++i)
      operand[i] = load(now[i]);
    for (uint32_t i = 0; i < kProducts; ++i)
      add(operand[i], operand[kProducts + i], sum);
    b_.if_begin(is_word(now[LuBatchLoop::result]));
    finish(now, sum);
    b_.end();
    b_.end();
  }

  Reg lane_, instance_, row_bytes_, numbers_;

private:
  void read_packet(Reg from, Reg words) {
    for (uint32_t i = 0; i < kWords; i += 4)
      b_.load(from, int64_t{i} * kWord, 4, Cache::readonly, words[i]);
  }
};

class FactorLoop : LoopWriter {
public:
  FactorLoop(ir::Module& module, const LuBatchOptions& options)
      : LoopWriter(module, kLuBatchFactorKernel, options, options.type) {}

  void write() {
    const Reg values = given_pointer("values"), factors = number_pointer("factors"),
              status = pointer("status", Scalar::i32), instances = number("instances");
    threshold_ = b_.parameter(type_, "threshold");
    const Reg numbers = number("numbers"), source = pointer("source", Scalar::i32),
              slot = pointer("slot", Scalar::i32), end = pointer("end", Scalar::i32),
              scale = pointer("scale", Scalar::f64), entries = number("entries"),
              packets = pointer("packets", Scalar::i32), count = number("count");
    begin_instance(instances);
    find_numbers(factors, numbers);
    const LuNumber plus_zero = zero();
    zero_ = plus_zero.re;
    const auto from_end = [&](int64_t distance) {
      return b_.add(Scalar::i32, numbers, Operand::integer(-distance));
    };
    store(from_end(2), plus_zero);
    store(from_end(1), negated(plus_zero));
    check_ = real_constant(0);
    replaced_ = b_.constant(Scalar::i32, Operand::integer(0));

    read_matrix(values, source, slot, end, scale, entries);
    for_each_packet(
        packets, count,
        [&](LuNumber left, LuNumber right, LuNumber sum) { fma(left, right, sum, sum); },
        [&](Reg words, LuNumber sum) { finish(words, sum); });

    const Reg bad = b_.compare(Comparison::ne, type_, check_, check_);
    const Reg marked =
        b_.value(Opcode::bit_or, Scalar::i32,
                 {replaced_, Operand::integer(static_cast<int32_t>(kLuBatchNotFinite))});
    b_.store(element(status, instance_, sizeof(uint32_t)), 0,
             b_.select(Scalar::i32, bad, marked, replaced_));
    b_.end();
    b_.return_void();
  }

private:
  /// B to its slots, the largest of each column to its place.
  void read_matrix(Reg values, Reg source, Reg slot, Reg end, Reg scale, Reg entries) {
    const LuNumber largest = zero();
    const Reg first = b_.for_loop(entries, kGroup);
    const auto words = [&](Reg table) {
      return b_.load(element(table, first, kWord), 0, kGroup, Cache::readonly);
    };
    const Reg from = words(source), to = words(slot), last = words(end);
    std::array<Reg, kGroup> factor, value;
    for (uint32_t i = 0; i < kGroup; i += 2) {
      const Reg pair = b_.load(element(scale, first, sizeof(double)), int64_t{i} * sizeof(double),
                               2, Cache::readonly);
      factor[i] = pair[0];
      factor[i + 1] = pair[1];
    }
    for (uint32_t i = 0; i < kGroup; ++i)
      value[i] = load_given(in_vector(values, from[i]), Cache::readonly);
    for (uint32_t i = 0; i < kGroup; ++i) {
      const LuNumber entry = scaled(value[i], factor[i]);
      store(to[i], entry);
      const Reg size = magnitude(entry);
      const Reg larger = b_.compare(Comparison::gt, type_, size, largest.re);
      b_.select(type_, larger, size, largest.re, largest.re);
      b_.if_begin(is_word(last[i]));
      store(last[i], largest);
      b_.constant(type_, real(0), largest.re);
      b_.end();
    }
    b_.end();
  }

  void finish(Reg words, LuNumber sum) {
    watch(sum);
    b_.if_begin(is_word(words[LuBatchLoop::pivot]));
    store(words[LuBatchLoop::side], negated(mul(sum, load(words[LuBatchLoop::pivot]))));
    b_.else_mark();
    b_.if_begin(is_word(words[LuBatchLoop::side]));
    replace_and_invert(load(words[LuBatchLoop::side]).re, sum);
    watch(sum);
    b_.end();
    b_.end();
    store(words[LuBatchLoop::result], sum);
  }

  /// Notes whether a number is finite: 0 times another one is a NaN.
  void watch(LuNumber value) {
    b_.fma(type_, value.re, zero_, check_, check_);
    if (complex_)
      b_.fma(type_, value.im, zero_, check_, check_);
  }

  void replace_and_invert(Reg largest, LuNumber value) {
    const Reg least = b_.mul(type_, threshold_, largest);
    const Reg small = b_.compare(Comparison::lt, type_, magnitude(value), least);
    move(reciprocal(select(small, with_phase(value, least), value)), value);
    const Reg more = b_.add(Scalar::i32, replaced_, Operand::integer(1));
    b_.select(Scalar::i32, small, more, replaced_, replaced_);
  }

  Reg threshold_, zero_, check_, replaced_;
};

class SolveLoop : LoopWriter {
public:
  SolveLoop(ir::Module& module, const LuBatchOptions& options)
      : LoopWriter(module, kLuBatchSolveKernel, options, lu_batch_vector_type(options)) {}

  void write() {
    const Reg right = given_pointer("b"), x = given_pointer("x"),
              factors = number_pointer("factors"), instances = number("instances"),
              numbers = number("numbers"), row = pointer("row", Scalar::i32),
              row_scale = pointer("row_scale", Scalar::f64),
              column = pointer("column", Scalar::i32),
              column_scale = pointer("column_scale", Scalar::f64), n = number("n"),
              forward = pointer("forward", Scalar::i32), forward_count = number("forward_count"),
              backward = pointer("backward", Scalar::i32),
              backward_count = number("backward_count");
    begin_instance(instances);
    find_numbers(factors, numbers);
    // Places of unknowns: the first is in the first packet of the forward substitution.
    const Reg unknowns = b_.load(forward, int64_t{LuBatchLoop::start} * kWord, 1, Cache::readonly);
    for_each_row(n, row, row_scale, [&](Reg i, Reg number, Reg factor) {
      store(b_.add(Scalar::i32, unknowns, i),
            load_scaled(in_vector(right, number), factor, Cache::readonly));
    });
    for_each_packet(
        forward, forward_count,
        [&](LuNumber left, LuNumber z, LuNumber sum) { fma(negated(left), z, sum, sum); },
        [&](Reg words, LuNumber sum) {
          store(words[LuBatchLoop::result], mul(sum, load(words[LuBatchLoop::pivot])));
        });
    for_each_packet(
        backward, backward_count,
        [&](LuNumber left, LuNumber known, LuNumber sum) { fma(left, known, sum, sum); },
        [&](Reg words, LuNumber sum) {
          const LuNumber minus = negated(sum);
          const LuNumber z = load(words[LuBatchLoop::result]);
          store(words[LuBatchLoop::result], fma(minus, load(words[LuBatchLoop::pivot]), z));
        });
    for_each_row(n, column, column_scale, [&](Reg i, Reg number, Reg factor) {
      store_scaled(in_vector(x, number), load(b_.add(Scalar::i32, unknowns, i)), factor);
    });
    b_.end();
    b_.return_void();
  }

private:
  template <class Body>
  void for_each_row(Reg n, Reg order, Reg scale, const Body& body) {
    const Reg i = b_.for_loop(n, 1);
    body(i, b_.load(element(order, i, kWord), 0, 1, Cache::readonly),
         b_.load(element(scale, i, sizeof(double)), 0, 1, Cache::readonly));
    b_.end();
  }
};

} // namespace

ir::Module make_lu_batch_loop_kernels(const LuBatchOptions& options) {
  ir::Module module;
  module.functions.reserve(2); // the writers hold references
  FactorLoop(module, options).write();
  SolveLoop(module, options).write();
  ir::verify_or_throw(module, "lowering the loops of a batch of sparse LU");
  return module;
}

} // namespace sparsertc
