// Both substitutions of a solve by one block: the steps of ir/lu_block_solve.h, and the numbers for
// them. As soon as a warp is through with a record it reads the next one, and only then goes to the
// barrier: loads from device memory are underway while it waits.
#include "ir/lu_block_solve.h"

#include "compiler/lower/lu_kernel_writer.h"

#include <utility>

namespace sparsertc {
namespace {

using ir::Cache;
using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Shuffle;
using ir::Special;
using ir::Type;

constexpr uint32_t kLanes = LuBlockSolve::kLanes;
constexpr uint32_t kRecordWords = LuBlockSolve::kRecordWords;
constexpr uint32_t kProducts = LuBlockSolve::kProducts;
constexpr uint32_t kColumns = LuBlockSolve::kColumns;
constexpr uint32_t kWord = sizeof(uint32_t);

class NumbersWriter : LuKernelWriter {
public:
  NumbersWriter(ir::Module& module, const LuKernelOptions& options)
      : LuKernelWriter(module, options, kLuBlockInputKernel, kLuInputThreads) {}

  void write() {
    const Reg values = number_pointer("values"), slot = pointer("slot", Scalar::i32),
              pivot = pointer("pivot", Scalar::i32), numbers = number_pointer("numbers"),
              count = number("count");
    const Reg i = thread_number(kLuInputThreads);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, i, count));
    const Reg entry = b_.load(element(slot, i, kWord), 0, 1, Cache::readonly);
    const Reg diagonal = b_.load(element(pivot, i, kWord), 0, 1, Cache::readonly);
    const LuNumber result = zero();
    b_.if_begin(b_.compare(Comparison::ge, Scalar::i32, entry, Operand::integer(0)));
    const LuNumber value = load_number(element(values, entry, bytes_), Cache::readonly);
    const LuNumber inverse = load_number(element(values, diagonal, bytes_), Cache::readonly);
    negated(mul(value, inverse), result);
    b_.end();
    store_number(element(numbers, i, bytes_), result);
    b_.end();
    b_.return_void();
  }
};

class BlockSolveWriter : LuKernelWriter {
public:
  BlockSolveWriter(ir::Module& module, const LuKernelOptions& options)
      : LuKernelWriter(module, options, kLuBlockSolveKernel, options.block_threads),
        symbol_(add_vector(module)), rows_(options.block_rows) {}

  void write() {
    const Reg right = given_pointer("b"), from = pointer("from", Scalar::i32),
              from_scale = pointer("from_scale", Scalar::f64), x = given_pointer("x"),
              to = pointer("to", Scalar::i32), to_scale = pointer("to_scale", Scalar::f64),
              diagonal = pointer("diagonal", Scalar::i32);
    const Reg values = number_pointer("values");
    numbers_ = number_pointer("numbers");
    const Reg end = pointer("end", Scalar::i32);
    shapes_ = pointer("shape", Scalar::i32);
    const Reg records = pointer("records", Scalar::i32), steps = number("steps");
    declare_active();
    vector_ = b_.address(symbol_);
    thread_ = b_.special(Special::thread_x);
    const Operand stride = Operand::integer(int64_t{rows_} * given_bytes());
    const Reg side = b_.special(Special::block_x);
    if_active(side);

    const Reg right_column = b_.index(right, side, stride);
    for_each_row([&](Reg i) {
      const Reg row = b_.load(element(from, i, kWord), 0, 1, Cache::readonly);
      const Reg factor = b_.load(element(from_scale, row, sizeof(double)), 0, 1, Cache::readonly);
      const Reg slot = b_.load(element(diagonal, i, kWord), 0, 1, Cache::readonly);
      const LuNumber pivot = load_number(element(values, slot, bytes_), Cache::readonly);
      const LuNumber value =
          load_scaled(element(right_column, row, given_bytes()), factor, Cache::normal);
      store_number(element(vector_, i, bytes_), mul(value, pivot));
    });
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, thread_, Operand::integer(0)));
    b_.store(vector_, int64_t{rows_} * bytes_, zero_pieces(), pieces_);
    b_.end();
    b_.barrier();

    write_steps(end, records, steps);

    const Reg x_column = b_.index(x, side, stride);
    for_each_row([&](Reg i) {
      const Reg row = b_.load(element(to, i, kWord), 0, 1, Cache::readonly);
      const Reg factor = b_.load(element(to_scale, row, sizeof(double)), 0, 1, Cache::readonly);
      store_scaled(element(x_column, row, given_bytes()), load_number(element(vector_, i, bytes_)),
                   factor);
    });
    b_.end();
    b_.return_void();
  }

