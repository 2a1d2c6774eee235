// Compressed SpMM, for few columns of B (compiler/inspect/compressed_stream.h has the format):
//
//   copies of the first steps of this lane's part of the stream start; rows of B come into shared
//   memory, spaced by rows of zeros; barrier
//   for each step:  8 values, 8 distances of this lane's part      (copied `prefetch`-1 steps
//   ahead)
//     place += distance;  sums += value * B[place]                 8 times
//   the parts' sums are added between lanes, pairwise by distance 1, 2, 4, ...
//   lanes of part 0: epilogue and store
//
// A lane copies what it reads itself, so that no step needs a barrier. How many steps a warp takes
// and where its part of the stream begins follow from its number by a few comparisons in the code,
// where few lengths occur; from a table otherwise.
#include "compiler/lower/spmm_compressed.h"

#include "compiler/inspect/compressed_schedule.h"
#include "compiler/lower/spmm_kernel.h"
#include "compiler/lower/spmm_symbols.h"
#include "ir/error.h"

#include <algorithm>
#include <bit>

namespace sparsertc {
namespace {

using ir::Builder;
using ir::Cache;
using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Shuffle;
using ir::Space;
using ir::Special;
using ir::Type;

constexpr uint32_t kWarp = 32;
/// Lengths up to which they stand in the code.
constexpr size_t kMostLengthsInCode = 8;
/// Elements of B a thread has in flight while it stages them one by one, and vectors along K.
constexpr uint32_t kElementsInFlight = 8, kRunsInFlight = 2;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

/// Where the number of steps becomes smaller: from warp `first` on by `less`.
struct Drop {
  uint32_t first, less;
};
std::vector<Drop> drops_of(const CompressedStream& stream) {
  std::vector<Drop> drops;
  for (uint32_t warp = 1; warp <= stream.warps(); ++warp) {
    const uint32_t steps = warp == stream.warps() ? 0 : stream.steps[warp];
    if (steps < stream.steps[warp - 1])
      drops.push_back({warp, stream.steps[warp - 1] - steps});
  }
  return drops;
}

// ---- tables ------------------------------------------------------------------------------------

std::vector<uint8_t> stream_bytes(const SpmmSchedule& schedule, const Pattern& pattern,
                                  const std::vector<double>& weights) {
  const CompressedStream& stream = schedule.stream;
  const uint32_t size = element_bytes(schedule.problem.type);
  const uint32_t per_piece = std::min(kCompressedStep, 16 / size);
  const uint32_t pieces = kCompressedStep / per_piece;
  const uint32_t parts = stream.parts_of_warp();
  std::vector<uint8_t> bytes;
  bytes.reserve(stream.bytes);
  std::vector<CompressedPart> of_warp(parts);
  std::vector<uint64_t> row_offset(parts);
  for (uint32_t warp = 0; warp < stream.warps(); ++warp) {
    const size_t begin = bytes.size();
    const uint32_t steps = stream.steps[warp];
    for (uint32_t r = 0; r < stream.rows_per_warp; ++r) {
      const size_t at = size_t{warp} * stream.rows_per_warp + r;
      std::span<const uint32_t> columns;
      uint64_t offset = 0;
      if (at < stream.rows.size()) {
        columns = pattern.row(stream.rows[at]);
        offset = pattern.row_offset[stream.rows[at]];
      }
      std::vector<CompressedPart> of_row =
          compress_row(stream.staged, columns, stream.parts, steps);
      for (uint32_t p = 0; p < stream.parts; ++p) {
        of_warp[r * stream.parts + p] = std::move(of_row[p]);
        row_offset[r * stream.parts + p] = offset;
      }
    }
    for (const CompressedPart& part : of_warp)
      put_bytes(bytes, part.first_place);
    bytes.resize(begin + stream.head_bytes());
    for (uint32_t step = 0; step < steps; ++step) {
      const size_t step_begin = bytes.size();
      for (uint32_t piece = 0; piece < pieces; ++piece)
        for (uint32_t p = 0; p < parts; ++p)
          for (uint32_t i = 0; i < per_piece; ++i) {
            const uint32_t entry =
                of_warp[p].slots[step * kCompressedStep + piece * per_piece + i].entry;
            put_value(bytes, schedule.problem.type,
                      entry == CompressedPart::kNoEntry ? 0.0 : weights[row_offset[p] + entry]);
          }
      for (const CompressedPart& part : of_warp) {
        uint64_t deltas = 0;
        for (uint32_t i = 0; i < kCompressedStep; ++i)
          deltas |= uint64_t{part.slots[step * kCompressedStep + i].delta}
                    << (i * stream.staged.delta_bits);
        for (uint32_t byte = 0; byte < stream.delta_bytes(); ++byte)
          bytes.push_back(static_cast<uint8_t>(deltas >> (8 * byte)));
      }
      bytes.resize(step_begin + stream.step_bytes(size));
    }
  }
  if (bytes.size() != stream.bytes)
    throw InternalError("the compressed stream has not the length that was planned");
  return bytes;
}

/// Of warp w the steps, and the steps of all warps before it.
std::vector<uint8_t> step_table(const CompressedStream& stream, uint32_t slots) {
  std::vector<uint8_t> bytes;
  uint32_t before = 0;
  for (uint32_t warp = 0; warp < slots; ++warp) {
    const uint32_t steps = warp < stream.warps() ? stream.steps[warp] : 0;
    put_bytes(bytes, steps);
    put_bytes(bytes, before);
    before += steps;
  }
  return bytes;
}

uint32_t add_shared(ir::Module& module, const char* name, Scalar element, uint64_t bytes) {
  ir::Symbol symbol;
  symbol.name = name;
  symbol.type = Type::pointer(Space::shared, element);
  symbol.count = bytes / ir::size_in_bytes(element);
  module.symbols.push_back(std::move(symbol));
  return static_cast<uint32_t>(module.symbols.size() - 1);
}

// ---- the kernel --------------------------------------------------------------------------------

struct CompressedSymbols {
  uint32_t stream = 0, rows = 0, steps = UINT32_MAX;
  uint32_t staged = 0, values = 0, deltas = 0;
};

class CompressedWriter {
public:
  CompressedWriter(Builder& builder, const SpmmSchedule& schedule, const CompressedSymbols& symbols,
                   const KernelOperands& operands)
      : builder_(builder), schedule_(schedule), problem_(schedule.problem), tile_(schedule.tile),
        stream_(schedule.stream), symbols_(symbols), operands_(operands),
        element_(element_scalar(problem_.type)), accumulator_(accumulator_scalar(problem_.type)),
        staged_element_(stream_.staged_wide ? accumulator_ : element_),
        size_(element_bytes(problem_.type)), staged_size_(ir::size_in_bytes(staged_element_)),
        row_bytes_(stream_.columns_per_block * staged_size_),
        b_row_bytes_(problem_.layout == Layout::row_major
                         ? static_cast<int64_t>(problem_.ldb) * size_
                         : size_),
        b_column_bytes_(problem_.layout == Layout::row_major
                            ? size_
                            : static_cast<int64_t>(problem_.ldb) * size_) {}

