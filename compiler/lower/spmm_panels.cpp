// Panels (compiler/inspect/panel_packing.h): a warp has a panel of rows and 32 * vec columns, the
// warps of a block share the rows of B in shared memory.
//
//   copies of the rows of B of the first rounds start; the first steps of A are loaded
//   for each round:  wait for its rows of B; barrier; copies of a later round start
//     for each of its steps:  A of the third step from here is loaded
//       for each 8 columns:   the rows of B that the step's slots name -> a fragment
//         for each 16 rows:   sums += sparse fragment of A * fragment of B
//   parts of K are added up; epilogue and stores (panel_store.h)
//
// Halves: lane l names the row of slot l to load_matrix. tf32: a lane loads a column of the rows of
// its four slots. f32 in three parts of bf16: a step's six products of parts are summed from zero
// on, the least ones first, and added to the sums; behind them a share of later rows of B is split.
#include "compiler/lower/spmm_panels.h"

#include "compiler/inspect/panel_schedule.h"
#include "compiler/lower/index_arithmetic.h"
#include "compiler/lower/panel_rows.h"
#include "compiler/lower/panel_store.h"
#include "compiler/lower/panel_tables.h"
#include "compiler/lower/spmm_kernel.h"
#include "compiler/lower/spmm_symbols.h"
#include "ir/operands.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

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
constexpr uint32_t kFragmentColumns = 8, kFragmentBytes = 512;
constexpr uint32_t kSums = ir::kFragmentResults;
/// Of split f32: sums that are on their way at once, so that instructions need not wait for each
/// other.
constexpr uint32_t kSplitSums = 8;

struct PanelSymbols {
  uint32_t stream = 0, rows = 0, staged = 0, raw = 0;
};

class PanelWriter : IndexArithmetic {
public:
  PanelWriter(Builder& builder, const SpmmSchedule& schedule, const PanelSymbols& symbols,
              const KernelOperands& operands)
      : IndexArithmetic(builder), schedule_(schedule), problem_(schedule.problem),
        tile_(schedule.tile), packing_(schedule.panels), symbols_(symbols), operands_(operands),
        types_(panel_operands(problem_)), tf32_(types_.is_tf32()),
        size_(element_bytes(types_.type)), fragment_scalar_(panel_staged_scalar(problem_)),
        fragment_(tf32_                          ? Fragment::m16n8k16_tf32
                  : types_.type == DataType::f16 ? Fragment::m16n8k32_f16
                                                 : Fragment::m16n8k32_bf16),
        step_(panel_step(schedule)), steps_ahead_(panel_steps_ahead(problem_)),
        sets_(steps_ahead_ + 1), blocks_(4 * tile_.vec) {}