private:
  uint32_t add_vector(ir::Module& module) const {
    ir::Symbol symbol;
    symbol.name = "unknowns";
    symbol.type = Type::pointer(ir::Space::shared, piece_);
    symbol.count = (uint64_t{options_.block_rows} + 1) * pieces_;
    module.symbols.push_back(std::move(symbol));
    return static_cast<uint32_t>(module.symbols.size() - 1);
  }

  template <class Body>
  void for_each_row(const Body& body) {
    const Operand rows = Operand::integer(rows_);
    const Reg i = b_.add(Scalar::i32, b_.for_loop(rows, options_.block_threads), thread_);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, i, rows));
    body(i);
    b_.end();
    b_.end();
  }

  void write_steps(Reg end, Reg records, Reg steps) {
    const Reg warp = b_.value(Opcode::shr, Scalar::i32, {thread_, Operand::integer(5)});
    const Reg lane = b_.special(Special::lane);
    lane_numbers_ = element(numbers_, lane, kProducts * bytes_);
    lane_records_ = element(records, lane, kRecordWords * kWord);
    const uint32_t row = options_.block_threads / kLanes * kWord;
    const Reg warp_end = element(end, warp, kWord);
    sum_ = zero();

    const Reg record = b_.load(warp_end, 0, 1, Cache::readonly);
    const Reg stop = b_.load(warp_end, row, 1, Cache::readonly);
    words_ = b_.fresh_tuple(Scalar::i32, kRecordWords);
    record_numbers_ = b_.fresh_tuple(piece_, kColumns * pieces_);
    clear(record_numbers_, kColumns * pieces_);
    const Reg shape = b_.load(element(shapes_, record, 2 * kWord), 0, 2, Cache::readonly);
    const Reg next_shape = b_.fresh_tuple(Scalar::i32, 2);
    read_record(record, shape);
    b_.load(element(shapes_, record, 2 * kWord), 2 * kWord, 2, Cache::readonly, next_shape);

    const Reg next_stop = b_.load(warp_end, 2 * int64_t{row}, 1, Cache::readonly);
    const Reg step = b_.for_loop(steps, 1);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, record, stop));
    b_.loop();
    b_.if_begin(is_triangle(shape));
    triangle();
    b_.else_mark();
    gather(shape);
    b_.end();
    // Into the same registers: a move would wait for the loads before the barrier.
    b_.add(Scalar::i32, record, Operand::integer(1), record);
    b_.move(next_shape, shape);
    b_.move(next_shape[1], shape[1]);
    read_record(record, shape);
    b_.load(element(shapes_, record, 2 * kWord), 2 * kWord, 2, Cache::readonly, next_shape);
    b_.while_end(b_.compare(Comparison::lt, Scalar::i32, record, stop));
    b_.end();
    b_.move(next_stop, stop);
    b_.load(b_.index(warp_end, step, Operand::integer(row)), 3 * int64_t{row}, 1, Cache::readonly,
            next_stop);
    b_.barrier();
    b_.end();
  }

  Reg is_triangle(Reg shape) {
    return b_.compare(Comparison::eq, Scalar::i32, shape,
                      Operand::integer(LuBlockSolve::kTriangle));
  }

  /// Words and numbers; of a gather the first strip alone.
  void read_record(Reg record, Reg shape) {
    b_.load(element(lane_records_, record, kLanes * kRecordWords * kWord), 0, kRecordWords,
            Cache::readonly, words_);
    const uint32_t strip = kLanes * kProducts * bytes_;
    const Reg place = element(lane_numbers_, shape[1], strip);
    load_strip(place, 0, record_numbers_);
    b_.if_begin(is_triangle(shape));
    load_strip(place, strip, record_numbers_[kProducts * pieces_]);
    b_.end();
  }

  void load_strip(Reg place, int64_t offset, Reg numbers) {
    const uint32_t width = 16 / piece_bytes_;
    for (uint32_t i = 0; i < kProducts * pieces_; i += width)
      b_.load(place, offset + int64_t{i} * piece_bytes_, width, Cache::readonly, numbers[i]);
  }

  /// The half of a word.
  Reg half(Reg word, uint32_t which) {
    return which == 0 ? b_.value(Opcode::bit_and, Scalar::i32, {word, Operand::integer(0xFFFF)})
                      : b_.value(Opcode::shr, Scalar::i32, {word, Operand::integer(16)});
  }

  void gather(Reg shape) {
    LuNumber operand[kProducts];
    for (uint32_t i = 0; i < kProducts; ++i)
      operand[i] = load_number(element(vector_, half(words_[1 + i / 2], i % 2), bytes_));
    for (uint32_t i = 0; i < kProducts; ++i)
      fma(record_number(i), operand[i], sum_, sum_);
    b_.if_begin(b_.compare(Comparison::ne, Scalar::i32, shape, Operand::integer(0)));
    add_lanes(sum_, shape);
    const Reg row = half(words_[0], 0);
    b_.if_begin(is_row(row));
    const Reg place = element(vector_, row, bytes_);
    store_number(place, add(load_number(place), sum_));
    b_.end();
    clear(sum_);
    b_.end();
  }

  void triangle() {
    const Reg row = half(words_[0], 0), source = half(words_[0], 1);
    const Reg place = element(vector_, row, bytes_);
    const LuNumber value = load_number(place);
    for (uint32_t i = 0; i < kColumns; ++i) {
      const Reg lane = b_.add(Scalar::i32, source, Operand::integer(i));
      fma(record_number(i), from_lane(Shuffle::index, value, lane), value, value);
    }
    b_.if_begin(is_row(row));
    store_number(place, value);
    b_.end();
  }

  LuNumber record_number(uint32_t i) { return unpack(record_numbers_[i * pieces_]); }

  Reg is_row(Reg row) {
    return b_.compare(Comparison::lt, Scalar::i32, row, Operand::integer(rows_));
  }

  const uint32_t symbol_, rows_;
  Reg vector_, thread_, numbers_, shapes_, lane_numbers_, lane_records_;
  Reg words_, record_numbers_; ///< of the record that is worked on, and then of the next one
  LuNumber sum_;
};

} // namespace

void write_lu_block_solve(ir::Module& module, const LuKernelOptions& options) {
  NumbersWriter(module, options).write();
  BlockSolveWriter(module, options).write();
}

} // namespace sparsertc