  void write() {
    write_numbers();
    write_steps();
    staged_ = builder_.address(symbols_.staged);
    if (row_staging(schedule_) == RowStaging::pieces)
      stage_pieces();
    start_stream();
    if (row_staging(schedule_) == RowStaging::runs)
      stage_runs();
    if (row_staging(schedule_) == RowStaging::elements)
      stage_elements();
    // The first group holds the rows of B and the first step.
    builder_.copy_wait(tile_.prefetch - 2);
    builder_.barrier();
    write_loop();
    add_parts();
    store();
  }

private:
  // ---- small arithmetic ----

  Reg add(Reg a, Operand b) { return builder_.add(Scalar::i32, a, b); }
  Reg mul(Reg a, int64_t b) {
    return b == 1 ? a : builder_.mul(Scalar::i32, a, Operand::integer(b));
  }
  Reg div(Reg a, uint32_t b) {
    return b == 1 ? a : builder_.value(Opcode::divu, Scalar::i32, {a, Operand::integer(b)});
  }
  Reg rem(Reg a, uint32_t b) {
    return builder_.value(Opcode::remu, Scalar::i32, {a, Operand::integer(b)});
  }
  Reg less(Reg a, Operand b) { return builder_.compare(Comparison::lt, Scalar::i32, a, b); }
  Reg zero(Scalar type) {
    return builder_.constant(type, type == Scalar::f32 ? Operand::f32(0) : Operand::integer(0));
  }

  // ---- which part of which row ----

