// Panels (compiler/inspect/panel_packing.h): a warp has a panel of rows and 32 * vec columns, the
// warps of a block share the rows of B in shared memory.
//
//   copies of the rows of B of the first rounds start; the first steps of A are loaded
//   for each round:  wait for its rows of B; barrier; copies of a later round start
//     for each of its steps:  A of the third step from here is loaded
//       for each 8 columns:   the rows of B that the step's slots name -> a fragment
//         for each 16 rows:   sums += sparse fragment of A * fragment of B
//   epilogue and stores
//
// Halves: lane l names the row of slot l to load_matrix. tf32: a lane loads four neighbouring
// columns of the rows of its four slots, so that fragment j of four has the columns j, j + 4, ...
// of 32, and a lane's sums are neighbours again.
#include "compiler/lower/spmm_panels.h"

#include "compiler/inspect/panel_schedule.h"
#include "compiler/lower/panel_tables.h"
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
using ir::Space;
using ir::Special;
using ir::Type;

constexpr uint32_t kWarp = 32;
constexpr uint32_t kFragmentRows = 16, kFragmentColumns = 8, kFragmentBytes = 512;
constexpr uint32_t kSums = ir::kFragmentResults;
/// Sets of registers that steps of A go through in turn.
constexpr uint32_t kSets = PanelShape::kStepsOfRound;
static_assert(kPanelStepsAhead < kSets);
/// Copies a thread that stand in the code one by one.
constexpr uint32_t kMostPasses = 16;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

struct PanelSymbols {
  uint32_t stream = 0, rows = 0, staged = 0;
};

class PanelWriter {
public:
  PanelWriter(Builder& builder, const SpmmSchedule& schedule, const PanelSymbols& symbols,
              const KernelOperands& operands)
      : builder_(builder), schedule_(schedule), problem_(schedule.problem), tile_(schedule.tile),
        packing_(schedule.panels), symbols_(symbols), operands_(operands),
        tf32_(problem_.type == DataType::f32), size_(element_bytes(problem_.type)),
        fragment_scalar_(tf32_                            ? Scalar::f32
                         : problem_.type == DataType::f16 ? Scalar::f16x2
                                                          : Scalar::bf16x2),
        fragment_(tf32_                            ? Fragment::m16n8k16_tf32
                  : problem_.type == DataType::f16 ? Fragment::m16n8k32_f16
                                                   : Fragment::m16n8k32_bf16),
        step_(panel_step(schedule)), staging_(panel_staging(schedule)), blocks_(4 * tile_.vec) {}

  static Scalar staged_scalar(DataType type) {
    return type == DataType::f32   ? Scalar::f32
           : type == DataType::f16 ? Scalar::f16x2
                                   : Scalar::bf16x2;
  }