  void write() {
    write_numbers();
    write_pointers();
    zero_sums();
    uint32_t copied = 0;
    for (uint32_t round = 0; round + 1 < tile_.prefetch; ++round) {
      const uint32_t end = round < packing_.rounds() ? packing_.last_position(round) : copied;
      rows_->copy_first(copied, end);
      copied = end;
    }
    for (uint32_t step = 0; step < steps_ahead_; ++step)
      load_step(step);
    write_rounds();
    PanelStore(builder_, schedule_, symbols_.rows, operands_,
               {staged_, sums_, thread_, block_column_, warp_column_, panel_, has_panel_})
        .write();
  }

private:
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
    if (tile_.splitk > 1) {
      part_ = builder_.special(Special::thread_z);
      thread_ = add(mul(part_, int64_t{schedule_.threads_x} * tile_.groups), thread_);
    }
    // Warps without a panel work like the last one, and store nothing.
    has_panel_ = less(panel_, Operand::integer(schedule_.tile_count()));
    panel_ = at_most(panel_, int64_t{schedule_.tile_count()} - 1);
  }

  void write_pointers() {
    const int64_t panel_bytes = int64_t{packing_.steps} * step_.bytes;
    Reg stream =
        builder_.index(builder_.address(symbols_.stream), panel_, Operand::integer(panel_bytes));
    if (tile_.splitk > 1)
      stream = builder_.index(stream, part_, Operand::integer(panel_bytes / tile_.splitk));
    values_ = builder_.index(stream, lane_, Operand::integer(16));
    metadata_ = builder_.index(stream, lane_, Operand::integer(4 * step_.metadata_words));
    places_ = tf32_ ? builder_.index(stream, in_group_, Operand::integer(16))
                    : builder_.index(stream, lane_, Operand::integer(4));
    for (Set& set : sets_) {
      set.values = builder_.fresh_tuple(Scalar::i32, 4 * values_of_lane());
      set.metadata = builder_.fresh_tuple(Scalar::i32, step_.metadata_words);
      set.places = builder_.fresh_tuple(Scalar::i32, tf32_ ? 4 : 1);
    }
    staged_ = builder_.address(symbols_.staged);
    rows_.emplace(
        builder_, schedule_,
        PanelRows::Place{operands_.b, staged_,
                         panel_raw_bytes(schedule_) != 0 ? builder_.address(symbols_.raw) : Reg(),
                         thread_, block_column_});
    // Where this warp's, and of tf32 this lane's, columns begin in a row.
    read_ = builder_.index(staged_, warp_column_, Operand::integer(size_));
    if (tf32_)
      read_ = builder_.index(read_, lane_group_, Operand::integer(size_));
  }

  void zero_sums() {
    sums_ = builder_.fresh_tuple(Scalar::f32, step_.fragments * blocks_ * kSums);
    for (uint32_t i = 0; i < step_.fragments * blocks_ * kSums; ++i)
      builder_.constant(Scalar::f32, Operand::f32(0), sums_[i]);
  }
  Reg sums(uint32_t fragment, uint32_t block) const {
    return sums_[(fragment * blocks_ + block) * kSums];
  }

  // ---- steps ----

  struct Set {
    Reg values, metadata, places;
  };
  /// Fragments of a step's values: of each part, of each 16 rows.
  uint32_t values_of_lane() const { return types_.parts * step_.fragments; }

  /// Loads the step that the pointers are at into its set, and moves on.
  void load_step(uint32_t number) {
    const Set& set = sets_[number % sets_.size()];
    for (uint32_t m = 0; m < values_of_lane(); ++m)
      builder_.load(values_, m * kFragmentBytes, 4, Cache::readonly, set.values[4 * m]);
    builder_.load(metadata_, step_.metadata_offset, step_.metadata_words, Cache::readonly,
                  set.metadata);
    builder_.load(places_, step_.places_offset, tf32_ ? 4 : 1, Cache::readonly, set.places);
    for (const Reg pointer : {values_, metadata_, places_})
      builder_.offset(pointer, Operand::integer(step_.bytes), pointer);
  }

  /// Of a round, this warp's.
  uint32_t own_steps() const { return packing_.shape.steps_of_round / tile_.splitk; }

  void write_rounds() {
    const uint32_t whole = packing_.steps / packing_.shape.steps_of_round;
    const uint32_t rest = packing_.steps % packing_.shape.steps_of_round / tile_.splitk;
    // Round r brings what round r + prefetch - 1 sees besides the columns of the one before it.
    if (whole > 0 && moves_on())
      rows_->begin_rounds(packing_.shape.window + (tile_.prefetch - 2) * packing_.advance);
    // Sets take turns within the loop, so that it ends with the last one.
    const auto sets = static_cast<uint32_t>(sets_.size());
    const uint32_t together = std::max(1u, sets / own_steps());
    if (whole >= together) {
      builder_.for_loop(Operand::integer(whole / together), 1);
      for (uint32_t round = 0; round < together; ++round)
        write_round(round * own_steps());
      builder_.end();
    }
    for (uint32_t round = 0; round < whole % together; ++round)
      write_round(round * own_steps());
    if (rest > 0) {
      begin_round();
      for (uint32_t step = 0; step < rest; ++step)
        write_step(whole % together * own_steps() + step);
    }
  }
  bool moves_on() const { return packing_.advance != 0; }

  /// `first`: the number of its first step, as far as sets are concerned.
  void write_round(uint32_t first) {
    begin_round();
    if (moves_on())
      rows_->copy_round();
    else
      rows_->commit();
    for (uint32_t step = 0; step < own_steps(); ++step) {
      write_step(first + step);
      if (moves_on())
        rows_->split_share(step);
    }
    if (moves_on())
      rows_->end_round();
  }

  /// Its rows of B are there, and nobody needs the oldest ones any more.
  void begin_round() {
    rows_->wait(tile_.prefetch - 2);
    builder_.barrier();
  }

  void write_step(uint32_t number) {
    load_step(number + steps_ahead_);
    const Set& set = sets_[number % sets_.size()];
    std::vector<Reg> a(values_of_lane());
    for (uint32_t m = 0; m < values_of_lane(); ++m) {
      a[m] = builder_.fresh_tuple(fragment_scalar_, 4);
      for (uint32_t i = 0; i < 4; ++i)
        builder_.bitcast(fragment_scalar_, set.values[4 * m + i], a[m][i]);
    }
    if (tf32_)
      multiply_tf32(set, a);
    else if (types_.is_split())
      multiply_split(set, a);
    else
      multiply_halves(set, a);
  }

  void multiply_halves(const Set& set, const std::vector<Reg>& a) {
    const Reg row = builder_.index(read_, set.places, Operand::integer(1));
    for (uint32_t block = 0; block < blocks_; ++block)
      multiply(set, a, builder_.load_matrix(row, int64_t{block} * kFragmentColumns * size_), block);
  }

  /// `a`: the fragments of the first parts, of the second ones, of the third ones.
  void multiply_split(const Set& set, const std::vector<Reg>& a) {
    // Of parts i and j together; what is left out is below 2^-22 of the product.
    constexpr std::pair<uint32_t, uint32_t> kProducts[] = {{2, 0}, {1, 1}, {0, 2},
                                                           {1, 0}, {0, 1}, {0, 0}};
    const Reg row = builder_.index(read_, set.places, Operand::integer(1));
    const uint32_t together = std::clamp(kSplitSums / step_.fragments, 1u, blocks_);
    for (uint32_t first = 0; first < blocks_; first += together) {
      const uint32_t count = together * step_.fragments;
      std::vector<Reg> b(together * types_.parts), of_step(count);
      for (uint32_t i = 0; i < together; ++i)
        for (uint32_t part = 0; part < types_.parts; ++part)
          b[i * types_.parts + part] = builder_.load_matrix(
              row, int64_t{part * block_columns() + (first + i) * kFragmentColumns} * size_);
      for (Reg& sums : of_step) {
        sums = builder_.fresh_tuple(Scalar::f32, kSums);
        for (uint32_t i = 0; i < kSums; ++i)
          builder_.constant(Scalar::f32, Operand::f32(0), sums[i]);
      }
      for (const auto& [part_a, part_b] : kProducts)
        for (uint32_t i = 0; i < count; ++i) {
          const uint32_t m = i % step_.fragments;
          builder_.mma_sparse(fragment_, a[part_a * step_.fragments + m],
                              b[i / step_.fragments * types_.parts + part_b], of_step[i],
                              set.metadata[m / 2], m % 2);
        }
      for (uint32_t i = 0; i < count; ++i) {
        const Reg all = sums(i % step_.fragments, first + i / step_.fragments);
        for (uint32_t j = 0; j < kSums; ++j)
          builder_.add(Scalar::f32, all[j], of_step[i][j], all[j]);
      }
    }
  }

  void multiply_tf32(const Set& set, const std::vector<Reg>& a) {
    constexpr uint32_t kSlotsOfLane = 4;
    Reg rows[kSlotsOfLane];
    for (uint32_t i = 0; i < kSlotsOfLane; ++i)
      rows[i] = builder_.index(read_, set.places[i], Operand::integer(1));
    for (uint32_t block = 0; block < blocks_; ++block) {
      const Reg b = builder_.fresh_tuple(Scalar::f32, kSlotsOfLane);
      for (uint32_t i = 0; i < kSlotsOfLane; ++i)
        builder_.load(rows[i], int64_t{block} * kFragmentColumns * size_, 1, Cache::normal, b[i]);
      multiply(set, a, b, block);
    }
  }

  void multiply(const Set& set, const std::vector<Reg>& a, Reg b, uint32_t block) {
    for (uint32_t m = 0; m < step_.fragments; ++m)
      builder_.mma_sparse(fragment_, a[m], b, sums(m, block), set.metadata[m / 2], m % 2);
  }

  const SpmmSchedule& schedule_;
  const SpmmProblem& problem_;
  const SpmmTile& tile_;
  const PanelPacking& packing_;
  const PanelSymbols& symbols_;
  const KernelOperands& operands_;
  PanelOperands types_;
  bool tf32_;
  uint32_t size_; ///< of an operand of the tensor cores
  Scalar fragment_scalar_;
  Fragment fragment_;
  PanelStep step_;
  uint32_t steps_ahead_;
  /// Registers that steps of A go through in turn.
  std::vector<Set> sets_;
  uint32_t blocks_; ///< of 8 columns that a warp has

  Reg thread_, part_, lane_, lane_group_, in_group_; ///< lane = 4 * lane_group + in_group
  Reg warp_column_, block_column_, panel_, has_panel_;
  Reg values_, metadata_, places_; ///< of the next step to be loaded, this lane's
  Reg staged_, read_, sums_;
  std::optional<PanelRows> rows_;
};

uint32_t add_shared(ir::Module& module, const char* name, Scalar element, uint64_t bytes) {
  ir::Symbol symbol;
  symbol.name = name;
  symbol.type = Type::pointer(Space::shared, element);
  symbol.count = bytes / 4;
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
  // Sums of parts of K come where rows of B were.
  symbols.staged = add_shared(module, "staged", panel_staged_scalar(schedule.problem),
                              panel_shared_bytes(schedule) - panel_raw_bytes(schedule));
  if (panel_raw_bytes(schedule) != 0)
    symbols.raw = add_shared(module, "raw", Scalar::f32, panel_raw_bytes(schedule));
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
