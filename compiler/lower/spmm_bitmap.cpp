// Bitmap SpMM, for few columns of B on tensor cores (compiler/inspect/bitmap_stream.h has the
// format):
//
//   copies of this warp's first stages start; rows of B come into shared memory; barrier
//   for each row of tiles, for each of its stages:
//     wait for the stage; copies of a later one start
//     for each chunk:  pairs before this lane's in each tile = prefix sums over the lanes
//       for each tile: a = pairs where bits are set, else 0;  sums += a * B
//   sums of all parts of K meet in shared memory; each is added up, epilogue, store
//
// Warps have rings of stages of their own, so that only the threads of a warp wait for each other.
//
// Code that runs for the first time is fetched at 100 to 150 clocks for 8 instructions (H200), so
// copies of many pieces are loops.
#include "compiler/lower/spmm_bitmap.h"

#include "compiler/inspect/bitmap_schedule.h"
#include "compiler/lower/bitmap_tables.h"
#include "compiler/lower/index_arithmetic.h"
#include "compiler/lower/spmm_kernel.h"
#include "compiler/lower/spmm_symbols.h"
#include "ir/operands.h"

#include <algorithm>

namespace sparsertc {
namespace {

using ir::Builder;
using ir::Cache;
using ir::Comparison;
using ir::Fragment;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Shuffle;
using ir::Space;
using ir::Special;
using ir::Type;

constexpr uint32_t kWarp = 32, kPiece = 16;
constexpr uint32_t kCopyOfWarp = kWarp * kPiece;
constexpr uint32_t kColumns = 8; ///< of a fragment
constexpr uint32_t kSums = ir::kFragmentResults;
constexpr uint32_t kPairsOfLane = BitmapStream::kPairsOfLane;
/// Elements of B that a thread has in flight where it stages them one by one.
constexpr uint32_t kElementsInFlight = 8;
/// Copies of a stage that stand in the code one by one.
constexpr uint32_t kMostCopies = 2;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

struct BitmapSymbols {
  uint32_t stream = 0, staged = 0, heads = 0, pairs = 0, sums = 0;
};

class BitmapWriter : IndexArithmetic {
public:
  BitmapWriter(Builder& builder, const SpmmSchedule& schedule, const BitmapSymbols& symbols,
               const KernelOperands& operands)
      : IndexArithmetic(builder), schedule_(schedule), problem_(schedule.problem),
        tile_(schedule.tile), stream_(schedule.bitmap), symbols_(symbols), operands_(operands),
        staging_(bitmap_staging(schedule)), element_(element_scalar(problem_.type)),
        pair_(pair_scalar(problem_.type)),
        fragment_(problem_.type == DataType::f16 ? Fragment::m16n8k16_f16
                                                 : Fragment::m16n8k16_bf16) {}

  static Scalar pair_scalar(DataType type) {
    return type == DataType::f16 ? Scalar::f16x2 : Scalar::bf16x2;
  }

  void write() {
    write_numbers();
    write_pointers();
    copy_leads();
    if (!bitmap_copies_pieces(schedule_))
      stage_elements();
    builder_.copy_wait(tile_.prefetch - 2);
    builder_.barrier();
    write_rows_of_tiles();
    if (stream_.ranks > 1)
      builder_.cluster_barrier();
    else
      builder_.barrier();
    store();
    // A block may end only when nobody needs its shared memory any more.
    if (stream_.ranks > 1)
      builder_.cluster_barrier();
  }

private:
  // ---- small arithmetic ----

  Reg rem(Reg a, uint32_t b) { return b == 1 ? integer(0) : IndexArithmetic::rem(a, b); }
  Reg mask(Reg a, int64_t bits) {
    return builder_.value(Opcode::bit_and, Scalar::i32, {a, Operand::integer(bits)});
  }
  Reg shift(Reg a, uint32_t bits) {
    return bits == 0 ? a : builder_.value(Opcode::shr, Scalar::i32, {a, Operand::integer(bits)});
  }
  Reg at(Reg pointer, Reg i, int64_t bytes) {
    return builder_.index(pointer, i, Operand::integer(bytes));
  }

  uint32_t head_bytes() const { return stream_.head_bytes(); }
  /// Whether stages are fetched beyond the leading ones.
  bool has_later_stages() const { return stream_.stages_of_warp() > stream_.leads; }

