// Both substitutions of a solve by one block: the steps of ir/lu_block_solve.h. Two records are
// underway: of the next one the numbers of the factors are being loaded, of the one after it the
// words, so that nobody waits for device memory after a barrier.
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
/// Words of one load.
constexpr uint32_t kVector = 4;

class BlockSolveWriter : LuKernelWriter {
public:
  BlockSolveWriter(ir::Module& module, const LuKernelOptions& options)
      : LuKernelWriter(module, options, kLuBlockSolveKernel, options.block_threads),
        symbol_(add_vector(module, options)), rows_(options.block_rows) {}

  void write() {
    const Reg right = pointer("b", options_.given), from = pointer("from", Scalar::i32),
              from_scale = pointer("from_scale", Scalar::f64), x = pointer("x", options_.given),
              to = pointer("to", Scalar::i32), to_scale = pointer("to_scale", Scalar::f64),
              diagonal = pointer("diagonal", Scalar::i32);
    values_ = pointer("values", options_.type);
    const Reg end = pointer("end", Scalar::i32);
    shape_ = pointer("shape", Scalar::i32);
    const Reg records = pointer("records", Scalar::i32), steps = number("steps");
    vector_ = b_.address(symbol_);
    thread_ = b_.special(Special::thread_x);
    const Operand stride = Operand::integer(int64_t{rows_} * given_bytes());
    const Reg side = b_.special(Special::block_x);

    const Reg right_column = b_.index(right, side, stride);
    for_each_row([&](Reg i) {
      const Reg row = b_.load(element(from, i, kWord), 0, 1, Cache::readonly);
      const Reg factor = b_.load(element(from_scale, row, sizeof(double)), 0, 1, Cache::readonly);
      const Reg given = b_.load(element(right_column, row, given_bytes()), 0);
      const Reg slot = b_.load(element(diagonal, i, kWord), 0, 1, Cache::readonly);
      const Reg pivot = b_.load(element(values_, slot, bytes_), 0, 1, Cache::readonly);
      const Reg value = from_f64(b_.mul(Scalar::f64, given_to_f64(given), factor));
      b_.store(element(vector_, i, bytes_), 0, b_.mul(type_, value, pivot));
    });
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, thread_, Operand::integer(0)));
    b_.store(vector_, int64_t{rows_} * bytes_, real_constant(0));
    b_.end();
    b_.barrier();

    write_steps(end, records, steps);

    const Reg x_column = b_.index(x, side, stride);
    for_each_row([&](Reg i) {
      const Reg row = b_.load(element(to, i, kWord), 0, 1, Cache::readonly);
      const Reg factor = b_.load(element(to_scale, row, sizeof(double)), 0, 1, Cache::readonly);
      const Reg value = to_f64(b_.load(element(vector_, i, bytes_), 0));
      b_.store(element(x_column, row, given_bytes()), 0,
               f64_to_given(b_.mul(Scalar::f64, value, factor)));
    });
    b_.return_void();
  }