  void write() {
    write_numbers();
    write_pointers();
    zero_sums();
    uint32_t copied = 0;
    for (uint32_t round = 0; round + 1 < tile_.prefetch; ++round) {
      const uint32_t end = round < packing_.rounds() ? packing_.last_column(round) : copied;
      copy_known(copied, end);
      copied = end;
    }
    for (uint32_t step = 0; step < kPanelStepsAhead; ++step)
      load_step(step);
    write_rounds();
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
  Reg both(Reg a, Reg b) { return builder_.value(Opcode::bit_and, Scalar::pred, {a, b}); }
  Reg at_least(Reg a, int64_t b) {
    return builder_.value(Opcode::max, Scalar::i32, {a, Operand::integer(b)});
  }
  Reg at_most(Reg a, int64_t b) {
    return builder_.value(Opcode::min, Scalar::i32, {a, Operand::integer(b)});
  }

  uint32_t threads() const { return schedule_.threads_x * tile_.groups; }
  uint32_t block_columns() const { return schedule_.columns_per_block(); }

  void write_numbers() {
    const Reg thread_x = builder_.special(Special::thread_x);
    lane_ = rem(thread_x, kWarp);
    lane_group_ = div(lane_, 4);
    in_group_ = rem(lane_, 4);
    warp_column_ = mul(div(thread_x, kWarp), int64_t{kWarp} * tile_.vec);
    block_column_ = mul(builder_.special(Special::block_x), block_columns());
    panel_ = builder_.special(Special::block_y);
    thread_ = thread_x;
    if (tile_.groups > 1) {
      const Reg group = builder_.special(Special::thread_y);
      panel_ = add(mul(panel_, tile_.groups), group);
      thread_ = add(mul(group, schedule_.threads_x), thread_x);
    }
    // Warps without a panel work like the last one, and store nothing.
    has_panel_ = less(panel_, Operand::integer(schedule_.tile_count()));
    panel_ = at_most(panel_, int64_t{schedule_.tile_count()} - 1);
  }

  void write_pointers() {
    const Reg stream = builder_.index(builder_.address(symbols_.stream), panel_,
                                      Operand::integer(int64_t{packing_.steps} * step_.bytes));
    values_ = builder_.index(stream, lane_, Operand::integer(16));
    metadata_ = builder_.index(stream, lane_, Operand::integer(4 * step_.metadata_words));
    places_ = tf32_ ? builder_.index(stream, in_group_, Operand::integer(16))
                    : builder_.index(stream, lane_, Operand::integer(4));
    for (Set& set : sets_) {
      set.values = builder_.fresh_tuple(Scalar::i32, 4 * step_.fragments);
      set.metadata = builder_.fresh_tuple(Scalar::i32, step_.metadata_words);
      set.places = builder_.fresh_tuple(Scalar::i32, tf32_ ? 4 : 1);
    }
    staged_ = builder_.address(symbols_.staged);
    // Where this warp's, and of tf32 this lane's, columns begin in a row.
    read_ = builder_.index(staged_, warp_column_, Operand::integer(size_));
    if (tf32_)
      read_ = builder_.index(read_, lane_group_, Operand::integer(16));
  }

  void zero_sums() {
    sums_ = builder_.fresh_tuple(Scalar::f32, step_.fragments * blocks_ * kSums);
    for (uint32_t i = 0; i < step_.fragments * blocks_ * kSums; ++i)
      builder_.constant(Scalar::f32, Operand::f32(0), sums_[i]);
  }
  Reg sums(uint32_t fragment, uint32_t block) const {
    return sums_[(fragment * blocks_ + block) * kSums];
  }

  // ---- rows of B ----

  /// Of rows whose numbers are known; a group of copies.
  void copy_known(uint32_t first, uint32_t end) {
    if (end > first)
      copy_rows(builder_.constant(Scalar::i32, Operand::integer(first)), end - first, end);
    builder_.copy_commit();
  }

  /// Copies rows first, first + 1, ... below `end`; at most `most` of them.
  void copy_rows(Reg first, uint32_t most, uint32_t end) {
    if (panel_copy_bytes(schedule_) != 0)
      copy_pieces(first, most, end);
    else
      copy_elements(first, most, end);
  }

  Reg staged_row(Reg row) {
    return builder_.index(staged_, rem(row, staging_.rows), Operand::integer(staging_.pitch));
  }

  /// A thread has the same piece of several rows.
  void copy_pieces(Reg first, uint32_t most, uint32_t end) {
    const uint32_t bytes = panel_copy_bytes(schedule_);
    const uint32_t elements = bytes / size_;
    const uint32_t pieces = block_columns() / elements;
    if (!piece_.valid())
      set_piece(pieces, elements, bytes);
    const uint32_t rows_at_once = threads() / pieces;
    const uint32_t passes = ceil_div(most, rows_at_once);
    const Reg mine = add(first, piece_row_);
    const auto copy = [&](Reg row, bool is_whole) {
      Reg inside = less(row, Operand::integer(end));
      if (!is_whole)
        inside = both(inside, less(row, add(first, Operand::integer(most))));
      builder_.if_begin(inside);
      const Reg from = builder_.index(piece_source_, row,
                                      Operand::integer(static_cast<int64_t>(problem_.ldb) * size_));
      const Reg to = builder_.index(staged_row(row), piece_, Operand::integer(bytes));
      builder_.copy_async(to, 0, from, 0, bytes, piece_bytes_);
      builder_.end();
    };
    if (passes > kMostPasses) {
      copy(add(mine, builder_.for_loop(Operand::integer(most), rows_at_once)), false);
      builder_.end();
      return;
    }
    for (uint32_t pass = 0; pass < passes; ++pass)
      copy(pass == 0 ? mine : add(mine, Operand::integer(pass * rows_at_once)),
           (pass + 1) * rows_at_once <= most);
  }
  void set_piece(uint32_t pieces, uint32_t elements, uint32_t bytes) {
    piece_ = rem(thread_, pieces);
    piece_row_ = div(thread_, pieces);
    Reg column = add(block_column_, mul(piece_, elements));
    if (schedule_.guarded) {
      // What is beyond N is filled with zeros.
      const Reg left = builder_.sub(
          Scalar::i32, builder_.constant(Scalar::i32, Operand::integer(*problem_.columns)), column);
      piece_bytes_ = at_most(at_least(mul(left, size_), 0), bytes);
      column = at_most(column, (*problem_.columns - 1) / elements * elements);
    }
    piece_source_ = builder_.index(operands_.b, column, Operand::integer(size_));
  }

  /// Where B is not to be had in pieces: a number of 4 bytes a thread, of one or two elements.
  void copy_elements(Reg first, uint32_t most, uint32_t end) {
    const bool row_major = problem_.layout == Layout::row_major;
    const uint32_t together = 4 / size_;
    const uint32_t words = block_columns() / together;
    const Reg round = builder_.for_loop(Operand::integer(most * words), threads());
    const Reg number = add(round, thread_);
    // Neighbouring threads have neighbours in memory.
    const Reg row = add(first, row_major ? div(number, words) : rem(number, most));
    const Reg word = row_major ? rem(number, words) : div(number, most);
    builder_.if_begin(
        both(less(number, Operand::integer(most * words)), less(row, Operand::integer(end))));
    const int64_t ldb = static_cast<int64_t>(problem_.ldb) * size_;
    const Reg source = builder_.index(operands_.b, row, Operand::integer(row_major ? ldb : size_));
    const Reg column = add(block_column_, mul(word, together));
    Reg value;
    for (uint32_t i = 0; i < together; ++i) {
      const Reg mine = i == 0 ? column : add(column, Operand::integer(i));
      const Reg loaded = builder_.constant(element_scalar(problem_.type),
                                           tf32_ ? Operand::f32(0) : Operand::bits(0));
      builder_.if_begin(less(mine, Operand::integer(*problem_.columns)));
      builder_.load(builder_.index(source, mine, Operand::integer(row_major ? size_ : ldb)), 0, 1,
                    Cache::readonly, loaded);
      builder_.end();
      value = i == 0 ? loaded : builder_.value(Opcode::pack, fragment_scalar_, {value, loaded});
    }
    builder_.store(builder_.index(staged_row(row), word, Operand::integer(4)), 0, value);
    builder_.end();
    builder_.end();
  }

  // ---- steps ----

  struct Set {
    Reg values, metadata, places;
  };

  /// Loads the step that the pointers are at into its set, and moves on.
  void load_step(uint32_t number) {
    const Set& set = sets_[number % kSets];
    for (uint32_t m = 0; m < step_.fragments; ++m)
      builder_.load(values_, m * kFragmentBytes, 4, Cache::readonly, set.values[4 * m]);
    builder_.load(metadata_, step_.metadata_offset, step_.metadata_words, Cache::readonly,
                  set.metadata);
    builder_.load(places_, step_.places_offset, tf32_ ? 4 : 1, Cache::readonly, set.places);
    for (const Reg pointer : {values_, metadata_, places_})
      builder_.offset(pointer, Operand::integer(step_.bytes), pointer);
  }

  void write_rounds() {
    const uint32_t whole = packing_.steps / PanelShape::kStepsOfRound;
    const uint32_t rest = packing_.steps % PanelShape::kStepsOfRound;
    if (whole > 0) {
      const Reg round = builder_.for_loop(Operand::integer(whole), 1);
      begin_round(round);
      for (uint32_t step = 0; step < PanelShape::kStepsOfRound; ++step)
        write_step(step);
      builder_.end();
    }
    if (rest > 0) {
      begin_round({});
      for (uint32_t step = 0; step < rest; ++step)
        write_step(step);
    }
  }

  /// Its rows of B are there, and nobody needs the oldest ones any more: others take their place.
  /// A round that is no register is the last one.
  void begin_round(Reg round) {
    builder_.copy_wait(tile_.prefetch - 2);
    builder_.barrier();
    if (round.valid() && packing_.advance != 0) {
      // Round r + prefetch - 1 sees these columns besides those of the round before it.
      const uint32_t ahead = tile_.prefetch - 2;
      const Reg first = add(mul(round, packing_.advance),
                            Operand::integer(packing_.shape.window + ahead * packing_.advance));
      copy_rows(first, packing_.advance, packing_.columns);
    }
    builder_.copy_commit();
  }

  void write_step(uint32_t number) {
    load_step(number + kPanelStepsAhead);
    const Set& set = sets_[number % kSets];
    std::vector<Reg> a(step_.fragments);
    for (uint32_t m = 0; m < step_.fragments; ++m) {
      a[m] = builder_.fresh_tuple(fragment_scalar_, 4);
      for (uint32_t i = 0; i < 4; ++i)
        builder_.bitcast(fragment_scalar_, set.values[4 * m + i], a[m][i]);
    }
    if (tf32_)
      multiply_tf32(set, a);
    else
      multiply_halves(set, a);
  }

  void multiply_halves(const Set& set, const std::vector<Reg>& a) {
    const Reg row = builder_.index(read_, set.places, Operand::integer(1));
    for (uint32_t block = 0; block < blocks_; ++block)
      multiply(set, a, builder_.load_matrix(row, int64_t{block} * kFragmentColumns * size_), block);
  }

  void multiply_tf32(const Set& set, const std::vector<Reg>& a) {
    constexpr uint32_t kSlotsOfLane = 4, kColumnsOfLane = 4;
    Reg rows[kSlotsOfLane];
    for (uint32_t i = 0; i < kSlotsOfLane; ++i)
      rows[i] = builder_.index(read_, set.places[i], Operand::integer(1));
    for (uint32_t part = 0; part < tile_.vec; ++part) {
      Reg loaded[kSlotsOfLane];
      for (uint32_t i = 0; i < kSlotsOfLane; ++i)
        loaded[i] = builder_.load(rows[i], int64_t{part} * kWarp * size_, kColumnsOfLane);
      for (uint32_t j = 0; j < kColumnsOfLane; ++j) {
        const Reg b = builder_.fresh_tuple(Scalar::f32, kSlotsOfLane);
        for (uint32_t i = 0; i < kSlotsOfLane; ++i)
          builder_.move(loaded[i][j], b[i]);
        multiply(set, a, b, part * kColumnsOfLane + j);
      }
    }
  }

  void multiply(const Set& set, const std::vector<Reg>& a, Reg b, uint32_t block) {
    for (uint32_t m = 0; m < step_.fragments; ++m)
      builder_.mma_sparse(fragment_, a[m], b, sums(m, block), set.metadata[m / 2], m % 2);
  }

  // ---- the end ----

  /// A lane's columns that are neighbours: pairs in a block of halves, of tf32 fours in 32.
  struct Run {
    uint32_t column;                                 ///< of the warp's, where in_group is 0
    uint32_t of_in_group;                            ///< columns for each in_group
    std::vector<std::pair<uint32_t, uint32_t>> sums; ///< block, element
  };
  std::vector<Run> runs() const {
    std::vector<Run> all;
    if (!tf32_) {
      for (uint32_t block = 0; block < blocks_; ++block)
        all.push_back({block * kFragmentColumns, 2, {{block, 0}, {block, 1}}});
      return all;
    }
    for (uint32_t part = 0; part < tile_.vec; ++part)
      for (uint32_t half = 0; half < 2; ++half) {
        Run run{part * kWarp + 4 * half, 8, {}};
        for (uint32_t j = 0; j < 4; ++j)
          run.sums.emplace_back(part * 4 + j, half);
        all.push_back(run);
      }
    return all;
  }

  void store() {
    const std::vector<Run> all = runs();
    const auto width = static_cast<uint32_t>(all.front().sums.size());
    // The epilogue writes the columns of one run.
    SpmmSchedule of_run = schedule_;
    of_run.tile.vec = width;
    std::vector<TileArguments> arguments;
    for (const Run& run : all)
      arguments.push_back(arguments_of(run, width));
    const Reg rows = builder_.index(builder_.address(symbols_.rows), panel_,
                                    Operand::integer(4 * int64_t{tile_.rows}));
    const Reg mine = builder_.index(rows, lane_group_, Operand::integer(4));
    for (uint32_t m = 0; m < step_.fragments; ++m)
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t offset = 4 * (m * kFragmentRows + half * kFragmentRows / 2);
        const Reg row = builder_.load(mine, offset, 1, Cache::readonly);
        builder_.if_begin(both(has_panel_, less(row, Operand::integer(schedule_.rows))));
        for (size_t i = 0; i < all.size(); ++i) {
          const Reg out = builder_.fresh_tuple(Scalar::f32, width);
          for (uint32_t v = 0; v < width; ++v) {
            const auto [block, element] = all[i].sums[v];
            builder_.move(sums(m, block)[2 * half + element], out[v]);
          }
          EpilogueWriter(builder_, of_run, arguments[i]).write_row(row, out);
        }
        builder_.end();
      }
  }

