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
// A lane copies what it reads itself, so that no step needs a barrier. Where a warp's part of the
// stream begins follows from its number, and how many steps it takes stands there; where rows
// differ much, both are in a table, which must come first.
//
// Code is fetched while it runs for the first time, at 100 to 150 clocks for 8 instructions of an
// H200: as long as all else where the stream is short. So what comes before the loop is kept short,
// and itself is made of loops.
#include "compiler/lower/spmm_compressed.h"

#include "compiler/inspect/compressed_schedule.h"
#include "compiler/lower/compressed_staging.h"
#include "compiler/lower/compressed_tables.h"
#include "compiler/lower/index_arithmetic.h"
#include "compiler/lower/spmm_kernel.h"
#include "compiler/lower/spmm_symbols.h"
#include "ir/error.h"

#include <algorithm>

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
/// Steps whose copies stand in the code one by one before the loop.
constexpr uint32_t kMostStartsInCode = 2;

uint32_t add_shared(ir::Module& module, const char* name, Scalar element, uint64_t bytes) {
  ir::Symbol symbol;
  symbol.name = name;
  symbol.type = Type::pointer(Space::shared, element);
  symbol.count = bytes / ir::size_in_bytes(element);
  module.symbols.push_back(std::move(symbol));
  return static_cast<uint32_t>(module.symbols.size() - 1);
}

struct CompressedSymbols {
  uint32_t stream = 0, rows = 0, steps = UINT32_MAX;
  uint32_t staged = 0, values = 0, deltas = 0, partial = 0;
};

class CompressedWriter : IndexArithmetic {
public:
  CompressedWriter(Builder& builder, const SpmmSchedule& schedule, const CompressedSymbols& symbols,
                   const KernelOperands& operands)
      : IndexArithmetic(builder), schedule_(schedule), problem_(schedule.problem),
        tile_(schedule.tile), stream_(schedule.stream), symbols_(symbols), operands_(operands),
        element_(element_scalar(problem_.type)), accumulator_(accumulator_scalar(problem_.type)),
        staged_element_(stream_.staged_wide ? accumulator_ : element_),
        size_(element_bytes(problem_.type)), staged_size_(ir::size_in_bytes(staged_element_)),
        row_bytes_(stream_.columns_per_block * staged_size_),
        b_row_bytes_(problem_.layout == Layout::row_major
                         ? static_cast<int64_t>(problem_.ldb) * size_
                         : size_) {}

  void write() {
    write_numbers();
    write_steps();
    staged_ = builder_.address(symbols_.staged);
    CompressedStaging staging(builder_, schedule_, {thread_, block_column_, b_, staged_});
    if (row_staging_bytes(schedule_) != 0)
      staging.copy_pieces();
    start_stream();
    load_head();
    load_row();
    staging.store_zeros();
    if (row_staging_bytes(schedule_) == 0)
      staging.copy_elements();
    // The first group holds the rows of B and the first step.
    builder_.copy_wait(tile_.prefetch - 2);
    builder_.barrier();
    read_head();
    write_loop();
    add_parts();
    if (stream_.ranks > 1)
      exchange();
    store();
    // A block may end only when nobody needs its shared memory any more.
    if (stream_.ranks > 1)
      builder_.cluster_barrier();
  }

private:
  // ---- small arithmetic ----

  Reg zero(Scalar type) {
    return builder_.constant(type, type == Scalar::f32 ? Operand::f32(0) : Operand::integer(0));
  }

  // ---- which part of which row ----

  void write_numbers() {
    thread_ = builder_.special(Special::thread_x);
    const Reg in_block = div(thread_, kWarp);
    lane_ = rem(thread_, kWarp);
    part_slot_ = div(lane_, stream_.lanes_per_part);
    const Reg block_y = builder_.special(Special::block_y);
    row_block_ = div(block_y, stream_.ranks);
    b_ = operands_.b;
    if (stream_.ranks > 1) {
      rank_ = rem(block_y, stream_.ranks);
      const Reg first_row = div(mul(rank_, schedule_.inner), stream_.ranks);
      b_ = builder_.index(b_, first_row, Operand::integer(b_row_bytes_));
    }
    in_block_ = in_block;
    warp_ = add(mul(in_block, schedule_.tile_count()), row_block_);
    block_column_ = mul(builder_.special(Special::block_x), stream_.columns_per_block);
    lane_column_ = stream_.lanes_per_part == 1 ? zero(Scalar::i32)
                                               : mul(rem(lane_, stream_.lanes_per_part), tile_.vec);
  }