private:
  static uint32_t add_vector(ir::Module& module, const LuKernelOptions& options) {
    ir::Symbol symbol;
    symbol.name = "unknowns";
    symbol.type = Type::pointer(ir::Space::shared, options.type);
    symbol.count = uint64_t{options.block_rows} + 1;
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

  struct Record {
    Reg shape;
    Reg words;  ///< kRecordWords registers
    Reg values; ///< kColumns registers
    Reg pivot;
  };

  void write_steps(Reg end, Reg records, Reg steps) {
    const Reg warp = b_.value(Opcode::shr, Scalar::i32, {thread_, Operand::integer(5)});
    const Reg lane = b_.special(Special::lane);
    lane_records_ = element(records, lane, kVector * kWord);
    const uint32_t row = options_.block_threads / kLanes * kWord;
    const Reg warp_end = element(end, warp, kWord);
    sum_ = b_.fresh(type_);
    b_.constant(type_, real(0), sum_);

    const Reg record = b_.load(warp_end, 0, 1, Cache::readonly);
    const Reg stop = b_.load(warp_end, row, 1, Cache::readonly);
    const Record now = declare_record(), next = declare_record();
    read_words(record, now.shape, now.words);
    read_words(b_.add(Scalar::i32, record, Operand::integer(1)), next.shape, next.words);
    load_values(now);

    const Reg step = b_.for_loop(steps, 1);
    const Reg stop_after = b_.load(b_.index(warp_end, step, Operand::integer(row)),
                                   2 * int64_t{row}, 1, Cache::readonly);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, record, stop));
    b_.loop();
    const Reg shape_after = b_.fresh(Scalar::i32);
    const Reg after = b_.fresh_tuple(Scalar::i32, kRecordWords);
    load_values(next);
    read_words(b_.add(Scalar::i32, record, Operand::integer(2)), shape_after, after);
    b_.if_begin(is_triangle(now));
    triangle(now);
    b_.else_mark();
    gather(now);
    b_.end();
    b_.move(next.shape, now.shape);
    b_.move(shape_after, next.shape);
    for (uint32_t i = 0; i < kRecordWords; ++i) {
      b_.move(next.words[i], now.words[i]);
      b_.move(after[i], next.words[i]);
    }
    for (uint32_t i = 0; i < kColumns; ++i)
      b_.move(next.values[i], now.values[i]);
    b_.move(next.pivot, now.pivot);
    b_.add(Scalar::i32, record, Operand::integer(1), record);
    b_.while_end(b_.compare(Comparison::lt, Scalar::i32, record, stop));
    b_.end();
    b_.move(stop_after, stop);
    b_.barrier();
    b_.end();
  }

  Record declare_record() {
    return {b_.fresh(Scalar::i32), b_.fresh_tuple(Scalar::i32, kRecordWords),
            b_.fresh_tuple(type_, kColumns), b_.fresh(type_)};
  }

  void read_words(Reg number, Reg shape, Reg words) {
    b_.load(element(shape_, number, kWord), 0, 1, Cache::readonly, shape);
    const uint32_t vector = kLanes * kVector * kWord;
    const Reg place = element(lane_records_, number, kRecordWords / kVector * vector);
    for (uint32_t i = 0; i < kRecordWords / kVector; ++i)
      b_.load(place, int64_t{i} * vector, kVector, Cache::readonly, words[i * kVector]);
  }

  Reg is_triangle(const Record& record) {
    return b_.compare(Comparison::eq, Scalar::i32, record.shape,
                      Operand::integer(LuBlockSolve::kTriangle));
  }

  /// The numbers of the factors; 0 where there is none.
  void load_values(const Record& record) {
    load_value(record.words[1], record.pivot);
    for (uint32_t i = 0; i < kProducts; ++i)
      load_value(record.words[4 + i], record.values[i]);
    for (uint32_t i = kProducts; i < kColumns; ++i)
      b_.constant(type_, real(0), record.values[i]);
    b_.if_begin(is_triangle(record));
    for (uint32_t i = kProducts; i < kColumns; ++i)
      load_value(record.words[4 + i], record.values[i]);
    b_.end();
  }

  void load_value(Reg slot, Reg value) {
    b_.constant(type_, real(0), value);
    b_.if_begin(b_.compare(Comparison::ge, Scalar::i32, slot, Operand::integer(0)));
    b_.load(element(values_, slot, bytes_), 0, 1, Cache::readonly, value);
    b_.end();
  }

  void gather(const Record& record) {
    Reg operand[kProducts];
    for (uint32_t i = 0; i < kProducts; ++i)
      operand[i] = b_.load(element(vector_, record.words[8 + i], bytes_), 0);
    for (uint32_t i = 0; i < kProducts; ++i)
      b_.fma(type_, record.values[i], operand[i], sum_, sum_);
    b_.if_begin(b_.compare(Comparison::ne, Scalar::i32, record.shape, Operand::integer(0)));
    add_lanes(sum_, record.shape);
    b_.if_begin(has_row(record));
    const Reg place = element(vector_, record.words[0], bytes_);
    const Reg minus = b_.value(Opcode::neg, type_, {sum_});
    b_.store(place, 0, b_.fma(type_, minus, record.pivot, b_.load(place, 0)));
    b_.end();
    b_.constant(type_, real(0), sum_);
    b_.end();
  }

  void triangle(const Record& record) {
    const Reg place = element(vector_, record.words[0], bytes_);
    const Reg value = b_.load(place, 0);
    const Reg minus = b_.value(Opcode::neg, type_, {record.pivot});
    Reg factor[kColumns];
    for (uint32_t i = 0; i < kColumns; ++i)
      factor[i] = b_.mul(type_, record.values[i], minus);
    for (uint32_t i = 0; i < kColumns; ++i) {
      const Reg lane = b_.add(Scalar::i32, record.words[2], Operand::integer(i));
      b_.fma(type_, factor[i], from_lane(Shuffle::index, value, lane), value, value);
    }
    b_.if_begin(has_row(record));
    b_.store(place, 0, value);
    b_.end();
  }

  Reg has_row(const Record& record) {
    return b_.compare(Comparison::lt, Scalar::i32, record.words[0], Operand::integer(rows_));
  }

  const uint32_t symbol_, rows_;
  Reg vector_, thread_, values_, shape_, lane_records_, sum_;
};

} // namespace

void write_lu_block_solve(ir::Module& module, const LuKernelOptions& options) {
  BlockSolveWriter(module, options).write();
}

} // namespace sparsertc
