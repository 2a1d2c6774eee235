// A dense product: a block has rows * groups rows and 32 * vec * warps columns of C, and goes
// through K in chunks.
//
//   copies of the first chunks of A and B to shared memory start
//   for each chunk:  wait for it; barrier; copies of a later chunk start
//     tensor cores:   fragments of 16 x 8 by load_matrix (tf32: by single loads) and mma
//     multiply-adds:  for each k a lane has rows / 4 elements of A and 4 * vec of B
//   epilogue and stores
//
// A lies k by k like B, so that both are copied, and read, in the same way.
#include "compiler/lower/spmm_dense.h"

#include "compiler/inspect/dense_schedule.h"
#include "compiler/lower/index_arithmetic.h"
#include "compiler/lower/spmm_kernel.h"
#include "compiler/lower/spmm_symbols.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sparsertc {
namespace {

using ir::Builder;
using ir::Cache;
using ir::Fragment;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Space;
using ir::Special;
using ir::Type;

constexpr uint32_t kWarp = 32, kPieceBytes = 16;
constexpr uint32_t kFragmentRows = 16, kFragmentColumns = 8;
constexpr uint32_t kSums = 4; ///< a lane's share of a fragment

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

struct DenseSymbols {
  uint32_t weights = 0, staged = 0;
};

class DenseWriter : IndexArithmetic {
public:
  DenseWriter(Builder& builder, const SpmmSchedule& schedule, const DenseSymbols& symbols,
              const KernelOperands& operands)
      : IndexArithmetic(builder), schedule_(schedule), problem_(schedule.problem),
        tile_(schedule.tile), symbols_(symbols), operands_(operands),
        on_tensor_cores_(is_dense_on_tensor_cores(schedule)), size_(element_bytes(problem_.type)),
        halves_(size_ == 2), sum_(accumulator_scalar(problem_.type)), array_(dense_array(schedule)),
        staging_(dense_staging(schedule)), chunks_(ceil_div(schedule.inner, tile_.chunk)) {}

  static Scalar staged_scalar(DataType type) {
    switch (type) {
    case DataType::f16:
      return Scalar::f16x2;
    case DataType::bf16:
      return Scalar::bf16x2;
    case DataType::f32:
      return Scalar::f32;
    case DataType::f64:
      break;
    }
    return Scalar::f64;
  }

  void write() {
    write_numbers();
    write_copies();
    sums_ = builder_.fresh_tuple(sum_, tile_.rows * tile_.vec);
    for (uint32_t i = 0; i < tile_.rows * tile_.vec; ++i)
      builder_.constant(sum_, float_operand(sum_, 0), sums_[i]);
    write_read_pointers();
    if (chunks_ > 0)
      write_chunks();
    store();
  }

private:
  // ---- small arithmetic ----

  Reg moved(Reg pointer, Reg count, int64_t stride) {
    return builder_.index(pointer, count, Operand::integer(stride));
  }

  uint32_t threads() const { return schedule_.threads_x * tile_.groups; }
  uint32_t block_columns() const { return schedule_.columns_per_block(); }
  uint32_t block_rows() const { return tile_.rows * tile_.groups; }

  void write_numbers() {
    const Reg thread_x = builder_.special(Special::thread_x);
    lane_ = rem(thread_x, kWarp);
    warp_column_ = mul(div(thread_x, kWarp), int64_t{kWarp} * tile_.vec);
    block_column_ = mul(builder_.special(Special::block_x), block_columns());
    block_row_ = mul(builder_.special(Special::block_y), block_rows());
    thread_ = thread_x;
    warp_row_ = integer(0);
    if (tile_.groups > 1) {
      const Reg group = builder_.special(Special::thread_y);
      thread_ = add(mul(group, schedule_.threads_x), thread_x);
      warp_row_ = mul(group, tile_.rows);
    }
    staged_ = builder_.address(symbols_.staged);
  }

  // ---- copies ----