  /// Where this warp's part of the stream begins.
  Reg write_begin() {
    const Reg stream = builder_.address(symbols_.stream);
    const uint32_t warps_of_rank = schedule_.tile_count() * tile_.warps;
    const Reg number = rank_.valid() ? add(mul(rank_, warps_of_rank), warp_) : warp_;
    if (stream_.has_stride)
      return builder_.index(stream, number,
                            Operand::integer(static_cast<int64_t>(stream_.stride(size_))));
    const Reg at = builder_.index(builder_.address(symbols_.steps), number, Operand::integer(16));
    const Reg words = builder_.load(at, 0, 4, Cache::readonly);
    steps_ = words[0];
    const Reg base = builder_.index(stream, words[2], Operand::integer(stream_.head_bytes()));
    return builder_.index(base, words[1], Operand::integer(stream_.step_bytes(size_)));
  }

  void write_steps() {
    const Reg base = write_begin();
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

  /// The first steps' copies. With a stride every warp has room for all of them.
  void start_stream() {
    const uint32_t starts = tile_.prefetch - 1;
    const uint32_t copies = stream_.has_stride ? std::min(starts, stream_.most_steps()) : starts;
    const auto start = [&](Reg values, Reg deltas, Reg step, uint32_t slot) {
      if (!stream_.has_stride)
        builder_.if_begin(less(step, steps_));
      copy_step(values, deltas, slot);
      if (!stream_.has_stride)
        builder_.end();
      builder_.copy_commit();
    };
    if (copies <= kMostStartsInCode) {
      for (uint32_t i = 0; i < copies; ++i)
        start(values_, deltas_,
              stream_.has_stride ? Reg{} : builder_.constant(Scalar::i32, Operand::integer(i)), i);
    } else {
      const Reg values = builder_.offset(values_, Operand::integer(0));
      const Reg deltas = builder_.offset(deltas_, Operand::integer(0));
      const Reg step = builder_.for_loop(Operand::integer(copies), 1);
      start(values, deltas, step, 0);
      builder_.offset(values, Operand::integer(slot_value_bytes()), values);
      builder_.offset(deltas, Operand::integer(slot_delta_bytes()), deltas);
      builder_.end();
    }
    for (uint32_t i = copies; i < starts; ++i)
      builder_.copy_commit();
  }

  /// The warp's head, asked for early.
  void load_head() {
    if (!stream_.has_stride) {
      head_word_ = zero(Scalar::i32);
      builder_.if_begin(builder_.compare(Comparison::gt, Scalar::i32, steps_, Operand::integer(0)));
      builder_.load(head_, 0, 1, Cache::readonly, head_word_);
      builder_.end();
      return;
    }
    head_word_ = builder_.load(head_, 0, 1, Cache::readonly);
  }

  void read_head() {
    first_place_ = head_word_;
    if (!stream_.has_stride)
      return;
    steps_ = builder_.value(Opcode::shr, Scalar::i32,
                            {head_word_, Operand::integer(CompressedStream::kPlaceBits)});
    first_place_ =
        builder_.value(Opcode::bit_and, Scalar::i32,
                       {head_word_, Operand::integer((1 << CompressedStream::kPlaceBits) - 1)});
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

  /// The row of C that this lane's part belongs to; loaded early.
  void load_row() {
    Reg slot, is_in_block;
    if (stream_.ranks == 1) {
      slot = add(mul(warp_, stream_.rows_per_warp), div(part_slot_, stream_.parts));
    } else {
      // Every rank finishes the rows that are its number modulo the ranks.
      block_row_ = add(mul(div(thread_, stream_.lanes_per_part), stream_.ranks), rank_);
      is_in_block = less(block_row_, Operand::integer(tile_.rows));
      const Reg of_block = div(block_row_, stream_.rows_per_warp);
      const Reg of_warp =
          builder_.sub(Scalar::i32, block_row_, mul(of_block, stream_.rows_per_warp));
      const Reg warp = add(mul(of_block, schedule_.tile_count()), row_block_);
      slot = add(mul(warp, stream_.rows_per_warp), of_warp);
    }
    has_row_ = less(slot, Operand::integer(schedule_.rows));
    if (is_in_block.valid())
      has_row_ = both(has_row_, is_in_block);
    row_ = zero(Scalar::i32);
    builder_.if_begin(has_row_);
    builder_.load(builder_.index(builder_.address(symbols_.rows), slot, Operand::integer(4)), 0, 1,
                  Cache::readonly, row_);
    builder_.end();
  }

  Reg partial_at(Reg row) {
    const uint32_t bytes = ir::size_in_bytes(accumulator_);
    const Reg at = builder_.index(builder_.address(symbols_.partial), row,
                                  Operand::integer(stream_.columns_per_block * bytes));
    return builder_.index(at, lane_column_, Operand::integer(bytes));
  }

  /// Each rank's sums go to its shared memory; those of a row are added in the order of the ranks.
  void exchange() {
    const uint32_t width = std::min(tile_.vec, 4u);
    const Reg row = add(mul(in_block_, stream_.rows_per_warp), div(part_slot_, stream_.parts));
    const Reg is_first =
        builder_.compare(Comparison::eq, Scalar::i32,
                         stream_.parts == 1 ? zero(Scalar::i32) : rem(part_slot_, stream_.parts),
                         Operand::integer(0));
    builder_.if_begin(is_first);
    const Reg own = partial_at(row);
    for (uint32_t v = 0; v < tile_.vec; v += width)
      builder_.store(own, 4 * int64_t{v}, sums_[v], width);
    builder_.end();
    builder_.cluster_barrier();
    builder_.if_begin(has_row_);
    const Reg mine = partial_at(block_row_);
    for (uint32_t rank = 0; rank < stream_.ranks; ++rank) {
      const Reg there = builder_.peer(mine, Operand::integer(rank));
      for (uint32_t v = 0; v < tile_.vec; v += width) {
        if (rank == 0) {
          builder_.load(there, 4 * int64_t{v}, width, Cache::normal, sums_[v]);
          continue;
        }
        const Reg sums = builder_.load(there, 4 * int64_t{v}, width);
        for (uint32_t i = 0; i < width; ++i)
          builder_.add(accumulator_, sums_[v + i], sums[i], sums_[v + i]);
      }
    }
    builder_.end();
  }

  void store() {
    Reg is_mine = has_row_;
    if (stream_.parts > 1 && stream_.ranks == 1)
      is_mine =
          both(is_mine, builder_.compare(Comparison::eq, Scalar::i32,
                                         rem(part_slot_, stream_.parts), Operand::integer(0)));
    builder_.if_begin(is_mine);
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
    EpilogueWriter(builder_, schedule_, arguments).write_row(row_, sums_);
    builder_.end();
  }

  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  const SpmmTile& tile_;
  const CompressedStream& stream_;
  const CompressedSymbols& symbols_;
  const KernelOperands& operands_;
  Scalar element_, accumulator_, staged_element_;
  uint32_t size_, staged_size_, row_bytes_;
  int64_t b_row_bytes_;

  Reg thread_, lane_, part_slot_; ///< of this lane among the warp's parts
  Reg warp_;                      ///< in the order of lengths
  Reg block_column_, lane_column_;
  Reg steps_, head_, head_word_, value_source_, delta_source_, values_, deltas_;
  Reg staged_, first_place_, place_, sums_;
  Reg row_, has_row_;
  Reg rank_, row_block_, in_block_, block_row_, b_; ///< in a cluster
};

} // namespace

void write_compressed_kernel(ir::Module& module, const SpmmSchedule& schedule,
                             const Pattern& pattern, const std::vector<double>& weights,
                             KernelManifest& manifest) {
  const CompressedStream& stream = schedule.stream;
  const Scalar element = element_scalar(schedule.problem.type);
  CompressedSymbols symbols;
  std::vector<uint8_t> bytes = compressed_stream_bytes(schedule, pattern, weights);
  symbols.stream = add_device_symbol(module, "stream", Scalar::i32, std::move(bytes), 128);
  std::vector<uint8_t> rows;
  for (const uint32_t row : stream.rows)
    put_bytes(rows, row);
  symbols.rows = add_device_symbol(module, "rows", Scalar::i32, std::move(rows));
  if (!stream.has_stride)
    symbols.steps = add_device_symbol(
        module, "steps", Scalar::i32,
        compressed_step_table(stream, schedule.tile_count() * schedule.tile.warps));
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
  if (stream.ranks > 1)
    symbols.partial = add_shared(module, "partial", accumulator_scalar(schedule.problem.type),
                                 partial_bytes(schedule));
  ir::Function& kernel = module.functions.emplace_back();
  kernel.name = manifest.entry;
  kernel.kind = ir::FunctionKind::kernel;
  std::copy(std::begin(manifest.block), std::end(manifest.block), std::begin(kernel.block));
  kernel.cluster[1] = manifest.cluster;
  Builder builder(module, kernel);
  const KernelOperands operands = KernelOperands::declare(builder, schedule, manifest);
  CompressedWriter(builder, schedule, symbols, operands).write();
  builder.return_void();
  manifest.pointer_alignment = std::max(manifest.pointer_alignment, row_staging_bytes(schedule));
}

} // namespace sparsertc
