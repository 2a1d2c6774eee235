#include "compiler/lower/panel_store.h"

#include "compiler/lower/panel_rows.h"

namespace sparsertc {
namespace {

using ir::Cache;
using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

constexpr uint32_t kWarp = 32, kSums = 4;
constexpr uint32_t kFragmentRows = 16, kFragmentColumns = 8;
/// Of two neighbouring blocks of 8 columns a lane has two columns each, next to those of the lane
/// beside it. Even lanes give theirs of the second block for those of the first: four neighbours.
constexpr uint32_t kRun = 4;

} // namespace

PanelStore::PanelStore(ir::Builder& builder, const SpmmSchedule& schedule, uint32_t rows,
                       const KernelOperands& operands, const Place& place)
    : IndexArithmetic(builder), schedule_(schedule), problem_(schedule.problem),
      tile_(schedule.tile), operands_(operands), place_(place), rows_(rows),
      fragments_(tile_.rows / kFragmentRows), blocks_(4 * tile_.vec), of_run_(schedule),
      staged_(panel_staged_scalar(schedule.problem)) {
  of_run_.tile.vec = epilogue_columns();
}

void PanelStore::write() {
  if (tile_.splitk > 1)
    write_parts();
  else
    write_sums();
}

Reg PanelStore::sums(uint32_t fragment, uint32_t block) const {
  return place_.sums[(fragment * blocks_ + block) * kSums];
}

Reg PanelStore::rows_of_panel() {
  return builder_.index(builder_.address(rows_), place_.panel,
                        Operand::integer(4 * int64_t{tile_.rows}));
}

uint32_t PanelStore::epilogue_columns() const {
  const uint32_t together = panel_store_columns(schedule_);
  return together == 1 ? kRun : together;
}

// ---- one part: from registers ----

void PanelStore::write_sums() {
  const Reg lane = rem(place_.thread, kWarp);
  const Reg lane_group = div(lane, 4), in_group = rem(lane, 4);
  const Reg odd = builder_.value(Opcode::bit_and, Scalar::i32, {in_group, Operand::integer(1)});
  const Reg is_odd = builder_.compare(Comparison::ne, Scalar::i32, odd, Operand::integer(0));
  // The first of its four columns of the first two blocks: lanes 0, 2, 1, 3 have 0, 4, 8, 12.
  const Reg first =
      add(add(add(place_.block_column, place_.warp_column), mul(odd, kFragmentColumns)),
          mul(div(in_group, 2), kRun));
  const uint32_t runs = blocks_ / 2;
  std::vector<TileArguments> arguments = arguments_of_runs(first, runs);
  const Reg mine = builder_.index(rows_of_panel(), lane_group, Operand::integer(4));
  for (uint32_t m = 0; m < fragments_; ++m)
    for (uint32_t half = 0; half < 2; ++half) {
      std::vector<Reg> out;
      for (uint32_t run = 0; run < runs; ++run)
        out.push_back(exchanged(m, half, run, is_odd));
      const uint32_t offset = 4 * (m * kFragmentRows + half * kFragmentRows / 2);
      write_row(builder_.load(mine, offset, 1, Cache::readonly), out, arguments);
    }
}

Reg PanelStore::exchanged(uint32_t m, uint32_t half, uint32_t run, Reg is_odd) {
  const Reg first = sums(m, 2 * run), second = sums(m, 2 * run + 1);
  const Reg out = builder_.fresh_tuple(Scalar::f32, kRun);
  for (uint32_t i = 0; i < 2; ++i) {
    const Reg a = first[2 * half + i], b = second[2 * half + i];
    const Reg given = builder_.select(Scalar::f32, is_odd, a, b);
    const Reg got = builder_.shuffle(ir::Shuffle::butterfly, given, Operand::integer(1));
    builder_.select(Scalar::f32, is_odd, got, a, out[i]);
    builder_.select(Scalar::f32, is_odd, b, got, out[2 + i]);
  }
  return out;
}

// ---- parts of K: through shared memory ----

/// Each warp puts its sums there (panel_exchange). The warps that have parts of the same sums share
/// their rows; lanes beside each other take runs beside each other.
void PanelStore::write_parts() {
  const PanelExchange exchange = panel_exchange(schedule_);
  const uint32_t warps = tile_.warps * tile_.groups; // of a part
  const Reg warp = div(place_.thread, kWarp), lane = rem(place_.thread, kWarp);
  builder_.copy_wait(0);
  builder_.barrier();
  put_sums(builder_.index(place_.staged, warp, Operand::integer(exchange.warp_bytes)));
  builder_.barrier();

  const uint32_t runs_of_row = kFragmentColumns * tile_.vec, rows_at_once = kWarp / runs_of_row;
  const Reg column = mul(rem(lane, runs_of_row), kRun);
  std::vector<TileArguments> arguments =
      arguments_of_runs(add(add(place_.block_column, place_.warp_column), column), 1);
  const uint32_t rows_of_part = tile_.rows / tile_.splitk;
  const Reg row = add(mul(div(warp, warps), rows_of_part), div(lane, runs_of_row));
  Reg from = builder_.index(place_.staged, warps == 1 ? integer(0) : rem(warp, warps),
                            Operand::integer(exchange.warp_bytes));
  from = builder_.index(from, row, Operand::integer(exchange.pitch));
  from = builder_.index(from, column, Operand::integer(4));
  const Reg numbers = builder_.index(rows_of_panel(), row, Operand::integer(4));
  for (uint32_t first = 0; first < rows_of_part; first += rows_at_once)
    write_row(builder_.load(numbers, 4 * first, 1, Cache::readonly),
              {added_parts(from, first * exchange.pitch)}, arguments);
}

void PanelStore::as_bits(Scalar type, Reg value, Reg result) {
  if (staged_ == Scalar::f32)
    builder_.move(value, result);
  else
    builder_.bitcast(type, value, result);
}

/// A lane has two neighbouring columns of two rows of each fragment.
void PanelStore::put_sums(Reg to) {
  constexpr uint32_t kTogether = 2;
  const PanelExchange exchange = panel_exchange(schedule_);
  const Reg lane = rem(place_.thread, kWarp);
  to = builder_.index(to, div(lane, 4), Operand::integer(exchange.pitch));
  to = builder_.index(to, rem(lane, 4), Operand::integer(4 * kTogether));
  for (uint32_t m = 0; m < fragments_; ++m)
    for (uint32_t half = 0; half < 2; ++half)
      for (uint32_t block = 0; block < blocks_; ++block) {
        const Reg pair = builder_.fresh_tuple(staged_, kTogether);
        for (uint32_t i = 0; i < kTogether; ++i)
          as_bits(staged_, sums(m, block)[kTogether * half + i], pair[i]);
        const uint32_t row = m * kFragmentRows + half * kFragmentRows / 2;
        builder_.store(to, row * exchange.pitch + block * kFragmentColumns * 4, pair, kTogether);
      }
}

Reg PanelStore::added_parts(Reg from, uint32_t offset) {
  const PanelExchange exchange = panel_exchange(schedule_);
  const Reg out = builder_.fresh_tuple(Scalar::f32, kRun);
  for (uint32_t part = 0; part < tile_.splitk; ++part) {
    const uint64_t warps = uint64_t{part} * tile_.warps * tile_.groups;
    const Reg words = builder_.load(
        from, static_cast<int64_t>(warps * exchange.warp_bytes + offset), kRun, Cache::normal);
    const Reg sums = part == 0 ? out : builder_.fresh_tuple(Scalar::f32, kRun);
    for (uint32_t i = 0; i < kRun; ++i) {
      as_bits(Scalar::f32, words[i], sums[i]);
      if (part > 0)
        builder_.add(Scalar::f32, out[i], sums[i], out[i]);
    }
  }
  return out;
}

// ---- epilogue ----

std::vector<TileArguments> PanelStore::arguments_of_runs(Reg first, uint32_t runs) {
  const uint32_t together = panel_store_columns(schedule_);
  const uint32_t pieces = kRun / of_run_.tile.vec;
  std::vector<TileArguments> arguments;
  for (uint32_t i = 0; i < runs * pieces; ++i) {
    const uint32_t behind = i / pieces * 2 * kFragmentColumns + i % pieces * of_run_.tile.vec;
    arguments.push_back(
        arguments_of(add(first, Operand::integer(behind)), of_run_.tile.vec / together));
  }
  return arguments;
}

/// Of `count` stores from a column on.
TileArguments PanelStore::arguments_of(Reg first, uint32_t count) {
  TileArguments arguments;
  arguments.bias = operands_.bias;
  const uint32_t bytes = element_bytes(problem_.type);
  const Operand step = Operand::integer(
      problem_.layout == Layout::row_major ? bytes : static_cast<int64_t>(problem_.ldc) * bytes);
  const uint32_t together = panel_store_columns(schedule_);
  for (uint32_t v = 0; v < count; ++v) {
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

void PanelStore::write_row(Reg row, const std::vector<Reg>& out,
                           std::vector<TileArguments>& arguments) {
  const uint32_t columns = of_run_.tile.vec, pieces = kRun / columns;
  builder_.if_begin(both(place_.has_panel, less(row, Operand::integer(schedule_.rows))));
  for (uint32_t i = 0; i < arguments.size(); ++i) {
    const Reg piece = builder_.fresh_tuple(Scalar::f32, columns);
    for (uint32_t v = 0; v < columns; ++v)
      builder_.move(out[i / pieces][i % pieces * columns + v], piece[v]);
    EpilogueWriter(builder_, of_run_, arguments[i]).write_row(row, piece);
  }
  builder_.end();
}

} // namespace sparsertc