  /// A thread's piece of a chunk: where it comes from in the first chunk, its row there, its place
  /// in the first chunk of shared memory, how many bytes lie within B.
  struct Piece {
    Reg source, row, place, bytes;
    Reg takes_part; ///< invalid where all threads do
  };

  void write_copies() {
    const Reg weights = moved(builder_.address(symbols_.weights), block_row_, size_);
    make_pieces(a_pieces_, block_rows(), staging_.a_pitch, 0);
    for (Piece& piece : a_pieces_)
      piece.source = moved(moved(weights, piece.row, int64_t{array_.leading} * size_), piece.source,
                           kPieceBytes);
    if (!dense_copies_pieces(schedule_))
      return;
    make_pieces(b_pieces_, block_columns(), staging_.b_pitch, staging_.b_offset);
    for (Piece& piece : b_pieces_) {
      constexpr uint32_t kWhole = kPieceBytes;
      Reg column = add(block_column_, mul(piece.source, kWhole / size_));
      if (schedule_.guarded) { // what is beyond N is filled with zeros
        const Reg left = builder_.sub(Scalar::i32, integer(*problem_.columns), column);
        piece.bytes = at_most(at_least(mul(left, size_), 0), kWhole);
        column = at_most(column, (*problem_.columns - 1) / (kWhole / size_) * (kWhole / size_));
      }
      piece.source = moved(operands_.b, column, size_);
    }
  }

  /// `source` of a piece becomes its number in its row.
  void make_pieces(std::vector<Piece>& pieces, uint32_t elements, uint32_t pitch, uint32_t offset) {
    const uint32_t in_row = elements * size_ / kPieceBytes;
    const uint32_t all = in_row * tile_.chunk;
    const Reg base = builder_.offset(staged_, Operand::integer(offset));
    for (uint32_t first = 0; first < all; first += threads()) {
      Piece piece;
      const Reg number = first == 0 ? thread_ : add(thread_, Operand::integer(first));
      if (first + threads() > all)
        piece.takes_part = less(number, Operand::integer(all));
      piece.row = div(number, in_row);
      piece.source = rem(number, in_row);
      piece.place = moved(moved(base, piece.row, pitch), piece.source, kPieceBytes);
      pieces.push_back(piece);
    }
  }

  /// Starts the copies of a chunk, which there is, to its place.
  void copy_chunk(Reg chunk) {
    const Reg slot = rem(chunk, tile_.prefetch);
    for (const Piece& piece : a_pieces_) {
      begin(piece);
      builder_.copy_async(moved(piece.place, slot, staging_.chunk_bytes), 0,
                          moved(piece.source, chunk, int64_t{tile_.chunk} * array_.leading * size_),
                          0, kPieceBytes);
      end(piece);
    }
    if (!dense_copies_pieces(schedule_))
      return copy_elements(chunk, slot);
    const bool whole = schedule_.inner % tile_.chunk == 0;
    const Reg first = mul(chunk, tile_.chunk);
    for (const Piece& piece : b_pieces_) {
      begin(piece);
      Reg row = add(first, piece.row), bytes = piece.bytes;
      if (!whole) { // rows beyond K are zeros, whatever A's are multiplied with
        const Reg inside = less(row, Operand::integer(schedule_.inner));
        bytes = builder_.select(Scalar::i32, inside, bytes.valid() ? bytes : integer(kPieceBytes),
                                Operand::integer(0));
        row = at_most(row, int64_t{schedule_.inner} - 1);
      }
      builder_.copy_async(moved(piece.place, slot, staging_.chunk_bytes), 0,
                          moved(piece.source, row, static_cast<int64_t>(problem_.ldb) * size_), 0,
                          kPieceBytes, bytes);
      end(piece);
    }
  }
  void begin(const Piece& piece) {
    if (piece.takes_part.valid())
      builder_.if_begin(piece.takes_part);
  }
  void end(const Piece& piece) {
    if (piece.takes_part.valid())
      builder_.end();
  }

