#include "compiler/lower/lu_refine.h"

#include "compiler/lower/lu_refine_writer.h"
#include "ir/verifier.h"

#include <bit>
#include <cstddef>
#include <limits>

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

class BeginWriter : RefineWriter {
public:
  BeginWriter(ir::Module& module, const LuRefineOptions& options)
      : RefineWriter(module, options, kLuRefineBegin) {}

  void write() {
    const Reg right = given_pointer("b"), kept = number_pointer("kept"), r = given_pointer("r"),
              x = number_pointer("x"), best = number_pointer("best"),
              record = pointer("record", Scalar::i64), active = pointer("active", Scalar::i32),
              n = number("n");
    const Reg i = thread_number(kLuRefineThreads);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, i, n));
    const LuNumber given = load_exact(element(given_vector_of(right, n), i, given_bytes()));
    store_number(element(vector_of(kept, n), i, bytes_), given);
    store_rounded(element(given_vector_of(r, n), i, given_bytes()), given);
    store_number(element(vector_of(x, n), i, bytes_), zero());
    store_number(element(vector_of(best, n), i, bytes_), zero());
    b_.end();
    if_first_thread();
    const LuRefineRecord fresh;
    const Reg place = record_of(record);
    const auto set = [&](size_t offset, int64_t word) {
      b_.store(place, static_cast<int64_t>(offset),
               b_.constant(Scalar::i64, Operand::integer(word)));
    };
    set(offsetof(LuRefineRecord, backward_error), std::bit_cast<int64_t>(fresh.backward_error));
    set(offsetof(LuRefineRecord, residual), std::bit_cast<int64_t>(fresh.residual));
    set(offsetof(LuRefineRecord, steps), fresh.steps);
    set(offsetof(LuRefineRecord, next), fresh.next);
    set(offsetof(LuRefineRecord, is_newest), fresh.is_newest);
    set(offsetof(LuRefineRecord, last_size), std::bit_cast<int64_t>(fresh.last_size));
    b_.store(element(active, side(), kWord), 0, b_.constant(Scalar::i32, Operand::integer(1)));
    b_.end();
    b_.return_void();
  }
};

class UpdateWriter : RefineWriter {
public:
  UpdateWriter(ir::Module& module, const LuRefineOptions& options)
      : RefineWriter(module, options, kLuRefineUpdate),
        shared_(add_shared(module, "refine_sizes", kWarps * kLuRefineUpdateNumbers)) {}

  void write() {
    const Reg r_all = given_pointer("r"), x_all = number_pointer("x"),
              best_all = number_pointer("best"), scale = pointer("scale", Scalar::f64),
              record = pointer("record", Scalar::i64), active = pointer("active", Scalar::i32),
              parts = pointer("parts", Scalar::i64), n = number("n");
    if_active(active);
    const Reg r = given_vector_of(r_all, n), x = vector_of(x_all, n), best = vector_of(best_all, n);
    const Reg newest = b_.load(record_of(record), offsetof(LuRefineRecord, is_newest));
    const Reg keep = b_.compare(Comparison::ne, Scalar::i64, newest, Operand::integer(0));
    const Reg correction = zero_bits(), largest = zero_bits();
    const Reg sum = real_constant(0);
    for_each_row(n, kLuRefineUpdateParts, [&](Reg i) {
      const LuNumber change = load_exact(element(r, i, given_bytes()));
      const Reg place = element(x, i, bytes_);
      const LuNumber before = load_number(place);
      b_.if_begin(keep);
      store_number(element(best, i, bytes_), before);
      b_.end();
      const LuNumber now = rounded(add(before, change));
      store_number(place, now);
      const Reg factor = b_.load(element(scale, i, kReal), 0, 1, Cache::readonly);
      larger(correction, ordered(b_.value(Opcode::div, type_, {modulus(change), factor})),
             correction);
      const Reg size = modulus(now);
      larger(largest, ordered(size), largest);
      b_.add(type_, sum, size, sum);
    });
    largest_over_lanes(correction);
    largest_over_lanes(largest);
    add_over_lanes(sum);
    const Reg shared = b_.address(shared_);
    const Reg thread = b_.special(Special::thread_x), lane = b_.special(Special::lane);
    const Reg warp = b_.value(Opcode::shr, Scalar::i32, {thread, Operand::integer(5)});
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, lane, Operand::integer(0)));
    const Reg mine = element(shared, warp, kLuRefineUpdateNumbers * kReal);
    b_.store(mine, 0, correction);
    b_.store(mine, kReal, largest);
    b_.store(mine, 2 * kReal, bits(sum));
    b_.end();
    b_.barrier();
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, thread, Operand::integer(0)));
    for (uint32_t other = 1; other < kWarps; ++other) {
      const int64_t place = int64_t{other} * kLuRefineUpdateNumbers * kReal;
      larger(correction, b_.load(shared, place), correction);
      larger(largest, b_.load(shared, place + kReal), largest);
      b_.add(type_, sum, number_of(b_.load(shared, place + 2 * kReal)), sum);
    }
    const Reg to = element(parts_of(parts, kLuRefineUpdateParts, kLuRefineUpdateNumbers),
                           b_.special(Special::block_x), kLuRefineUpdateNumbers * kReal);
    b_.store(to, 0, correction);
    b_.store(to, kReal, largest);
    b_.store(to, 2 * kReal, bits(sum));
    b_.end();
    b_.end();
    b_.return_void();
  }