  void write_numbers() {
    thread_ = builder_.special(Special::thread_x);
    warp_ = div(thread_, kWarp);
    lane_ = rem(thread_, kWarp);
    part_ = rem(warp_, stream_.parts);
    row_warp_ = div(warp_, stream_.parts);
    block_y_ = builder_.special(Special::block_y);
    row_block_ = div(block_y_, stream_.ranks);
    rank_ = rem(block_y_, stream_.ranks);
    block_column_ = mul(builder_.special(Special::block_x), staging_.columns);
  }

  void write_pointers() {
    const Reg in_grid = add(mul(block_y_, stream_.warps()), warp_);
    stream_at_ = builder_.address(symbols_.stream);
    stream_at_ = at(stream_at_, lane_, kPiece);
    leads_ = at(stream_at_, in_grid, int64_t{stream_.leads} * stream_.lead_stage_bytes());
    staged_ = builder_.address(symbols_.staged);
    heads_ = at(builder_.address(symbols_.heads), warp_, int64_t{tile_.prefetch} * head_bytes());
    pairs_ =
        at(builder_.address(symbols_.pairs), warp_, int64_t{tile_.prefetch} * stream_.pair_bytes);
    lane_bytes_ = mul(lane_, kPiece);
    for (uint32_t step = 0; step < 5; ++step)
      lanes_below_[step] = builder_.compare(Comparison::ge, Scalar::i32, lane_,
                                            Operand::integer(int64_t{1} << step));
  }

  // ---- the stream ----

  /// A warp copies `bytes`, at most `most`, 16 a lane; `to` and `from` are this lane's.
  void copy_bytes(Reg to, Reg from, uint32_t from_offset, Operand bytes, uint32_t most) {
    const bool is_whole = bytes.is_immediate() && most % kCopyOfWarp == 0;
    const auto copy = [&](Reg lane_bytes, Reg to_piece, uint32_t to_offset, Reg from_piece) {
      if (!is_whole)
        builder_.if_begin(less(lane_bytes, bytes));
      builder_.copy_async(to_piece, static_cast<int32_t>(to_offset), from_piece,
                          static_cast<int32_t>(from_offset + to_offset), kPiece);
      if (!is_whole)
        builder_.end();
    };
    if (most > kMostCopies * kCopyOfWarp) {
      const Reg done = builder_.for_loop(bytes, kCopyOfWarp);
      copy(add(lane_bytes_, done), at(to, done, 1), 0, at(from, done, 1));
      builder_.end();
      return;
    }
    for (uint32_t done = 0; done < most; done += kCopyOfWarp)
      copy(done == 0 ? lane_bytes_ : add(lane_bytes_, Operand::integer(done)), to, done, from);
  }

  void copy_lead(Reg head, Reg pairs) {
    copy_bytes(head, leads_, 0, Operand::integer(head_bytes()), head_bytes());
    copy_bytes(pairs, leads_, head_bytes(), Operand::integer(stream_.lead_bytes),
               stream_.lead_bytes);
  }

  /// The leading stages, the first of them with the rows of B.
  void copy_leads() {
    const Reg head = at(heads_, lane_, kPiece), pairs = at(pairs_, lane_, kPiece);
    copy_lead(head, pairs);
    if (bitmap_copies_pieces(schedule_))
      stage_pieces();
    builder_.copy_commit();
    if (stream_.leads > 1) {
      builder_.for_loop(Operand::integer(stream_.leads - 1), 1);
      builder_.offset(head, Operand::integer(head_bytes()), head);
      builder_.offset(pairs, Operand::integer(stream_.pair_bytes), pairs);
      builder_.offset(leads_, Operand::integer(stream_.lead_stage_bytes()), leads_);
      copy_lead(head, pairs);
      builder_.copy_commit();
      builder_.end();
    }
    for (uint32_t stage = stream_.leads; stage + 1 < tile_.prefetch; ++stage)
      builder_.copy_commit();
  }

  /// Starts the copies of the stage that the head of the one at hand names, into the place of the
  /// one before.
  void copy_later(Reg head) {
    const Reg next = builder_.load(head, stream_.next_offset(), 2);
    builder_.if_begin(builder_.compare(Comparison::ne, Scalar::i32, next[0], Operand::integer(0)));
    const Reg from = at(stream_at_, next[0], kPiece);
    copy_bytes(at(at(heads_, before_, head_bytes()), lane_, kPiece), from, 0,
               Operand::integer(head_bytes()), head_bytes());
    copy_bytes(at(at(pairs_, before_, stream_.pair_bytes), lane_, kPiece), from, head_bytes(),
               next[1], stream_.pair_bytes);
    builder_.end();
  }