  /// Where B is not to be had in pieces: a word a thread, of an element or a pair.
  void copy_elements(Reg chunk, Reg slot) {
    const bool row_major = problem_.layout == Layout::row_major;
    const uint32_t together = halves_ ? 2 : 1;
    const uint32_t words = block_columns() / together;
    const Reg base = moved(builder_.offset(staged_, Operand::integer(staging_.b_offset)), slot,
                           staging_.chunk_bytes);
    const Reg round = builder_.for_loop(Operand::integer(int64_t{tile_.chunk} * words), threads());
    const Reg number = add(round, thread_);
    // Neighbouring threads have neighbours in memory.
    const Reg in_chunk = row_major ? div(number, words) : rem(number, tile_.chunk);
    const Reg word = row_major ? rem(number, words) : div(number, tile_.chunk);
    const Reg row = add(mul(chunk, tile_.chunk), in_chunk);
    builder_.if_begin(less(number, Operand::integer(int64_t{tile_.chunk} * words)));
    const int64_t ldb = static_cast<int64_t>(problem_.ldb) * size_;
    const Reg source = moved(operands_.b, row, row_major ? ldb : size_);
    const Reg column = add(block_column_, mul(word, together));
    const Reg row_inside = less(row, Operand::integer(schedule_.inner));
    Reg value;
    for (uint32_t i = 0; i < together; ++i) {
      const Reg mine = i == 0 ? column : add(column, Operand::integer(i));
      const Scalar element = element_scalar(problem_.type);
      const Reg loaded =
          builder_.constant(element, halves_ ? Operand::bits(0) : float_operand(element, 0));
      builder_.if_begin(both(row_inside, less(mine, Operand::integer(*problem_.columns))));
      builder_.load(moved(source, mine, row_major ? size_ : ldb), 0, 1, Cache::readonly, loaded);
      builder_.end();
      value = i == 0 ? loaded
                     : builder_.value(Opcode::pack, staged_scalar(problem_.type), {value, loaded});
    }
    builder_.store(moved(moved(base, in_chunk, staging_.b_pitch), word, together * size_), 0,
                   value);
    builder_.end();
    builder_.end();
  }

  // ---- products ----

  /// Where this lane reads in the first chunk.
  void write_read_pointers() {
    const Reg a = moved(staged_, warp_row_, size_);
    const Reg b =
        moved(builder_.offset(staged_, Operand::integer(staging_.b_offset)), warp_column_, size_);
    if (halves_) {
      // Four matrices of 8 x 8, of which lane l names row l % 8 of number l / 8: of A the numbers
      // go down 8 rows of C first, of B 8 columns of A.
      const Reg row = rem(lane_, 8), number = div(lane_, 8);
      const Reg low = rem(number, 2), high = div(number, 2);
      a_read_ = moved(moved(a, add(row, mul(high, 8)), staging_.a_pitch), low, 16);
      b_read_ = moved(moved(b, add(row, mul(low, 8)), staging_.b_pitch), high, 16);
    } else if (on_tensor_cores_) {
      a_read_ = moved(moved(a, rem(lane_, 4), staging_.a_pitch), div(lane_, 4), size_);
      b_read_ = moved(moved(b, rem(lane_, 4), staging_.b_pitch), div(lane_, 4), size_);
    } else {
      a_read_ = moved(a, div(lane_, kLanesOfColumns), kPieceBytes);
      b_read_ = moved(b, rem(lane_, kLanesOfColumns), kPieceBytes);
    }
  }

