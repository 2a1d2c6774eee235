#include "compiler/lower/lu_batch_loop.h"

#include "compiler/lower/lu_batch.h"
#include "ir/builder.h"
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

class LoopWriter {
public:
  LoopWriter(ir::Module& module, const char* name, Scalar type, Scalar vector_type)
      : type_(type), vector_type_(vector_type), bytes_(bytes_of(type)),
        vector_bytes_(bytes_of(vector_type)), b_(module, function_of(module, name)) {}

protected:
  static uint32_t bytes_of(Scalar type) { return type == Scalar::f64 ? 8 : 4; }
  static ir::Function& function_of(ir::Module& module, const char* name) {
    ir::Function& function = module.functions.emplace_back();
    function.name = name;
    function.kind = ir::FunctionKind::kernel;
    function.block[0] = kLuBatchLanes;
    return function;
  }

  Reg pointer(const char* name, Scalar element) {
    return b_.parameter(ir::Type::pointer(ir::Space::device, element), name);
  }
  Reg number(const char* name) { return b_.parameter(Scalar::i32, name); }
  Operand real(double value) const {
    return type_ == Scalar::f64 ? Operand::f64(value) : Operand::f32(static_cast<float>(value));
  }
  Reg element(Reg pointer, Reg index, uint32_t bytes) {
    return b_.index(pointer, index, Operand::integer(bytes));
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
                        Operand::integer(vector_bytes_));
  }
  void find_numbers(Reg factors, Reg numbers) {
    const Reg group = b_.special(Special::block_x);
    const Reg bytes = b_.mul(Scalar::i64, b_.convert(Scalar::i64, numbers, Conversion::sign),
                             Operand::integer(kLuBatchLanes * bytes_));
    const Reg before = b_.mul(Scalar::i64, b_.convert(Scalar::i64, group, Conversion::sign), bytes);
    numbers_ = element(b_.offset(factors, before), lane_, bytes_);
  }
  Reg place(Reg number) { return element(numbers_, number, kLuBatchLanes * bytes_); }
  Reg load(Reg number) { return b_.load(place(number), 0); }
  void store(Reg number, Reg value) { b_.store(place(number), 0, value); }
  /// vector[row * instances + instance].
  Reg in_vector(Reg vector, Reg row) {
    const Reg bytes =
        b_.mul(Scalar::i64, b_.convert(Scalar::i64, row, Conversion::sign), row_bytes_);
    return element(b_.offset(vector, bytes), instance_, vector_bytes_);
  }
  /// Rounded once to `to`.
  Reg scaled(Reg value, Scalar from, Reg factor, Scalar to) {
    const Reg exact =
        from == Scalar::f64 ? value : b_.convert(Scalar::f64, value, Conversion::exact);
    const Reg product = b_.mul(Scalar::f64, exact, factor);
    return to == Scalar::f64 ? product : b_.convert(to, product, Conversion::nearest);
  }

  /// A loop over packets, the next one being read while this one is worked on. `add` adds a
  /// product, `finish` takes the words of one that ends a sum, and the sum.
  template <class Add, class Finish>
  void for_each_packet(Reg packets, Reg count, const Add& add, const Finish& finish) {
    const Reg next = b_.fresh_tuple(Scalar::i32, kWords), now = b_.fresh_tuple(Scalar::i32, kWords);
    const Reg sum = b_.constant(type_, real(0));
    read_packet(packets, next);
    const Reg packet = b_.for_loop(count, 1);
    for (uint32_t i = 0; i < kWords; ++i)
      b_.move(next[i], now[i]);
    // One packet stands behind the last one.
    read_packet(
        b_.offset(element(packets, packet, kWords * kWord), Operand::integer(kWords * kWord)),
        next);
    b_.if_begin(is_word(now[LuBatchLoop::start]));
    b_.load(place(now[LuBatchLoop::start]), 0, 1, Cache::normal, sum);
    b_.end();
    std::array<Reg, 2 * kProducts> operand;
    for (uint32_t i = 0; i < 2 * kProducts; ++i)
      operand[i] = load(now[i]);
    for (uint32_t i = 0; i < kProducts; ++i)
      add(operand[i], operand[kProducts + i], sum);
    b_.if_begin(is_word(now[LuBatchLoop::result]));
    finish(now, sum);
    b_.end();
    b_.end();
  }

  const Scalar type_, vector_type_; ///< the latter of what is given and wanted, by row
  const uint32_t bytes_, vector_bytes_;
  ir::Builder b_;
  Reg lane_, instance_, row_bytes_, numbers_;

private:
  void read_packet(Reg from, Reg words) {
    for (uint32_t i = 0; i < kWords; i += 4)
      b_.load(from, int64_t{i} * kWord, 4, Cache::readonly, words[i]);
  }
};

class FactorLoop : LoopWriter {
public:
  FactorLoop(ir::Module& module, Scalar type)
      : LoopWriter(module, kLuBatchFactorKernel, type, type) {}