private:
  const uint32_t shared_;
};

/// A warp for each row, its lanes beside one another in the row's entries.
class ResidualWriter : RefineWriter {
public:
  ResidualWriter(ir::Module& module, const LuRefineOptions& options)
      : RefineWriter(module, options, kLuRefineResidual) {}

  void write() {
    const Reg offset = pointer("offset", Scalar::i32);
    index_ = pointer("index", Scalar::i32);
    source_ = pointer("source", Scalar::i32);
    a_ = given_pointer("A");
    const Reg kept = number_pointer("kept"), r_all = given_pointer("r"),
              x_all = number_pointer("x"), active = pointer("active", Scalar::i32),
              update_parts = pointer("update_parts", Scalar::i64),
              update_blocks = number("update_blocks"), parts = pointer("parts", Scalar::i64);
    n_ = number("n");
    if_active(active);
    const Reg right = vector_of(kept, n_), r = given_vector_of(r_all, n_);
    x_ = vector_of(x_all, n_);
    lane_ = b_.special(Special::lane);
    const Reg before = b_.mul(Scalar::i32, b_.special(Special::block_x), Operand::integer(kWarps));
    const Reg in_block =
        b_.value(Opcode::shr, Scalar::i32, {b_.special(Special::thread_x), Operand::integer(5)});
    const Reg warp = b_.add(Scalar::i32, before, in_block);
    sizes_ = read_sizes(parts_of(update_parts, kLuRefineUpdateParts, kLuRefineUpdateNumbers),
                        update_blocks, lane_);
    for (Reg& word : worst_)
      word = zero_bits();

    const Reg i = b_.add(Scalar::i32, b_.for_loop(n_, kLuRefineResidualParts), warp);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, i, n_));
    const Reg bounds = element(offset, i, kWord);
    const Row row =
        add_row(b_.load(bounds, 0, 1, Cache::readonly), b_.load(bounds, kWord, 1, Cache::readonly));
    const LuNumber b = load_number(element(right, i, bytes_));
    const LuNumber rest = sub(b, row.product);
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, lane_, Operand::integer(0)));
    store_rounded(element(r, i, given_bytes()), rest);
    b_.end();
    judge(row, modulus(b), modulus(rest));
    b_.end();
    b_.end();

    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, lane_, Operand::integer(0)));
    const Reg to = element(parts_of(parts, kLuRefineResidualParts, kLuRefineResidualNumbers), warp,
                           kLuRefineResidualNumbers * kReal);
    for (uint32_t w = 0; w < kLuRefineResidualNumbers; ++w)
      b_.store(to, int64_t{w} * kReal, worst_[w]);
    b_.end();
    b_.end();
    b_.return_void();
  }