  TileArguments arguments_of(const Run& run, uint32_t width) {
    TileArguments arguments;
    arguments.bias = operands_.bias;
    const Reg first = add(add(add(block_column_, warp_column_), mul(in_group_, run.of_in_group)),
                          Operand::integer(run.column));
    const Operand step = Operand::integer(
        problem_.layout == Layout::row_major ? size_ : static_cast<int64_t>(problem_.ldc) * size_);
    const uint32_t together = panel_store_columns(schedule_);
    for (uint32_t v = 0; v < width; v += together) {
      Reg column = v == 0 ? first : add(first, Operand::integer(v));
      if (schedule_.guarded) {
        arguments.inside.push_back(less(column, Operand::integer(*problem_.columns)));
        column = at_most(column, int64_t{*problem_.columns} - together);
      }
      arguments.c.push_back(builder_.index(operands_.c, column, step));
      if (problem_.epilogue.residual)
        arguments.residual.push_back(builder_.index(operands_.residual, column, step));
    }
    return arguments;
  }

  Builder& builder_;
  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  const SpmmTile& tile_;
  const PanelPacking& packing_;
  const PanelSymbols& symbols_;
  const KernelOperands& operands_;
  bool tf32_;
  uint32_t size_;
  Scalar fragment_scalar_;
  Fragment fragment_;
  PanelStep step_;
  PanelStaging staging_;
  uint32_t blocks_; ///< of 8 columns that a warp has