  void write_numbers() {
    thread_ = builder_.special(Special::thread_x);
    const Reg in_block = div(thread_, kWarp);
    lane_ = rem(thread_, kWarp);
    part_slot_ = div(lane_, stream_.lanes_per_part);
    warp_ = add(mul(in_block, schedule_.tile_count()), builder_.special(Special::block_y));
    block_column_ = mul(builder_.special(Special::block_x), stream_.columns_per_block);
    lane_column_ = stream_.lanes_per_part == 1 ? zero(Scalar::i32)
                                               : mul(rem(lane_, stream_.lanes_per_part), tile_.vec);
  }

  /// Steps of this warp, and of all before it.
  void write_steps() {
    Reg before;
    if (symbols_.steps != UINT32_MAX) {
      const Reg at = builder_.index(builder_.address(symbols_.steps), warp_, Operand::integer(8));
      const Reg both = builder_.load(at, 0, 2, Cache::readonly);
      steps_ = both[0];
      before = both[1];
    } else {
      const uint32_t most = stream_.steps.empty() ? 0 : stream_.steps.front();
      steps_ = builder_.constant(Scalar::i32, Operand::integer(most));
      before = builder_.mul(Scalar::i32, warp_, Operand::integer(most));
      for (const Drop& drop : drops_of(stream_)) {
        // Warps beyond `first`; the warp itself makes one of them more.
        const Reg beyond = builder_.value(
            Opcode::max, Scalar::i32,
            {builder_.sub(Scalar::i32, warp_, Operand::integer(drop.first)), Operand::integer(-1)});
        const Reg from = add(beyond, Operand::integer(1));
        const Reg is_there = builder_.value(Opcode::min, Scalar::i32, {from, Operand::integer(1)});
        steps_ = builder_.sub(Scalar::i32, steps_, mul(is_there, drop.less));
        const Reg whole = builder_.value(Opcode::max, Scalar::i32, {beyond, Operand::integer(0)});
        before = builder_.sub(Scalar::i32, before, mul(whole, drop.less));
      }
    }
    const uint32_t step_bytes = stream_.step_bytes(size_);
    Reg base = builder_.index(builder_.address(symbols_.stream), warp_,
                              Operand::integer(stream_.head_bytes()));
    base = builder_.index(base, before, Operand::integer(step_bytes));
    head_ = builder_.index(base, part_slot_, Operand::integer(4));
    value_source_ = builder_.index(base, part_slot_, Operand::integer(16));
    value_source_ = builder_.offset(value_source_, Operand::integer(stream_.head_bytes()));
    delta_source_ = builder_.index(base, part_slot_, Operand::integer(stream_.delta_bytes()));
    delta_source_ =
        builder_.offset(delta_source_, Operand::integer(int64_t{stream_.head_bytes()} +
                                                        int64_t{stream_.parts_of_warp()} *
                                                            kCompressedStep * size_));
    const Reg values = builder_.address(symbols_.values);
    values_ = builder_.index(values, thread_, Operand::integer(16));
    const Reg deltas = builder_.address(symbols_.deltas);
    deltas_ = builder_.index(deltas, thread_, Operand::integer(stream_.delta_bytes()));
  }

  // ---- the stream ----

  uint32_t value_pieces() const { return kCompressedStep * size_ / 16; }
  int64_t slot_value_bytes() const {
    return int64_t{schedule_.threads_x} * kCompressedStep * size_;
  }
  int64_t slot_delta_bytes() const { return int64_t{schedule_.threads_x} * stream_.delta_bytes(); }
  int64_t piece_bytes() const { return int64_t{schedule_.threads_x} * 16; }

  /// Starts the copies of the next step into these slots, and moves on in the stream.
  void copy_step(Reg values, Reg deltas, int64_t slot) {
    for (uint32_t piece = 0; piece < value_pieces(); ++piece)
      builder_.copy_async(
          values, static_cast<int32_t>(slot * slot_value_bytes() + piece * piece_bytes()),
          value_source_, static_cast<int32_t>(piece * 16 * stream_.parts_of_warp()), 16);
    builder_.copy_async(deltas, static_cast<int32_t>(slot * slot_delta_bytes()), delta_source_, 0,
                        stream_.delta_bytes());
    const Operand step = Operand::integer(stream_.step_bytes(size_));
    builder_.offset(value_source_, step, value_source_);
    builder_.offset(delta_source_, step, delta_source_);
  }