  // ---- rows of B ----

  bool rows_end_inside() const { return stream_.ranks * staging_.rows != schedule_.inner; }
  bool columns_end_inside() const { return *problem_.columns % staging_.columns != 0; }
  int64_t b_row_bytes() const {
    return problem_.layout == Layout::row_major ? static_cast<int64_t>(problem_.ldb) * 2 : 2;
  }
  int64_t b_column_bytes() const {
    return problem_.layout == Layout::row_major ? 2 : static_cast<int64_t>(problem_.ldb) * 2;
  }
  Reg first_row() { return mul(rank_, staging_.rows); }

  /// Pieces of 8 columns by asynchronous copies.
  void stage_pieces() {
    const uint32_t planes = tile_.vec, items = staging_.rows * planes;
    const Reg first = first_row();
    const Reg round = builder_.for_loop(Operand::integer(items), schedule_.threads_x);
    const Reg item = add(round, thread_);
    const bool is_whole = items % schedule_.threads_x == 0;
    if (!is_whole)
      builder_.if_begin(less(item, Operand::integer(items)));
    const Reg k = div(item, planes), plane = rem(item, planes);
    Reg row = add(first, k), column = add(block_column_, mul(plane, kColumns)), bytes;
    if (rows_end_inside() || columns_end_inside()) {
      // What is outside is filled with zeros.
      const Reg inside = both(less(row, Operand::integer(schedule_.inner)),
                              less(column, Operand::integer(*problem_.columns)));
      bytes = builder_.select(Scalar::i32, inside, integer(kPiece), Operand::integer(0));
      row = builder_.select(Scalar::i32, inside, row, Operand::integer(0));
      column = builder_.select(Scalar::i32, inside, column, Operand::integer(0));
    }
    const Reg from = at(at(operands_.b, row, b_row_bytes()), column, b_column_bytes());
    builder_.copy_async(at(at(staged_, plane, staging_.plane), k, kPiece), 0, from, 0, kPiece,
                        bytes);
    if (!is_whole)
      builder_.end();
    builder_.end();
  }

  /// Elements through registers; a thread has 8 columns of a row, neighbouring threads neighbouring
  /// rows.
  void stage_elements() {
    const bool few = *problem_.columns <= kColumns;
    const uint32_t columns = few ? *problem_.columns : kColumns;
    const uint32_t at_once = std::max(1u, kElementsInFlight / columns);
    const uint32_t threads = schedule_.threads_x;
    const Reg first = first_row();
    const Reg plane =
        tile_.vec == 1 ? integer(0) : builder_.for_loop(Operand::integer(tile_.vec), 1);
    const Reg first_column = add(block_column_, mul(plane, kColumns));
    const Reg to = at(staged_, plane, staging_.plane);
    const Reg round = builder_.for_loop(Operand::integer(staging_.rows), threads * at_once);
    std::vector<Reg> loaded(size_t{at_once} * columns), rows(at_once);
    for (uint32_t i = 0; i < at_once; ++i) {
      rows[i] = add(add(round, thread_), Operand::integer(i * threads));
      const Reg row = add(first, rows[i]);
      const Reg source = at(operands_.b, row, b_row_bytes());
      const Reg inside = both(less(row, Operand::integer(schedule_.inner)),
                              less(rows[i], Operand::integer(staging_.rows)));
      for (uint32_t c = 0; c < columns; ++c) {
        Reg& element = loaded[size_t{i} * columns + c];
        element = builder_.constant(element_, Operand::bits(0));
        const Reg column = c == 0 ? first_column : add(first_column, Operand::integer(c));
        builder_.if_begin(few ? inside
                              : both(inside, less(column, Operand::integer(*problem_.columns))));
        builder_.load(at(source, column, b_column_bytes()), 0, 1, Cache::readonly, element);
        builder_.end();
      }
    }
    const Reg zero = builder_.constant(element_, Operand::bits(0));
    for (uint32_t i = 0; i < at_once; ++i) {
      const Reg pairs = builder_.fresh_tuple(pair_, kColumns / 2);
      const auto element = [&](uint32_t c) {
        return c < columns ? loaded[size_t{i} * columns + c] : zero;
      };
      for (uint32_t p = 0; p < kColumns / 2; ++p)
        builder_.value(Opcode::pack, pair_, {element(2 * p), element(2 * p + 1)}, pairs[p]);
      builder_.if_begin(less(rows[i], Operand::integer(staging_.rows)));
      builder_.store(at(to, rows[i], kPiece), 0, pairs, kColumns / 2);
      builder_.end();
    }
    builder_.end();
    if (tile_.vec > 1)
      builder_.end();
  }