private:
  struct Row {
    LuNumber product; ///< of the row and x
    Reg scale;        ///< |a| |x|
    Reg sum;          ///< of |a|
    Reg largest;      ///< |a|, its bits
  };

  Row add_row(Reg begin, Reg end) {
    const Row row{zero(), real_constant(0), real_constant(0), zero_bits()};
    const Reg count = b_.sub(Scalar::i32, end, begin);
    const Reg step = b_.add(Scalar::i32, b_.for_loop(count, kLanes), lane_);
    const Reg p = b_.add(Scalar::i32, begin, step);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, p, end));
    const Reg j = b_.load(element(index_, p, kWord), 0, 1, Cache::readonly);
    const Reg from = b_.load(element(source_, p, kWord), 0, 1, Cache::readonly);
    const LuNumber a = load_exact(element(a_, from, given_bytes()), Cache::readonly);
    const LuNumber x = load_number(element(x_, j, bytes_), Cache::readonly);
    fma(a, x, row.product, row.product);
    const Reg size = modulus(a);
    b_.fma(type_, size, modulus(x), row.scale, row.scale);
    b_.add(type_, row.sum, size, row.sum);
    larger(row.largest, ordered(size), row.largest);
    b_.end();
    b_.end();
    add_over_lanes(row.product);
    add_over_lanes(row.scale);
    add_over_lanes(row.sum);
    largest_over_lanes(row.largest);
    return row;
  }

  /// The row's backward error. Rows that vanish in |A| |x| + |b| are measured by norms.
  void judge(const Row& row, Reg b, Reg rest) {
    constexpr double kRoundoff = std::numeric_limits<double>::epsilon() / 2;
    const Reg largest = number_of(row.largest);
    const Reg whole = b_.add(type_, row.scale, b);
    const Reg size = b_.fma(type_, largest, sizes_.largest_x, b);
    const Reg count = b_.convert(Scalar::f64, n_, Conversion::exact);
    const Reg limit = b_.mul(type_, b_.mul(type_, count, Operand::f64(1000 * kRoundoff)), size);
    const Reg ordinary = b_.compare(Comparison::gt, type_, whole, limit);
    const Reg by_norm = b_.fma(type_, largest, sizes_.sum_x, row.scale);
    const Reg divisor = b_.select(type_, ordinary, whole, by_norm);
    const Reg nothing = b_.compare(Comparison::eq, type_, rest, real(0));
    const Reg ratio =
        b_.select(type_, nothing, real_constant(0), b_.value(Opcode::div, type_, {rest, divisor}));
    const Reg error = ordered(ratio), none = zero_bits();
    larger(worst_[0], b_.select(Scalar::i64, ordinary, error, none), worst_[0]);
    larger(worst_[1], b_.select(Scalar::i64, ordinary, none, error), worst_[1]);
    larger(worst_[2], ordered(rest), worst_[2]);
    larger(worst_[3], ordered(row.sum), worst_[3]);
    larger(worst_[4], ordered(b), worst_[4]);
  }

  Reg index_, source_, a_, n_, x_, lane_;
  Sizes sizes_;
  Reg worst_[kLuRefineResidualNumbers];
};

class DecideWriter : RefineWriter {
public:
  DecideWriter(ir::Module& module, const LuRefineOptions& options)
      : RefineWriter(module, options, kLuRefineDecide),
        shared_(add_shared(module, "refine_worst", kWarps * kLuRefineResidualNumbers)) {}

  void write() {
    const Reg records = pointer("record", Scalar::i64), active = pointer("active", Scalar::i32),
              update_parts = pointer("update_parts", Scalar::i64),
              update_blocks = number("update_blocks"), all_parts = pointer("parts", Scalar::i64),
              residual_warps = number("residual_warps"), target = number("target", Scalar::f64),
              slowest = number("slowest", Scalar::f64);
    if_active(active);
    const Reg parts = parts_of(all_parts, kLuRefineResidualParts, kLuRefineResidualNumbers);
    const Reg thread = b_.special(Special::thread_x), lane = b_.special(Special::lane);
    const Sizes sizes = read_sizes(
        parts_of(update_parts, kLuRefineUpdateParts, kLuRefineUpdateNumbers), update_blocks, lane);
    Reg worst[kLuRefineResidualNumbers];
    for (Reg& word : worst)
      word = zero_bits();
    const Reg part = b_.add(Scalar::i32, b_.for_loop(residual_warps, kLuRefineThreads), thread);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, part, residual_warps));
    const Reg place = element(parts, part, kLuRefineResidualNumbers * kReal);
    for (uint32_t w = 0; w < kLuRefineResidualNumbers; ++w)
      larger(worst[w], b_.load(place, int64_t{w} * kReal), worst[w]);
    b_.end();
    b_.end();
    const Reg shared = b_.address(shared_);
    const Reg warp = b_.value(Opcode::shr, Scalar::i32, {thread, Operand::integer(5)});
    for (const Reg word : worst)
      largest_over_lanes(word);
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, lane, Operand::integer(0)));
    const Reg mine = element(shared, warp, kLuRefineResidualNumbers * kReal);
    for (uint32_t w = 0; w < kLuRefineResidualNumbers; ++w)
      b_.store(mine, int64_t{w} * kReal, worst[w]);
    b_.end();
    b_.barrier();
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, thread, Operand::integer(0)));
    for (uint32_t other = 1; other < kWarps; ++other)
      for (uint32_t w = 0; w < kLuRefineResidualNumbers; ++w)
        larger(worst[w], b_.load(shared, int64_t{other * kLuRefineResidualNumbers + w} * kReal),
               worst[w]);
    decide(record_of(records), element(active, side(), kWord), sizes, worst, target, slowest);
    b_.end();
    b_.end();
    b_.return_void();
  }