  Reg thread_, lane_, lane_group_, in_group_; ///< lane = 4 * lane_group + in_group
  Reg warp_column_, block_column_, panel_, has_panel_;
  Reg values_, metadata_, places_; ///< of the next step to be loaded, this lane's
  Set sets_[kSets];
  Reg staged_, read_, sums_;
  Reg piece_, piece_row_, piece_source_, piece_bytes_;
};

uint32_t add_staged(ir::Module& module, const SpmmSchedule& schedule) {
  ir::Symbol symbol;
  symbol.name = "staged";
  symbol.type = Type::pointer(Space::shared, PanelWriter::staged_scalar(schedule.problem.type));
  symbol.count = panel_staging(schedule).bytes() / 4;
  module.symbols.push_back(std::move(symbol));
  return static_cast<uint32_t>(module.symbols.size() - 1);
}

} // namespace

void write_panels_kernel(ir::Module& module, const SpmmSchedule& schedule, const Pattern& pattern,
                         const std::vector<double>& weights, KernelManifest& manifest) {
  constexpr uint32_t kLine = 128;
  PanelSymbols symbols;
  symbols.stream = add_device_symbol(module, "panels", Scalar::i32,
                                     panel_stream_bytes(schedule, pattern, weights), kLine);
  symbols.rows = add_device_symbol(module, "rows", Scalar::i32, panel_row_bytes(schedule));
  symbols.staged = add_staged(module, schedule);
  ir::Function& kernel = module.functions.emplace_back();
  kernel.name = manifest.entry;
  kernel.kind = ir::FunctionKind::kernel;
  std::copy(std::begin(manifest.block), std::end(manifest.block), std::begin(kernel.block));
  Builder builder(module, kernel);
  const KernelOperands operands = KernelOperands::declare(builder, schedule, manifest);
  PanelWriter(builder, schedule, symbols, operands).write();
  builder.return_void();
  manifest.pointer_alignment =
      std::max(panel_store_columns(schedule) * element_bytes(schedule.problem.type),
               panel_copy_bytes(schedule));
}

} // namespace sparsertc