  // ---- tiles ----

  void write_rows_of_tiles() {
    sums_ = builder_.fresh_tuple(Scalar::f32, tile_.vec * kSums);
    slot_ = builder_.fresh(Scalar::i32);
    before_ = builder_.fresh(Scalar::i32);
    builder_.constant(Scalar::i32, Operand::integer(0), slot_);
    builder_.constant(Scalar::i32, Operand::integer(tile_.prefetch - 1), before_);
    const Reg b_begin =
        at(at(staged_, part_, int64_t{stream_.part_columns()} * kPiece), lane_, kPiece);
    const Reg b = builder_.fresh(Type::pointer(Space::shared, pair_));
    const bool several = stream_.row_tiles > 1;
    const Reg row_tile =
        several ? builder_.for_loop(Operand::integer(stream_.row_tiles), 1) : integer(0);
    for (uint32_t i = 0; i < tile_.vec * kSums; ++i)
      builder_.constant(Scalar::f32, Operand::f32(0), sums_[i]);
    builder_.move(b_begin, b);
    if (stream_.stages > 1)
      builder_.for_loop(Operand::integer(stream_.stages), 1);
    write_stage(b);
    if (stream_.stages > 1)
      builder_.end();
    put_sums(row_tile);
    if (several)
      builder_.end();
  }

  void write_stage(Reg b) {
    builder_.copy_wait(tile_.prefetch - 2);
    // Besides that all of it is there, nobody reads the stage before any more.
    builder_.warp_barrier();
    const Reg head = at(heads_, slot_, head_bytes());
    const Reg pairs = at(pairs_, slot_, stream_.pair_bytes);
    if (has_later_stages())
      copy_later(head);
    builder_.copy_commit();
    if (stream_.stages_of_warp() > 1) {
      builder_.move(slot_, before_);
      const Reg following = add(slot_, Operand::integer(1));
      const Reg wraps = less(following, Operand::integer(tile_.prefetch));
      builder_.select(Scalar::i32, wraps, following, Operand::integer(0), slot_);
    }
    const Reg bits = builder_.fresh(Type::pointer(Space::shared, Scalar::i32));
    const Reg places = builder_.fresh(Type::pointer(Space::shared, Scalar::i32));
    builder_.index(head, lane_, Operand::integer(4), bits);
    builder_.offset(head, Operand::integer(stream_.places_offset()), places);
    if (stream_.chunks > 1)
      builder_.for_loop(Operand::integer(stream_.chunks), 1);
    write_chunk(bits, places, pairs, b);
    if (stream_.chunks > 1) {
      builder_.offset(bits, Operand::integer(4 * kWarp), bits);
      builder_.end();
    }
  }

  /// Of four bytes, each at most 4: the sums over all lanes before this one.
  Reg before_this_lane(Reg counts) {
    const Reg all = builder_.fresh(Scalar::i32);
    builder_.move(counts, all);
    for (uint32_t step = 0; step < 5; ++step) {
      const Reg other = builder_.shuffle(Shuffle::up, all, Operand::integer(int64_t{1} << step));
      builder_.if_begin(lanes_below_[step]);
      builder_.add(Scalar::i32, all, other, all);
      builder_.end();
    }
    return builder_.sub(Scalar::i32, all, counts);
  }