  void start_stream() {
    for (uint32_t step = 0; step + 1 < tile_.prefetch; ++step) {
      const Reg is_there =
          builder_.compare(Comparison::gt, Scalar::i32, steps_, Operand::integer(step));
      builder_.if_begin(is_there);
      copy_step(values_, deltas_, step);
      builder_.end();
      builder_.copy_commit();
    }
    first_place_ = zero(Scalar::i32);
    builder_.if_begin(builder_.compare(Comparison::gt, Scalar::i32, steps_, Operand::integer(0)));
    builder_.load(head_, 0, 1, Cache::readonly, first_place_);
    builder_.end();
  }

  // ---- rows of B ----

  /// The row of B at a place, and whether there is one.
  struct Row {
    Reg number, is_real;
  };
  Row row_at(Reg place) {
    const uint32_t period = stream_.staged.spacing() + 1;
    const Reg before = div(place, period);
    Row row;
    row.number =
        builder_.sub(Scalar::i32, builder_.sub(Scalar::i32, place, before), Operand::integer(1));
    const Reg in_period = builder_.sub(Scalar::i32, place, mul(before, period));
    row.is_real =
        both(builder_.compare(Comparison::ne, Scalar::i32, in_period, Operand::integer(0)),
             less(place, Operand::integer(stream_.staged.count() - 1)));
    return row;
  }
  Reg both(Reg a, Reg b) { return builder_.value(Opcode::bit_and, Scalar::pred, {a, b}); }

  void stage_pieces() {
    const uint32_t bytes = row_staging_bytes(schedule_);
    const uint32_t pieces = row_bytes_ / bytes;
    const uint32_t total = stream_.staged.count() * pieces;
    const Reg source = builder_.index(operands_.b, block_column_, Operand::integer(size_));
    const Reg columns = builder_.sub(
        Scalar::i32, builder_.constant(Scalar::i32, Operand::integer(*problem_.columns)),
        block_column_);
    const auto copy = [&](Reg number, Reg shared, int64_t shared_offset) {
      const Reg place = div(number, pieces);
      const Row row = row_at(place);
      Reg inside = row.is_real;
      Reg from = source;
      if (pieces > 1) {
        const Reg piece = builder_.sub(Scalar::i32, number, mul(place, pieces));
        from = builder_.index(source, piece, Operand::integer(bytes));
        if (schedule_.guarded)
          inside = both(inside, less(mul(piece, bytes / size_), columns));
      }
      const Reg at = builder_.index(from, row.number, Operand::integer(b_row_bytes_));
      const Reg read = builder_.select(Scalar::i32, inside,
                                       builder_.constant(Scalar::i32, Operand::integer(bytes)),
                                       Operand::integer(0));
      const Reg address = builder_.select(builder_.function().type_of(at), inside, at, source);
      builder_.copy_async(shared, static_cast<int32_t>(shared_offset), address, 0, bytes, read);
    };
    for_each_of_block(total, 4, [&](Reg number, Reg first, uint32_t j) {
      const Reg shared = builder_.index(staged_, first, Operand::integer(bytes));
      copy(number, shared, int64_t{j} * schedule_.threads_x * bytes);
    });
  }

  /// Calls body(number, number of the round's first, j) for numbers below `total`, `unroll` of a
  /// thread in a round.
  template <class Body>
  void for_each_of_block(uint32_t total, uint32_t unroll, Body body) {
    const uint32_t threads = schedule_.threads_x;
    if (total == 0)
      return;
    unroll = std::min(unroll, ceil_div(total, threads));
    const Reg round = builder_.for_loop(Operand::integer(total), threads * unroll);
    const Reg first = add(round, thread_);
    for (uint32_t j = 0; j < unroll; ++j) {
      const Reg number = j == 0 ? first : add(first, Operand::integer(j * threads));
      builder_.if_begin(less(number, Operand::integer(total)));
      body(number, first, j);
      builder_.end();
    }
    builder_.end();
  }

  Reg to_staged(Reg value) { return staged_element_ == element_ ? value : widen(builder_, value); }

