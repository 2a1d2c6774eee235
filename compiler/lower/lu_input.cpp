#include "compiler/lower/lu_kernel_writer.h"
#include "ir/lu_dataflow.h"

#include <cstddef>

namespace sparsertc {
namespace {

using ir::Atomic;
using ir::Cache;
using ir::Comparison;
using ir::Conversion;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Special;

constexpr uint32_t kWord = sizeof(uint32_t);

class InputWriter : LuKernelWriter {
public:
  InputWriter(ir::Module& module, const LuKernelOptions& options)
      : LuKernelWriter(module, options, kLuInputKernel, kLuInputThreads) {}

  void write() {
    const Reg a = given_pointer("A"), source = pointer("source", Scalar::i32),
              slot = pointer("slot", Scalar::i32), second = pointer("second", Scalar::i32),
              column = pointer("column", Scalar::i32), scale = pointer("scale", Scalar::f64),
              initial = number_pointer("initial"), values = number_pointer("values"),
              kept = pointer("kept", Scalar::i32), column_max = pointer("column_max", Scalar::i64),
              given_max = pointer("given_max", Scalar::i64),
              status = pointer("status", Scalar::i64), entries = number("entries"),
              places = number("places");
    const Operand zero = Operand::integer(0);
    const Reg t = thread_number(kLuInputThreads);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, t, places));
    const Reg word = b_.value(Opcode::shr, Scalar::i32, {t, Operand::integer(5)});
    const Reg bits = b_.load(element(kept, word, kWord), 0, 1, Cache::readonly);
    const Reg one = b_.constant(Scalar::i32, Operand::integer(1));
    const Reg bit = b_.value(Opcode::shl, Scalar::i32, {one, b_.special(Special::lane)});
    const Reg own = b_.value(Opcode::bit_and, Scalar::i32, {bits, bit});
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, own, zero));
    store_not_ready(element(values, t, bytes_));
    b_.end();
    b_.end();

    const Reg j = b_.constant(Scalar::i32, Operand::integer(-1));
    const Reg largest = b_.constant(Scalar::i64, zero);
    const Reg given_largest = b_.constant(Scalar::i64, zero);
    const Reg nothing = b_.constant(Scalar::i64, zero);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, t, entries));
    const auto read = [&](Reg array, uint32_t bytes) {
      return b_.load(element(array, t, bytes), 0, 1, Cache::readonly);
    };
    const Reg from = read(source, kWord), to = read(slot, kWord);
    b_.move(read(column, kWord), j);
    const Reg factor = read(scale, sizeof(double));
    const LuNumber value = load_scaled(element(a, from, given_bytes()), factor, Cache::readonly);
    b_.move(ordered_bits(magnitude(value)), largest);
    b_.if_begin(b_.compare(Comparison::ge, Scalar::i32, to, zero));
    store_number(element(initial, to, bytes_), value);
    b_.end();
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, to, zero));
    const Reg first = b_.value(Opcode::bit_xor, Scalar::i32, {to, Operand::integer(-1)});
    const LuNumber given = canonical(value);
    store_number(element(values, first, bytes_), given);
    store_number(element(values, read(second, kWord), bytes_), given);
    b_.move(largest, given_largest);
    b_.end();
    b_.end();
    take_largest(j, largest);
    take_largest(j, given_largest);
    b_.if_begin(begins_column(j));
    b_.atomic(Atomic::max, element(column_max, j, sizeof(int64_t)), 0, largest);
    b_.if_begin(b_.compare(Comparison::ne, Scalar::i64, given_largest, nothing));
    b_.atomic(Atomic::max, element(given_max, j, sizeof(int64_t)), 0, given_largest);
    b_.end();
    b_.end();

    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, t, zero));
    const LuStatusRecord fresh;
    const auto set = [&](size_t offset, int64_t number) {
      b_.store(status, static_cast<int64_t>(offset),
               b_.constant(Scalar::i64, Operand::integer(number)));
    };
    set(offsetof(LuStatusRecord, largest), fresh.largest);
    set(offsetof(LuStatusRecord, largest_input), fresh.largest_input);
    set(offsetof(LuStatusRecord, perturbed), fresh.perturbed);
    set(offsetof(LuStatusRecord, perturbed_column), fresh.perturbed_column);
    set(offsetof(LuStatusRecord, zero_column), fresh.zero_column);
    set(offsetof(LuStatusRecord, nonfinite_column), fresh.nonfinite_column);
    b_.end();
    b_.return_void();
  }