  void write_chunks() {
    const uint32_t ahead = tile_.prefetch - 1;
    for (uint32_t chunk = 0; chunk < ahead; ++chunk) {
      if (chunk < chunks_)
        copy_chunk(integer(chunk));
      builder_.copy_commit();
    }
    const Reg chunk = builder_.for_loop(Operand::integer(chunks_), 1);
    builder_.copy_wait(ahead - 1);
    builder_.barrier();
    const Reg later = add(chunk, Operand::integer(ahead));
    builder_.if_begin(less(later, Operand::integer(chunks_)));
    copy_chunk(later);
    builder_.end();
    builder_.copy_commit();
    const Reg slot = rem(chunk, tile_.prefetch);
    const Reg a = moved(a_read_, slot, staging_.chunk_bytes);
    const Reg b = moved(b_read_, slot, staging_.chunk_bytes);
    if (halves_)
      multiply_halves(a, b);
    else if (on_tensor_cores_)
      multiply_tf32(a, b);
    else
      multiply_add(a, b);
    builder_.end();
  }

  uint32_t fragments() const { return tile_.rows / kFragmentRows; }
  uint32_t blocks() const { return 4 * tile_.vec; } ///< of 8 columns
  /// Of the fragment's 16 x 8 sums this lane's four.
  Reg sums(uint32_t fragment, uint32_t block) const {
    return sums_[(fragment * blocks() + block) * kSums];
  }

  void multiply_halves(Reg a, Reg b) {
    constexpr uint32_t kDepth = 16;
    const Fragment fragment =
        problem_.type == DataType::f16 ? Fragment::m16n8k16_f16 : Fragment::m16n8k16_bf16;
    for (uint32_t k = 0; k < tile_.chunk; k += kDepth) {
      std::vector<Reg> of_a;
      for (uint32_t m = 0; m < fragments(); ++m)
        of_a.push_back(
            builder_.load_matrix(a, int64_t{k} * staging_.a_pitch + m * kFragmentRows * size_));
      for (uint32_t block = 0; block < blocks(); block += 2) {
        const Reg of_b = builder_.load_matrix(b, int64_t{k} * staging_.b_pitch +
                                                     block * kFragmentColumns * size_);
        for (uint32_t m = 0; m < fragments(); ++m)
          for (uint32_t i = 0; i < 2; ++i)
            builder_.mma(fragment, of_a[m], of_b[2 * i], sums(m, block + i));
      }
    }
  }

  void multiply_tf32(Reg a, Reg b) {
    constexpr uint32_t kDepth = 8, kHalfDepth = 4;
    for (uint32_t k = 0; k < tile_.chunk; k += kDepth) {
      std::vector<Reg> of_a;
      for (uint32_t m = 0; m < fragments(); ++m) {
        of_a.push_back(builder_.fresh_tuple(Scalar::f32, 4));
        for (uint32_t i = 0; i < 4; ++i) // down 8 rows of C first
          builder_.load(a,
                        int64_t{k + i / 2 * kHalfDepth} * staging_.a_pitch +
                            (m * kFragmentRows + i % 2 * 8) * size_,
                        1, Cache::normal, of_a[m][i]);
      }
      for (uint32_t block = 0; block < blocks(); ++block) {
        const Reg of_b = builder_.fresh_tuple(Scalar::f32, 2);
        for (uint32_t i = 0; i < 2; ++i)
          builder_.load(
              b, int64_t{k + i * kHalfDepth} * staging_.b_pitch + block * kFragmentColumns * size_,
              1, Cache::normal, of_b[i]);
        for (uint32_t m = 0; m < fragments(); ++m)
          builder_.mma(Fragment::m16n8k8_tf32, of_a[m], of_b, sums(m, block));
      }
    }
  }

  /// Lanes are 4 along rows and 8 along columns; each has pieces of 16 bytes of both.
  static constexpr uint32_t kLanesOfRows = 4, kLanesOfColumns = 8;
  uint32_t together() const { return kPieceBytes / size_; }
  uint32_t row_pieces() const { return tile_.rows / (kLanesOfRows * together()); }
  uint32_t column_pieces() const { return kWarp * tile_.vec / (kLanesOfColumns * together()); }
  /// Of row r of row piece i, column c of column piece j.
  Reg lane_sum(uint32_t i, uint32_t r, uint32_t j, uint32_t c) const {
    return sums_[((i * together() + r) * column_pieces() + j) * together() + c];
  }