  /// Rows of zeros apart, then vectors along K, each element to its place.
  void stage_runs() {
    const uint32_t run = 16 / size_;
    const uint32_t zeros = stream_.staged.zero_rows();
    const uint32_t columns = stream_.columns_per_block;
    const Reg nothing = staged_zero();
    for_each_of_block(zeros * columns, 1, [&](Reg number, Reg, uint32_t) {
      const Reg z = div(number, columns);
      const Reg place = builder_.value(
          Opcode::min, Scalar::i32,
          {mul(z, stream_.staged.spacing() + 1), Operand::integer(stream_.staged.count() - 1)});
      builder_.store(staged_at(place, rem_or_zero(number, columns)), 0, nothing);
    });
    const uint32_t runs = schedule_.inner / run;
    const uint32_t total = runs * columns;
    if (total == 0)
      return;
    const uint32_t threads = schedule_.threads_x;
    const uint32_t unroll = std::min(kRunsInFlight, ceil_div(total, threads));
    const Reg round = builder_.for_loop(Operand::integer(total), threads * unroll);
    std::vector<Reg> loaded, first_row, column, inside;
    for (uint32_t j = 0; j < unroll; ++j) {
      const Reg number = add(add(round, thread_), Operand::integer(j * threads));
      const Reg in_total = less(number, Operand::integer(total));
      const Reg of_column = div(number, runs);
      const Reg k = mul(builder_.sub(Scalar::i32, number, mul(of_column, runs)), run);
      const Reg global_column = add(of_column, block_column_);
      const Reg has_data = both(in_total, less(global_column, Operand::integer(*problem_.columns)));
      const Reg vector = builder_.fresh_tuple(element_, run);
      for (uint32_t i = 0; i < run; ++i)
        builder_.constant(element_, element_zero(), vector[i]);
      builder_.if_begin(has_data);
      Reg at = builder_.index(operands_.b, global_column, Operand::integer(b_column_bytes_));
      at = builder_.index(at, k, Operand::integer(size_));
      builder_.load(at, 0, run, Cache::readonly, vector);
      builder_.end();
      loaded.push_back(vector);
      first_row.push_back(k);
      column.push_back(of_column);
      inside.push_back(in_total);
    }
    for (uint32_t j = 0; j < unroll; ++j) {
      builder_.if_begin(inside[j]);
      for (uint32_t i = 0; i < run; ++i) {
        const Reg k = add(first_row[j], Operand::integer(i));
        const Reg place = add(add(k, div(k, stream_.staged.spacing())), Operand::integer(1));
        builder_.store(staged_at(place, column[j]), 0, to_staged(loaded[j][i]));
      }
      builder_.end();
    }
    builder_.end();
  }

  Operand element_zero() const {
    return element_ == Scalar::f32 ? Operand::f32(0) : Operand::bits(0);
  }
  Reg staged_zero() {
    return builder_.constant(staged_element_,
                             staged_element_ == Scalar::f32 ? Operand::f32(0) : Operand::bits(0));
  }
  Reg rem_or_zero(Reg number, uint32_t columns) {
    return columns == 1 ? zero(Scalar::i32) : rem(number, columns);
  }
  Reg staged_at(Reg place, Reg column) {
    const Reg row = builder_.index(staged_, place, Operand::integer(row_bytes_));
    return stream_.columns_per_block == 1
               ? row
               : builder_.index(row, column, Operand::integer(staged_size_));
  }

  void stage_elements() {
    const uint32_t columns = stream_.columns_per_block;
    const uint32_t total = stream_.staged.count() * columns;
    const uint32_t threads = schedule_.threads_x;
    const uint32_t unroll = std::min(kElementsInFlight, ceil_div(total, threads));
    const Reg round = builder_.for_loop(Operand::integer(total), threads * unroll);
    const Reg first = add(round, thread_);
    std::vector<Reg> loaded, inside;
    for (uint32_t j = 0; j < unroll; ++j) {
      const Reg number = j == 0 ? first : add(first, Operand::integer(j * threads));
      const Reg place = div(number, columns);
      const Reg column = add(rem_or_zero(number, columns), block_column_);
      const Row row = row_at(place);
      const Reg in_total = less(number, Operand::integer(total));
      const Reg has_data =
          both(both(in_total, row.is_real), less(column, Operand::integer(*problem_.columns)));
      const Reg value = builder_.constant(element_, element_zero());
      builder_.if_begin(has_data);
      Reg at = builder_.index(operands_.b, row.number, Operand::integer(b_row_bytes_));
      at = builder_.index(at, column, Operand::integer(b_column_bytes_));
      builder_.load(at, 0, 1, Cache::readonly, value);
      builder_.end();
      loaded.push_back(value);
      inside.push_back(in_total);
    }
    const Reg shared = builder_.index(staged_, first, Operand::integer(staged_size_));
    for (uint32_t j = 0; j < unroll; ++j) {
      builder_.if_begin(inside[j]);
      builder_.store(shared, int64_t{j} * threads * staged_size_, to_staged(loaded[j]));
      builder_.end();
    }
    builder_.end();
  }