  void write() {
    const Reg values = pointer("values", type_), factors = pointer("factors", type_),
              status = pointer("status", Scalar::i32), instances = number("instances");
    threshold_ = b_.parameter(type_, "threshold");
    const Reg numbers = number("numbers"), source = pointer("source", Scalar::i32),
              slot = pointer("slot", Scalar::i32), end = pointer("end", Scalar::i32),
              scale = pointer("scale", Scalar::f64), entries = number("entries"),
              packets = pointer("packets", Scalar::i32), count = number("count");
    begin_instance(instances);
    find_numbers(factors, numbers);
    zero_ = b_.constant(type_, real(0));
    const auto from_end = [&](int64_t distance) {
      return b_.add(Scalar::i32, numbers, Operand::integer(-distance));
    };
    store(from_end(2), zero_);
    store(from_end(1), b_.constant(type_, real(-0.0)));
    check_ = b_.constant(type_, real(0));
    replaced_ = b_.constant(Scalar::i32, Operand::integer(0));

    read_matrix(values, source, slot, end, scale, entries);
    for_each_packet(
        packets, count, [&](Reg left, Reg right, Reg sum) { b_.fma(type_, left, right, sum, sum); },
        [&](Reg words, Reg sum) { finish(words, sum); });

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
    const Reg largest = b_.constant(type_, real(0));
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
      value[i] = b_.load(in_vector(values, from[i]), 0, 1, Cache::readonly);
    for (uint32_t i = 0; i < kGroup; ++i) {
      const Reg entry = scaled(value[i], type_, factor[i], type_);
      store(to[i], entry);
      const Reg magnitude = b_.value(Opcode::abs, type_, {entry});
      const Reg larger = b_.compare(Comparison::gt, type_, magnitude, largest);
      b_.select(type_, larger, magnitude, largest, largest);
      b_.if_begin(is_word(last[i]));
      store(last[i], largest);
      b_.constant(type_, real(0), largest);
      b_.end();
    }
    b_.end();
  }

  void finish(Reg words, Reg sum) {
    watch(sum);
    b_.if_begin(is_word(words[LuBatchLoop::pivot]));
    const Reg product = b_.mul(type_, sum, load(words[LuBatchLoop::pivot]));
    store(words[LuBatchLoop::side], b_.value(Opcode::neg, type_, {product}));
    b_.else_mark();
    b_.if_begin(is_word(words[LuBatchLoop::side]));
    replace_and_invert(load(words[LuBatchLoop::side]), sum);
    watch(sum);
    b_.end();
    b_.end();
    store(words[LuBatchLoop::result], sum);
  }

  /// Notes whether a number is finite: 0 times another one is a NaN.
  void watch(Reg value) { b_.fma(type_, value, zero_, check_, check_); }

  void replace_and_invert(Reg largest, Reg value) {
    const Reg least = b_.mul(type_, threshold_, largest);
    const Reg magnitude = b_.value(Opcode::abs, type_, {value});
    const Reg small = b_.compare(Comparison::lt, type_, magnitude, least);
    const Scalar bits = type_ == Scalar::f64 ? Scalar::i64 : Scalar::i32;
    const Reg negative =
        b_.compare(Comparison::lt, bits, b_.bitcast(bits, value), Operand::integer(0));
    const Reg minus = b_.value(Opcode::neg, type_, {least});
    const Reg replacement = b_.select(type_, negative, minus, least);
    const Reg divisor = b_.select(type_, small, replacement, value);
    b_.value(Opcode::div, type_, {b_.constant(type_, real(1)), divisor}, value);
    const Reg more = b_.add(Scalar::i32, replaced_, Operand::integer(1));
    b_.select(Scalar::i32, small, more, replaced_, replaced_);
  }

  Reg threshold_, zero_, check_, replaced_;
};

class SolveLoop : LoopWriter {
public:
  SolveLoop(ir::Module& module, Scalar type, Scalar vector_type)
      : LoopWriter(module, kLuBatchSolveKernel, type, vector_type) {}

  void write() {
    const Reg right = pointer("b", vector_type_), x = pointer("x", vector_type_),
              factors = pointer("factors", type_), instances = number("instances"),
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
      const Reg given = b_.load(in_vector(right, number), 0, 1, Cache::readonly);
      store(b_.add(Scalar::i32, unknowns, i), scaled(given, vector_type_, factor, type_));
    });
    for_each_packet(
        forward, forward_count,
        [&](Reg left, Reg z, Reg sum) {
          b_.fma(type_, b_.value(Opcode::neg, type_, {left}), z, sum, sum);
        },
        [&](Reg words, Reg sum) {
          store(words[LuBatchLoop::result], b_.mul(type_, sum, load(words[LuBatchLoop::pivot])));
        });
    for_each_packet(
        backward, backward_count,
        [&](Reg left, Reg known, Reg sum) { b_.fma(type_, left, known, sum, sum); },
        [&](Reg words, Reg sum) {
          const Reg minus = b_.value(Opcode::neg, type_, {sum});
          const Reg z = load(words[LuBatchLoop::result]);
          store(words[LuBatchLoop::result],
                b_.fma(type_, minus, load(words[LuBatchLoop::pivot]), z));
        });
    for_each_row(n, column, column_scale, [&](Reg i, Reg number, Reg factor) {
      const Reg value = load(b_.add(Scalar::i32, unknowns, i));
      b_.store(in_vector(x, number), 0, scaled(value, type_, factor, vector_type_));
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
  FactorLoop(module, options.type).write();
  SolveLoop(module, options.type, lu_batch_vector_type(options)).write();
  ir::verify_or_throw(module, "lowering the loops of a batch of sparse LU");
  return module;
}

} // namespace sparsertc