  /// Moves `places_at` and `b` on.
  void write_chunk(Reg bits_at, Reg places_at, Reg pairs, Reg b) {
    const Reg bits = builder_.load(bits_at, 0, 1);
    // How many bits each 4 have, then of even and odd tiles a byte each.
    Reg counts = builder_.sub(Scalar::i32, bits, mask(shift(bits, 1), 0x55555555));
    counts = add(mask(counts, 0x33333333), mask(shift(counts, 2), 0x33333333));
    const Reg before[2] = {before_this_lane(mask(counts, 0x0f0f0f0f)),
                           before_this_lane(mask(shift(counts, 4), 0x0f0f0f0f))};
    builder_.for_loop(Operand::integer(BitmapStream::kTilesOfChunk / 2), 1);
    const Reg places = builder_.load(places_at, 0, 1);
    Reg a[2];
    for (uint32_t odd = 0; odd < 2; ++odd) {
      const Reg place = odd == 0 ? mask(places, 0xffff) : shift(places, 16);
      a[odd] = expand(bits, odd,
                      at(at(pairs, place, 1), mask(before[odd], 0xff), BitmapStream::kPairBytes));
    }
    for (uint32_t plane = 0; plane < tile_.vec; ++plane) {
      const Reg fragments = builder_.load_matrix(b, int64_t{plane} * staging_.plane);
      builder_.mma(fragment_, a[0], fragments, sums_[plane * kSums]);
      builder_.mma(fragment_, a[1], fragments[2], sums_[plane * kSums]);
    }
    for (const Reg of_tiles : {bits, before[0], before[1]})
      builder_.value(Opcode::shr, Scalar::i32, {of_tiles, Operand::integer(2 * kPairsOfLane)},
                     of_tiles);
    builder_.offset(places_at, Operand::integer(4), places_at);
    builder_.offset(b, Operand::integer(2 * BitmapStream::kTile * kPiece), b);
    builder_.end();
  }

  /// A fragment of the pairs from `from` on, zeros where bits are not set.
  Reg expand(Reg bits, uint32_t tile, Reg from) {
    const Reg a = builder_.fresh_tuple(pair_, kPairsOfLane);
    for (uint32_t i = 0; i < kPairsOfLane; ++i) {
      builder_.constant(pair_, Operand::bits(0), a[i]);
      const Reg bit = mask(bits, static_cast<int32_t>(1u << (tile * kPairsOfLane + i)));
      builder_.if_begin(builder_.compare(Comparison::ne, Scalar::i32, bit, Operand::integer(0)));
      builder_.load(from, 0, 1, Cache::normal, a[i]);
      if (i + 1 < kPairsOfLane)
        builder_.offset(from, Operand::integer(BitmapStream::kPairBytes), from);
      builder_.end();
    }
    return a;
  }

  // ---- the end ----
  //
  // Sums of a block: for each part of K its rows, `sums_pitch` bytes each.

  int64_t part_bytes() const { return int64_t{stream_.block_rows()} * staging_.sums_pitch; }

  void put_sums(Reg row_tile) {
    const Reg row_of_tiles = add(mul(row_tile, stream_.row_warps), row_warp_);
    const Reg row = add(mul(row_of_tiles, BitmapStream::kTile), div(lane_, 4));
    Reg to = at(builder_.address(symbols_.sums), part_, part_bytes());
    to = at(at(to, row, staging_.sums_pitch), rem(lane_, 4), 8);
    for (uint32_t plane = 0; plane < tile_.vec; ++plane)
      for (uint32_t half = 0; half < 2; ++half)
        builder_.store(to, int64_t{plane} * kColumns * 4 + int64_t{half} * 8 * staging_.sums_pitch,
                       sums_[plane * kSums + 2 * half], 2);
  }

  /// The ranks of a cluster share a block's elements of C.
  void store() {
    const uint32_t width = bitmap_store_columns(schedule_);
    const uint32_t columns = std::min(staging_.columns, *problem_.columns);
    const uint32_t of_row = columns / width, items = stream_.block_rows() * of_row;
    const uint32_t of_rank = ceil_div(items, stream_.ranks);
    const Reg round = builder_.for_loop(Operand::integer(of_rank), schedule_.threads_x);
    const Reg mine = add(round, thread_);
    const Reg item = add(mul(rank_, of_rank), mine);
    // Neighbouring threads store neighbours.
    const bool row_major = problem_.layout == Layout::row_major;
    const Reg in_block = row_major ? div(item, of_row) : rem(item, stream_.block_rows());
    const Reg group = row_major ? rem(item, of_row) : div(item, stream_.block_rows());
    const Reg row = add(mul(row_block_, stream_.block_rows()), in_block);
    const Reg column = add(block_column_, mul(group, width));
    Reg is_there = both(less(mine, Operand::integer(of_rank)), less(item, Operand::integer(items)));
    is_there = both(is_there, less(row, Operand::integer(schedule_.rows)));
    if (columns_end_inside())
      is_there = both(is_there, less(column, Operand::integer(*problem_.columns)));
    builder_.if_begin(is_there);
    Reg from = at(builder_.address(symbols_.sums), in_block, staging_.sums_pitch);
    from = at(from, group, 4 * int64_t{width});
    const Reg sums = add_up(from, width);
    write_elements(row, column, sums, width);
    builder_.end();
    builder_.end();
  }