  // ---- the loop ----

  void write_loop() {
    sums_ = builder_.fresh_tuple(accumulator_, tile_.vec);
    for (uint32_t v = 0; v < tile_.vec; ++v)
      builder_.constant(accumulator_, Operand::f32(0), sums_[v]);
    place_ = builder_.index(staged_, first_place_, Operand::integer(row_bytes_));
    if (stream_.lanes_per_part > 1)
      builder_.index(place_, lane_column_, Operand::integer(staged_size_), place_);
    const Reg step = builder_.for_loop(steps_, 1);
    builder_.copy_wait(tile_.prefetch - 2);
    const Reg values = read_values(slot_of(step));
    const Reg deltas = read_deltas(slot_of(step));
    copy_ahead(step);
    for (uint32_t i = 0; i < kCompressedStep; ++i)
      multiply_add(values[i], delta(deltas, i));
    builder_.end();
  }

  Reg slot_of(Reg step) {
    return builder_.value(Opcode::bit_and, Scalar::i32,
                          {step, Operand::integer(tile_.prefetch - 1)});
  }

  Reg read_values(Reg slot) {
    const uint32_t per_piece = 16 / size_;
    const Reg at = builder_.index(values_, slot, Operand::integer(slot_value_bytes()));
    const Reg values = builder_.fresh_tuple(element_, kCompressedStep);
    for (uint32_t piece = 0; piece < value_pieces(); ++piece)
      builder_.load(at, piece * piece_bytes(), per_piece, Cache::normal, values[piece * per_piece]);
    return values;
  }
  Reg read_deltas(Reg slot) {
    const Reg at = builder_.index(deltas_, slot, Operand::integer(slot_delta_bytes()));
    return builder_.load(at, 0, stream_.delta_bytes() / 4);
  }

  /// Into the slot that the step before has read.
  void copy_ahead(Reg step) {
    const Reg ahead = add(step, Operand::integer(tile_.prefetch - 1));
    builder_.if_begin(less(ahead, steps_));
    const Reg slot = slot_of(ahead);
    const Reg values = builder_.index(values_, slot, Operand::integer(slot_value_bytes()));
    const Reg deltas = builder_.index(deltas_, slot, Operand::integer(slot_delta_bytes()));
    copy_step(values, deltas, 0);
    builder_.end();
    builder_.copy_commit();
  }

  Reg delta(Reg words, uint32_t i) {
    const uint32_t bits = stream_.staged.delta_bits;
    const uint32_t shift = i * bits % 32;
    Reg word = words[i * bits / 32];
    if (shift != 0)
      word = builder_.value(Opcode::shr, Scalar::i32, {word, Operand::integer(shift)});
    if (shift + bits < 32)
      word =
          builder_.value(Opcode::bit_and, Scalar::i32, {word, Operand::integer((1 << bits) - 1)});
    return word;
  }

  void multiply_add(Reg value, Reg distance) {
    builder_.index(place_, distance, Operand::integer(row_bytes_), place_);
    const Reg weight = widen(builder_, value);
    const uint32_t width = std::min(tile_.vec, 16 / staged_size_);
    for (uint32_t v = 0; v < tile_.vec; v += width) {
      const Reg b = builder_.load(place_, int64_t{v} * staged_size_, width);
      for (uint32_t i = 0; i < width; ++i)
        builder_.fma(accumulator_, widen(builder_, b[i]), weight, sums_[v + i], sums_[v + i]);
    }
  }

  // ---- the end ----

  void add_parts() {
    for (uint32_t distance = 1; distance < stream_.parts; distance *= 2)
      for (uint32_t v = 0; v < tile_.vec; ++v) {
        const Reg other = builder_.shuffle(Shuffle::butterfly, sums_[v],
                                           Operand::integer(distance * stream_.lanes_per_part));
        builder_.add(accumulator_, sums_[v], other, sums_[v]);
      }
  }