private:
  Reg both(Reg x, Reg y) { return b_.value(Opcode::bit_and, Scalar::pred, {x, y}); }
  Reg either(Reg x, Reg y) { return b_.value(Opcode::bit_or, Scalar::pred, {x, y}); }
  Reg less_or_equal(Reg x, Reg y) { return b_.compare(Comparison::le, type_, x, y); }

  void decide(Reg record, Reg active, const Sizes& sizes, const Reg* worst, Reg target,
              Reg slowest) {
    const auto read = [&](size_t offset) { return b_.load(record, static_cast<int64_t>(offset)); };
    const auto write = [&](size_t offset, Reg word) {
      b_.store(record, static_cast<int64_t>(offset), word);
    };
    const Reg error = b_.add(type_, number_of(worst[0]), number_of(worst[1]));
    const Reg before = number_of(read(offsetof(LuRefineRecord, backward_error)));
    const Reg last_size = number_of(read(offsetof(LuRefineRecord, last_size)));
    const Reg step = read(offsetof(LuRefineRecord, next));
    const Reg better = b_.compare(Comparison::lt, type_, error, before);
    b_.if_begin(better);
    const Reg top = number_of(worst[2]);
    const Reg norms = b_.fma(type_, number_of(worst[3]), sizes.largest_x, number_of(worst[4]));
    const Reg nothing = b_.compare(Comparison::eq, type_, top, real(0));
    const Reg quotient = b_.value(Opcode::div, type_, {top, norms});
    write(offsetof(LuRefineRecord, residual),
          bits(b_.select(type_, nothing, real_constant(0), quotient)));
    write(offsetof(LuRefineRecord, backward_error), bits(error));
    write(offsetof(LuRefineRecord, steps), step);
    b_.end();
    const Reg one = b_.constant(Scalar::i64, Operand::integer(1));
    write(offsetof(LuRefineRecord, is_newest), b_.select(Scalar::i64, better, one, zero_bits()));
    write(offsetof(LuRefineRecord, next), b_.add(Scalar::i64, step, Operand::integer(1)));
    write(offsetof(LuRefineRecord, last_size), bits(sizes.correction));

    // Where x is far off, the backward error is measured by what is wrong in x: it then stays large
    // while x gets better.
    const Reg contracts = less_or_equal(sizes.correction, b_.mul(type_, slowest, last_size));
    const Reg falls = less_or_equal(error, b_.mul(type_, slowest, before));
    const Reg done = less_or_equal(error, target);
    const Reg goes_on =
        both(b_.value(Opcode::bit_not, Scalar::pred, {done}), either(contracts, falls));
    const Reg yes = b_.constant(Scalar::i32, Operand::integer(1));
    b_.store(active, 0, b_.select(Scalar::i32, goes_on, yes, Operand::integer(0)));
  }

  const uint32_t shared_;
};

class EndWriter : RefineWriter {
public:
  EndWriter(ir::Module& module, const LuRefineOptions& options)
      : RefineWriter(module, options, kLuRefineEnd) {}

  void write() {
    const Reg x = number_pointer("x"), best = number_pointer("best"),
              solution = given_pointer("solution"), record = pointer("record", Scalar::i64),
              n = number("n");
    const Reg i = thread_number(kLuRefineThreads);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, i, n));
    const Reg word = b_.load(record_of(record), offsetof(LuRefineRecord, is_newest));
    const Reg newest = b_.compare(Comparison::ne, Scalar::i64, word, Operand::integer(0));
    const LuNumber here = load_number(element(vector_of(x, n), i, bytes_));
    const LuNumber there = load_number(element(vector_of(best, n), i, bytes_));
    store_rounded(element(given_vector_of(solution, n), i, given_bytes()),
                  select(newest, here, there));
    b_.end();
    b_.return_void();
  }
};

} // namespace

ir::Module make_lu_refine_kernels(const LuRefineOptions& options) {
  ir::Module module;
  module.functions.reserve(5); // the writers hold references
  BeginWriter(module, options).write();
  UpdateWriter(module, options).write();
  ResidualWriter(module, options).write();
  DecideWriter(module, options).write();
  EndWriter(module, options).write();
  ir::verify_or_throw(module, "lowering iterative refinement");
  return module;
}

} // namespace sparsertc