  void multiply_add(Reg a, Reg b) {
    for (uint32_t k = 0; k < tile_.chunk; ++k) {
      std::vector<Reg> of_a, of_b;
      for (uint32_t i = 0; i < row_pieces(); ++i)
        of_a.push_back(builder_.load(
            a, int64_t{k} * staging_.a_pitch + i * kLanesOfRows * kPieceBytes, together()));
      for (uint32_t j = 0; j < column_pieces(); ++j)
        of_b.push_back(builder_.load(
            b, int64_t{k} * staging_.b_pitch + j * kLanesOfColumns * kPieceBytes, together()));
      for (uint32_t i = 0; i < row_pieces(); ++i)
        for (uint32_t r = 0; r < together(); ++r)
          for (uint32_t j = 0; j < column_pieces(); ++j)
            for (uint32_t c = 0; c < together(); ++c) {
              const Reg sum = lane_sum(i, r, j, c);
              builder_.fma(sum_, of_a[i][r], of_b[j][c], sum, sum);
            }
    }
  }

  // ---- the end ----

  /// A row of the warp's and, of it, a lane's columns that are neighbours.
  struct Row {
    uint32_t row;                       ///< where the lane's number among rows is 0
    std::vector<std::vector<Reg>> sums; ///< for each run
  };
  /// What the lane's numbers count, and where its runs of columns begin where they are 0.
  struct Places {
    Reg lane_row, lane_column;
    std::vector<uint32_t> runs;
    std::vector<Row> rows;
  };

  Places places() {
    Places places;
    if (on_tensor_cores_) {
      places.lane_row = div(lane_, 4);
      places.lane_column = mul(rem(lane_, 4), 2);
      for (uint32_t block = 0; block < blocks(); ++block)
        places.runs.push_back(block * kFragmentColumns);
      for (uint32_t m = 0; m < fragments(); ++m)
        for (uint32_t half = 0; half < 2; ++half) {
          Row row{m * kFragmentRows + half * 8, {}};
          for (uint32_t block = 0; block < blocks(); ++block)
            row.sums.push_back({sums(m, block)[2 * half], sums(m, block)[2 * half + 1]});
          places.rows.push_back(row);
        }
      return places;
    }
    places.lane_row = mul(div(lane_, kLanesOfColumns), together());
    places.lane_column = mul(rem(lane_, kLanesOfColumns), together());
    for (uint32_t j = 0; j < column_pieces(); ++j)
      places.runs.push_back(j * kLanesOfColumns * together());
    for (uint32_t i = 0; i < row_pieces(); ++i)
      for (uint32_t r = 0; r < together(); ++r) {
        Row row{i * kLanesOfRows * together() + r, {}};
        for (uint32_t j = 0; j < column_pieces(); ++j) {
          row.sums.emplace_back();
          for (uint32_t c = 0; c < together(); ++c)
            row.sums.back().push_back(lane_sum(i, r, j, c));
        }
        places.rows.push_back(row);
      }
    return places;
  }

  void store() {
    const Places all = places();
    const auto width = static_cast<uint32_t>(all.rows.front().sums.front().size());
    // The epilogue writes the columns of one run.
    SpmmSchedule of_run = schedule_;
    of_run.tile.vec = width;
    const Reg column = add(add(block_column_, warp_column_), all.lane_column);
    const Reg first_row = add(add(block_row_, warp_row_), all.lane_row);
    std::vector<TileArguments> arguments;
    for (const uint32_t run : all.runs)
      arguments.push_back(arguments_of(add(column, Operand::integer(run)), width));
    const bool may_be_beyond = schedule_.rows % block_rows() != 0;
    for (const Row& one : all.rows) {
      const Reg row = add(first_row, Operand::integer(one.row));
      if (may_be_beyond)
        builder_.if_begin(less(row, Operand::integer(schedule_.rows)));
      for (size_t run = 0; run < all.runs.size(); ++run) {
        const Reg out = builder_.fresh_tuple(sum_, width);
        for (uint32_t v = 0; v < width; ++v)
          builder_.move(one.sums[run][v], out[v]);
        EpilogueWriter(builder_, of_run, arguments[run]).write_row(row, out);
      }
      if (may_be_beyond)
        builder_.end();
    }
  }