  void store() {
    const Reg slot = add(mul(warp_, stream_.rows_per_warp), div(part_slot_, stream_.parts));
    Reg is_mine = less(slot, Operand::integer(schedule_.rows));
    if (stream_.parts > 1)
      is_mine =
          both(is_mine, builder_.compare(Comparison::eq, Scalar::i32,
                                         rem(part_slot_, stream_.parts), Operand::integer(0)));
    builder_.if_begin(is_mine);
    const Reg row =
        builder_.load(builder_.index(builder_.address(symbols_.rows), slot, Operand::integer(4)), 0,
                      1, Cache::readonly);
    TileArguments arguments;
    arguments.bias = operands_.bias;
    const Reg column = add(block_column_, lane_column_);
    const uint32_t width = schedule_.neighbouring_columns ? tile_.vec : 1;
    const Operand step = Operand::integer(
        problem_.layout == Layout::row_major ? size_ : static_cast<int64_t>(problem_.ldc) * size_);
    for (uint32_t v = 0; v < tile_.vec; v += width) {
      Reg mine = v == 0 ? column : add(column, Operand::integer(v));
      if (schedule_.guarded) {
        arguments.inside.push_back(less(mine, Operand::integer(*problem_.columns)));
        mine = builder_.value(Opcode::min, Scalar::i32,
                              {mine, Operand::integer(*problem_.columns - width)});
      }
      arguments.c.push_back(builder_.index(operands_.c, mine, step));
      if (problem_.epilogue.residual)
        arguments.residual.push_back(builder_.index(operands_.residual, mine, step));
    }
    EpilogueWriter(builder_, schedule_, arguments).write_row(row, sums_);
    builder_.end();
  }

  Builder& builder_;
  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  const SpmmTile& tile_;
  const CompressedStream& stream_;
  const CompressedSymbols& symbols_;
  const KernelOperands& operands_;
  Scalar element_, accumulator_, staged_element_;
  uint32_t size_, staged_size_, row_bytes_;
  int64_t b_row_bytes_, b_column_bytes_;

  Reg thread_, lane_, part_slot_; ///< of this lane among the warp's parts
  Reg warp_;                      ///< in the order of lengths
  Reg block_column_, lane_column_;
  Reg steps_, head_, value_source_, delta_source_, values_, deltas_;
  Reg staged_, first_place_, place_, sums_;
};

} // namespace

void write_compressed_kernel(ir::Module& module, const SpmmSchedule& schedule,
                             const Pattern& pattern, const std::vector<double>& weights,
                             KernelManifest& manifest) {
  const CompressedStream& stream = schedule.stream;
  const Scalar element = element_scalar(schedule.problem.type);
  CompressedSymbols symbols;
  std::vector<uint8_t> bytes = stream_bytes(schedule, pattern, weights);
  symbols.stream = add_device_symbol(module, "stream", Scalar::i32, std::move(bytes), 128);
  std::vector<uint8_t> rows;
  for (const uint32_t row : stream.rows)
    put_bytes(rows, row);
  symbols.rows = add_device_symbol(module, "rows", Scalar::i32, std::move(rows));
  if (drops_of(stream).size() > kMostLengthsInCode)
    symbols.steps =
        add_device_symbol(module, "steps", Scalar::i32,
                          step_table(stream, schedule.tile_count() * schedule.tile.warps));
  const uint64_t threads = schedule.threads_x;
  symbols.staged = add_shared(
      module, "staged", stream.staged_wide ? accumulator_scalar(schedule.problem.type) : element,
      staged_bytes(schedule));
  symbols.values = add_shared(module, "values", element,
                              schedule.tile.prefetch * threads * kCompressedStep *
                                  element_bytes(schedule.problem.type));
  symbols.deltas = add_shared(module, "deltas", Scalar::i32,
                              schedule.tile.prefetch * threads * stream.delta_bytes());

  std::fill(std::begin(manifest.block), std::end(manifest.block), 1);
  manifest.block[0] = schedule.threads_x;
  ir::Function& kernel = module.functions.emplace_back();
  kernel.name = manifest.entry;
  kernel.kind = ir::FunctionKind::kernel;
  std::copy(std::begin(manifest.block), std::end(manifest.block), std::begin(kernel.block));
  Builder builder(module, kernel);
  const KernelOperands operands = KernelOperands::declare(builder, schedule, manifest);
  CompressedWriter(builder, schedule, symbols, operands).write();
  builder.return_void();
  manifest.pointer_alignment = std::max(manifest.pointer_alignment, row_staging_bytes(schedule));
}

} // namespace sparsertc