private:
  /// The largest of the lanes from this one on that have the same column. Columns ascend, and a
  /// warp's atomic operations at one address come one after the other.
  void take_largest(Reg j, Reg bits) {
    for (uint32_t distance = 1; distance < LuDataflow::kLanes; distance *= 2) {
      const Operand step = Operand::integer(distance);
      const Reg other = b_.shuffle(ir::Shuffle::down, j, step);
      const Reg low =
          b_.shuffle(ir::Shuffle::down, b_.convert(Scalar::i32, bits, Conversion::exact), step);
      const Reg theirs = join(low, b_.shuffle(ir::Shuffle::down, upper_bits(bits), step));
      // Lanes behind the last one give the own number.
      b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, other, j));
      b_.value(Opcode::max, Scalar::i64, {bits, theirs}, bits);
      b_.end();
    }
  }

  /// Whether this lane is the first of its warp with its column.
  Reg begins_column(Reg j) {
    const Reg before = b_.shuffle(ir::Shuffle::up, j, Operand::integer(1));
    const Reg changes = b_.compare(Comparison::ne, Scalar::i32, before, j);
    const Reg is_first =
        b_.compare(Comparison::eq, Scalar::i32, b_.special(Special::lane), Operand::integer(0));
    const Reg begins = b_.value(Opcode::bit_or, Scalar::pred, {changes, is_first});
    const Reg is_column = b_.compare(Comparison::ge, Scalar::i32, j, Operand::integer(0));
    return b_.value(Opcode::bit_and, Scalar::pred, {begins, is_column});
  }
};

class SolveInputWriter : LuKernelWriter {
public:
  SolveInputWriter(ir::Module& module, const LuKernelOptions& options)
      : LuKernelWriter(module, options, kLuSolveInputKernel, kLuInputThreads) {}

  void write() {
    const Reg right = given_pointer("b"), order = pointer("order", Scalar::i32),
              scale = pointer("scale", Scalar::f64), work = number_pointer("work"), n = number("n");
    declare_active();
    const Reg i = thread_number(kLuInputThreads);
    const Reg side = b_.special(Special::block_y);
    if_active(side);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, i, n));
    const Reg column =
        b_.index(right, side, b_.mul(Scalar::i32, n, Operand::integer(given_bytes())));
    const Reg vectors =
        b_.index(work, side, b_.mul(Scalar::i32, n, Operand::integer(kSolveVectors * bytes_)));
    const Reg from = b_.load(element(order, i, kWord), 0, 1, Cache::readonly);
    const Reg factor = b_.load(element(scale, from, sizeof(double)), 0, 1, Cache::readonly);
    const LuNumber value =
        canonical(load_scaled(element(column, from, given_bytes()), factor, Cache::normal));
    Reg place = element(vectors, i, bytes_);
    const Reg step = b_.mul(Scalar::i32, n, Operand::integer(bytes_));
    const Reg bytes = b_.convert(Scalar::i64, step, Conversion::sign);
    store_number(place, value);
    for (uint32_t vector = 1; vector < kSolveVectors; ++vector) {
      place = b_.offset(place, bytes);
      store_not_ready(place);
    }
    b_.end();
    b_.end();
    b_.return_void();
  }
};

} // namespace

void write_lu_input(ir::Module& module, const LuKernelOptions& options) {
  InputWriter(module, options).write();
}

void write_lu_solve_input(ir::Module& module, const LuKernelOptions& options) {
  SolveInputWriter(module, options).write();
}

} // namespace sparsertc