  TileArguments arguments_of(Reg first, uint32_t width) {
    TileArguments arguments;
    arguments.bias = operands_.bias;
    const int64_t step =
        problem_.layout == Layout::row_major ? size_ : static_cast<int64_t>(problem_.ldc) * size_;
    const uint32_t stored = dense_store_columns(schedule_);
    for (uint32_t v = 0; v < width; v += stored) {
      Reg column = v == 0 ? first : add(first, Operand::integer(v));
      if (schedule_.guarded) {
        arguments.inside.push_back(less(column, Operand::integer(*problem_.columns)));
        column = at_most(column, int64_t{*problem_.columns} - stored);
      }
      arguments.c.push_back(moved(operands_.c, column, step));
      if (problem_.epilogue.residual)
        arguments.residual.push_back(moved(operands_.residual, column, step));
    }
    return arguments;
  }

  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  const SpmmTile& tile_;
  const DenseSymbols& symbols_;
  const KernelOperands& operands_;
  bool on_tensor_cores_;
  uint32_t size_;
  bool halves_;
  Scalar sum_;
  DenseArray array_;
  DenseStaging staging_;
  uint32_t chunks_;

  Reg thread_, lane_, warp_row_, warp_column_, block_row_, block_column_;
  Reg staged_, a_read_, b_read_, sums_;
  std::vector<Piece> a_pieces_, b_pieces_;
};

/// A, column by column, in words: zeros are short in PTX.
std::vector<uint8_t> array_bytes(const SpmmSchedule& schedule, const Pattern& pattern,
                                 const std::vector<double>& weights) {
  const DenseArray array = dense_array(schedule);
  const uint32_t size = element_bytes(schedule.problem.type);
  std::vector<uint8_t> bytes(array.elements() * size);
  std::vector<uint8_t> value;
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint64_t entry = pattern.row_offset[row]; entry < pattern.row_offset[row + 1]; ++entry) {
      value.clear();
      put_value(value, schedule.problem.type, weights[entry]);
      const uint64_t place = uint64_t{pattern.column_index[entry]} * array.leading + row;
      std::memcpy(bytes.data() + place * size, value.data(), size);
    }
  return bytes;
}

} // namespace

void write_dense_kernel(ir::Module& module, const SpmmSchedule& schedule, const Pattern& pattern,
                        const std::vector<double>& weights, KernelManifest& manifest) {
  constexpr uint32_t kLine = 256; // what dense libraries like
  const DataType type = schedule.problem.type;
  DenseSymbols symbols;
  symbols.weights = add_device_symbol(module, std::string(kDenseSymbol),
                                      type == DataType::f64 ? Scalar::i64 : Scalar::i32,
                                      array_bytes(schedule, pattern, weights), kLine);
  ir::Symbol staged;
  staged.name = "staged";
  staged.type = Type::pointer(Space::shared, DenseWriter::staged_scalar(type));
  staged.count = dense_staging(schedule).bytes / ir::size_in_bytes(staged.type.element());
  module.symbols.push_back(std::move(staged));
  symbols.staged = static_cast<uint32_t>(module.symbols.size() - 1);
  ir::Function& kernel = module.functions.emplace_back();
  kernel.name = manifest.entry;
  kernel.kind = ir::FunctionKind::kernel;
  std::copy(std::begin(manifest.block), std::end(manifest.block), std::begin(kernel.block));
  Builder builder(module, kernel);
  const KernelOperands operands = KernelOperands::declare(builder, schedule, manifest);
  DenseWriter(builder, schedule, symbols, operands).write();
  builder.return_void();
  manifest.pointer_alignment = dense_alignment(schedule);
}

} // namespace sparsertc