  /// Of all parts of K, in their order.
  Reg add_up(Reg from, uint32_t width) {
    Reg sums;
    for (uint32_t rank = 0; rank < stream_.ranks; ++rank) {
      const Reg there = stream_.ranks == 1 ? from : builder_.peer(from, Operand::integer(rank));
      for (uint32_t part = 0; part < stream_.parts; ++part) {
        const Reg more = builder_.load(there, part * part_bytes(), width);
        for (uint32_t i = 0; i < width && sums.valid(); ++i)
          builder_.add(Scalar::f32, sums[i], more[i], sums[i]);
        if (!sums.valid())
          sums = more;
      }
    }
    return sums;
  }

  void write_elements(Reg row, Reg column, Reg sums, uint32_t width) {
    SpmmSchedule of_run = schedule_;
    of_run.tile.vec = width;
    of_run.neighbouring_columns = width > 1;
    const Operand step = Operand::integer(
        problem_.layout == Layout::row_major ? 2 : static_cast<int64_t>(problem_.ldc) * 2);
    TileArguments arguments;
    arguments.bias = operands_.bias;
    arguments.c.push_back(builder_.index(operands_.c, column, step));
    if (problem_.epilogue.residual)
      arguments.residual.push_back(builder_.index(operands_.residual, column, step));
    EpilogueWriter(builder_, of_run, arguments).write_row(row, sums);
  }

  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  const SpmmTile& tile_;
  const BitmapStream& stream_;
  const BitmapSymbols& symbols_;
  const KernelOperands& operands_;
  const BitmapStaging staging_;
  Scalar element_, pair_;
  Fragment fragment_;

  Reg thread_, lane_, warp_, part_, row_warp_;
  Reg block_y_, row_block_, rank_, block_column_;
  Reg stream_at_, leads_; ///< of this lane's piece
  Reg staged_, heads_, pairs_;
  Reg lane_bytes_, lanes_below_[5]; ///< whether there is a lane 1, 2, 4, ... before this one
  Reg slot_, before_;               ///< of the stage at hand, and of the one before
  Reg sums_;
};

uint32_t add_shared(ir::Module& module, const char* name, Scalar element, uint64_t bytes) {
  ir::Symbol symbol;
  symbol.name = name;
  symbol.type = Type::pointer(Space::shared, element);
  symbol.count = bytes / ir::size_in_bytes(element);
  symbol.alignment = 128;
  module.symbols.push_back(std::move(symbol));
  return static_cast<uint32_t>(module.symbols.size() - 1);
}

} // namespace

void write_bitmap_kernel(ir::Module& module, const SpmmSchedule& schedule, const Pattern& pattern,
                         const std::vector<double>& weights, KernelManifest& manifest) {
  const BitmapStream& stream = schedule.bitmap;
  const BitmapShared shared = bitmap_shared(schedule);
  const Scalar pair = BitmapWriter::pair_scalar(schedule.problem.type);
  BitmapSymbols symbols;
  symbols.stream = add_device_symbol(module, "stream", Scalar::i32,
                                     bitmap_stream_bytes(schedule, pattern, weights), 128);
  symbols.staged = add_shared(module, "staged", pair, shared.staged);
  symbols.heads = add_shared(module, "heads", Scalar::i32, shared.heads);
  symbols.pairs = add_shared(module, "pairs", pair, shared.pairs);
  symbols.sums = add_shared(module, "sums", Scalar::f32, shared.sums);

  std::fill(std::begin(manifest.block), std::end(manifest.block), 1);
  manifest.block[0] = schedule.threads_x;
  manifest.cluster = stream.ranks;
  manifest.grid_rows = stream.row_blocks * stream.ranks;
  ir::Function& kernel = module.functions.emplace_back();
  kernel.name = manifest.entry;
  kernel.kind = ir::FunctionKind::kernel;
  std::copy(std::begin(manifest.block), std::end(manifest.block), std::begin(kernel.block));
  kernel.cluster[1] = stream.ranks;
  Builder builder(module, kernel);
  const KernelOperands operands = KernelOperands::declare(builder, schedule, manifest);
  BitmapWriter(builder, schedule, symbols, operands).write();
  builder.return_void();
  manifest.pointer_alignment = 2 * bitmap_store_columns(schedule);
  if (bitmap_copies_pieces(schedule))
    manifest.pointer_alignment = kPiece;
}

} // namespace sparsertc
