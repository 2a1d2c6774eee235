// Streamed SpMM: a loop over the entries of each row, indices and values in memory. Which rows a
// tile has, where their entries begin and how many steps they take stands in a table made here:
//
//   for each row of the tile:  row, begin, steps, rest = row_table[...]
//     sums = 0
//     steps times:  4 (or 8) columns and values as vectors, one multiply-add an entry and column
//     rest times:   one entry
//     split K: partial sums to shared memory    else: epilogue and store
//   split K: meet, then add the parts of every splitk-th row in ascending order, epilogue, store
//
// Each row's entries begin at a multiple of a step, so that vector loads are aligned; the padding
// is never read as an entry.
#include "compiler/lower/spmm_tile.h"

#include "compiler/input/convert.h"
#include "ir/error.h"

#include <algorithm>

namespace sparsertc {
namespace {

using ir::Builder;
using ir::Cache;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Space;
using ir::Type;

constexpr uint32_t kRowTableBytes = 16;

void put(std::vector<uint8_t>& bytes, const void* data, size_t size) {
  const auto* from = static_cast<const uint8_t*>(data);
  bytes.insert(bytes.end(), from, from + size);
}

void put_value(std::vector<uint8_t>& bytes, DataType type, double value) {
  switch (type) {
  case DataType::f16: {
    const uint16_t bits = to_f16(value);
    return put(bytes, &bits, sizeof bits);
  }
  case DataType::bf16: {
    const uint16_t bits = to_bf16(value);
    return put(bytes, &bits, sizeof bits);
  }
  case DataType::f32: {
    const uint32_t bits = to_f32(value);
    return put(bytes, &bits, sizeof bits);
  }
  case DataType::f64:
    return put(bytes, &value, sizeof value);
  }
}

uint32_t add_symbol(ir::Module& module, const char* name, Scalar element,
                    std::vector<uint8_t> bytes) {
  ir::Symbol symbol;
  symbol.name = name;
  symbol.type = Type::pointer(Space::device, element);
  symbol.count = bytes.size() / ir::size_in_bytes(element);
  symbol.bytes = std::move(bytes);
  module.symbols.push_back(std::move(symbol));
  return static_cast<uint32_t>(module.symbols.size() - 1);
}

/// Writes the loops of one tile.
class StreamWriter {
public:
  StreamWriter(Builder& builder, const SpmmSchedule& schedule, const StreamSymbols& symbols,
               TileArguments& arguments)
      : builder_(builder), schedule_(schedule), tile_(schedule.tile), arguments_(arguments),
        accumulator_(accumulator_scalar(schedule.problem.type)),
        value_bytes_(element_bytes(schedule.problem.type)), step_(streamed_entries_per_step(tile_)),
        table_(builder.address(symbols.row_table)), columns_(builder.address(symbols.columns)),
        values_(builder.address(symbols.values)),
        b_(builder, arguments.b, b_row_bytes(schedule), arguments.b_stride),
        epilogue_(builder, schedule, arguments) {}

  /// `first` is the tile's first place in row order, `count` its number of rows.
  void write(Reg first, Reg count, Reg part) {
    const Reg i = builder_.for_loop(count, 1);
    const Reg place = builder_.add(Scalar::i32, first, i);
    if (parts_are_threads(schedule_)) {
      const Walk walk = start_walk(segment_of(place, part));
      finish_walk(walk, walk.steps());
      const Reg slot = partial_slot(part, i);
      for (uint32_t v = 0; v < tile_.vec; ++v)
        builder_.store(slot, slot_bytes(v), walk.sums[v]);
      builder_.end();
      builder_.barrier(arguments_.barrier, schedule_.threads_x * tile_.splitk);
      write_exchange(first, count, part);
      return;
    }
    const Reg row = segment_of(place, Reg{});
    epilogue_.write_row(row[0], write_parts(row));
    builder_.end();
  }

private:
  /// row, begin, steps, rest of the row at `place` in row order (of its part `part`).
  Reg segment_of(Reg place, Reg part) {
    row_entry_ = builder_.index(table_, place, Operand::integer(kRowTableBytes * tile_.splitk));
    const Reg entry = part.valid()
                          ? builder_.index(row_entry_, part, Operand::integer(kRowTableBytes))
                          : row_entry_;
    return builder_.load(entry, 0, 4, Cache::readonly);
  }

  /// One pass over a segment of a row: its table entry, sums and moving pointers.
  struct Walk {
    Reg segment, sums, column_at, value_at;
    Reg steps() const { return segment[2]; }
    Reg rest() const { return segment[3]; }
  };

  Walk start_walk(Reg segment) {
    Walk walk;
    walk.segment = segment;
    walk.sums = builder_.fresh_tuple(accumulator_, tile_.vec);
    for (uint32_t v = 0; v < tile_.vec; ++v)
      builder_.constant(accumulator_, float_operand(accumulator_, 0.0), walk.sums[v]);
    walk.column_at = builder_.index(columns_, segment[1], Operand::integer(4));
    walk.value_at = builder_.index(values_, segment[1], Operand::integer(value_bytes_));
    return walk;
  }

  /// `steps` whole steps, then the entries that are left.
  void finish_walk(const Walk& walk, Reg steps) {
    builder_.for_loop(steps, 1);
    write_step(walk, step_);
    builder_.end();
    builder_.for_loop(walk.rest(), 1);
    write_step(walk, 1);
    builder_.end();
  }

  /// All parts of a row in one thread. They advance side by side as long as all have steps left:
  /// sums that do not wait for each other. Returns their total, added in ascending order.
  Reg write_parts(Reg first_segment) {
    std::vector<Walk> walks = {start_walk(first_segment)};
    for (uint32_t p = 1; p < tile_.splitk; ++p)
      walks.push_back(
          start_walk(builder_.load(row_entry_, int64_t{p} * kRowTableBytes, 4, Cache::readonly)));
    if (walks.size() == 1) {
      finish_walk(walks[0], walks[0].steps());
      return walks[0].sums;
    }
    Reg common = walks[0].steps();
    for (uint32_t p = 1; p < tile_.splitk; ++p)
      common = builder_.value(Opcode::min, Scalar::i32, {common, walks[p].steps()});
    builder_.for_loop(common, 1);
    for (const Walk& walk : walks)
      write_step(walk, step_);
    builder_.end();
    for (const Walk& walk : walks)
      finish_walk(walk, builder_.sub(Scalar::i32, walk.steps(), common));
    const Reg total = walks[0].sums;
    for (uint32_t p = 1; p < tile_.splitk; ++p)
      for (uint32_t v = 0; v < tile_.vec; ++v)
        builder_.add(accumulator_, total[v], walks[p].sums[v], total[v]);
    return total;
  }

  /// `entries` entries at once, then the pointers move on.
  void write_step(const Walk& walk, uint32_t entries) {
    const Reg column_at = walk.column_at, value_at = walk.value_at, sums = walk.sums;
    const Reg columns = load_vector(column_at, Scalar::i32, entries);
    const Reg values = load_vector(value_at, element_scalar(schedule_.problem.type), entries);
    const Reg b = load_b(columns, entries);
    const uint32_t terms = std::min(schedule_.problem.half_terms, entries);
    if (terms > 1)
      gather_half(values, b, entries, terms, sums);
    else
      for (uint32_t e = 0; e < entries; ++e) {
        const Reg value = widen(builder_, values[e]);
        for (uint32_t v = 0; v < tile_.vec; ++v)
          builder_.fma(accumulator_, widen(builder_, b[e * tile_.vec + v]), value, sums[v],
                       sums[v]);
      }
    builder_.offset(column_at, Operand::integer(4ll * entries), column_at);
    builder_.offset(value_at, Operand::integer(int64_t{value_bytes_} * entries), value_at);
  }

  /// Rows of B at the entries' columns: entries x vec registers.
  Reg load_b(Reg columns, uint32_t entries) {
    const uint32_t width = schedule_.neighbouring_columns ? tile_.vec : 1;
    const Reg b = builder_.fresh_tuple(element_scalar(schedule_.problem.type), entries * tile_.vec);
    for (uint32_t e = 0; e < entries; ++e)
      for (uint32_t v = 0; v < tile_.vec; v += width) {
        const auto place = b_.at(columns[e], v / width);
        builder_.load(place.pointer, place.offset, width, Cache::readonly, b[e * tile_.vec + v]);
      }
    return b;
  }

  /// Products summed in the half type over `terms` entries before they enter the f32 sums.
  void gather_half(Reg values, Reg b, uint32_t entries, uint32_t terms, Reg sums) {
    const Scalar half = element_scalar(schedule_.problem.type);
    for (uint32_t v = 0; v < tile_.vec; ++v)
      for (uint32_t begin = 0; begin < entries; begin += terms) {
        Reg part = builder_.mul(half, b[begin * tile_.vec + v], values[begin]);
        for (uint32_t e = begin + 1; e < std::min(entries, begin + terms); ++e)
          part = builder_.fma(half, b[e * tile_.vec + v], values[e], part);
        builder_.add(Scalar::f32, sums[v], widen(builder_, part), sums[v]);
      }
  }

  Reg load_vector(Reg pointer, Scalar element, uint32_t count) {
    const uint32_t width = std::min(count, 16 / ir::size_in_bytes(element));
    const Reg tuple = builder_.fresh_tuple(element, count);
    for (uint32_t i = 0; i < count; i += width)
      builder_.load(pointer, int64_t{i} * ir::size_in_bytes(element), width, Cache::readonly,
                    tuple[i]);
    return tuple;
  }

  // Shared memory holds [part][row of the tile][column of the thread][thread].
  int64_t slot_bytes(uint32_t v) const {
    return int64_t{v} * schedule_.threads_x * ir::size_in_bytes(accumulator_);
  }
  Reg partial_slot(Reg part, Reg row) {
    const Reg of_part = builder_.index(arguments_.partial, part,
                                       Operand::integer(slot_bytes(tile_.vec) * tile_.rows));
    return builder_.index(of_part, row, Operand::integer(slot_bytes(tile_.vec)));
  }

  void write_exchange(Reg first, Reg count, Reg part) {
    const Reg rest = builder_.sub(Scalar::i32, count, part);
    const Reg step = builder_.for_loop(rest, tile_.splitk);
    const Reg row = builder_.add(Scalar::i32, step, part);
    const Reg place = builder_.add(Scalar::i32, first, row);
    const Reg segment = segment_of(place, Reg{});
    const Reg slot =
        builder_.index(arguments_.partial, row, Operand::integer(slot_bytes(tile_.vec)));
    const Reg total = builder_.fresh_tuple(accumulator_, tile_.vec);
    for (uint32_t v = 0; v < tile_.vec; ++v)
      for (uint32_t p = 0; p < tile_.splitk; ++p) {
        const int64_t at = slot_bytes(tile_.vec) * tile_.rows * p + slot_bytes(v);
        if (p == 0)
          builder_.load(slot, at, 1, Cache::normal, total[v]);
        else
          builder_.add(accumulator_, total[v], builder_.load(slot, at), total[v]);
      }
    epilogue_.write_row(segment[0], total);
    builder_.end();
  }

  Builder& builder_;
  const SpmmSchedule& schedule_;
  const SpmmTile& tile_;
  TileArguments& arguments_;
  Scalar accumulator_;
  uint32_t value_bytes_;
  uint32_t step_;
  Reg table_, columns_, values_;
  RowAddress b_;
  EpilogueWriter epilogue_;
  Reg row_entry_;
};

} // namespace

StreamSymbols add_stream_symbols(ir::Module& module, const SpmmSchedule& schedule,
                                 const Pattern& pattern, const std::vector<double>& weights) {
  const SpmmTile& tile = schedule.tile;
  const uint32_t step = streamed_entries_per_step(tile);
  std::vector<uint8_t> tile_begin, row_table, columns, values;
  columns.reserve(4 * (pattern.nnz() + uint64_t{pattern.rows} * step));
  uint64_t entries = 0;
  for (uint32_t row : schedule.row_order) {
    const auto of_row = pattern.row(row);
    auto from = of_row.begin();
    for (uint32_t part = 0; part < tile.splitk; ++part) {
      const auto to =
          std::lower_bound(from, of_row.end(), split_begin(schedule.inner, tile.splitk, part + 1));
      const auto length = static_cast<uint32_t>(to - from);
      const uint32_t segment[4] = {row, static_cast<uint32_t>(entries), length / step,
                                   length % step};
      put(row_table, segment, sizeof segment);
      for (; from != to; ++from) {
        put(columns, &*from, sizeof *from);
        put_value(values, schedule.problem.type,
                  weights[pattern.row_offset[row] + static_cast<uint64_t>(from - of_row.begin())]);
        ++entries;
      }
      for (; entries % step != 0; ++entries) {
        const uint32_t none = 0;
        put(columns, &none, sizeof none);
        put_value(values, schedule.problem.type, 0.0);
      }
    }
  }
  if (entries == 0) { // an array in memory has at least one element
    columns.resize(4);
    put_value(values, schedule.problem.type, 0.0);
  }
  if (entries > INT32_MAX)
    throw UserError("the streamed strategy holds at most 2^31 - 1 entries",
                    "split the matrix along its rows");
  // Blocks may hold more groups than tiles are left: those find an empty tile.
  const uint32_t slots = schedule.grid_rows() * tile.groups + 1;
  for (uint32_t i = 0; i < slots; ++i)
    put(tile_begin, &schedule.tile_begin[std::min(i, schedule.tile_count())], sizeof(uint32_t));
  const Scalar element = element_scalar(schedule.problem.type);
  StreamSymbols symbols;
  symbols.tile_begin = add_symbol(module, "tile_begin", Scalar::i32, std::move(tile_begin));
  symbols.row_table = add_symbol(module, "row_table", Scalar::i32, std::move(row_table));
  symbols.columns = add_symbol(module, "columns", Scalar::i32, std::move(columns));
  symbols.values = add_symbol(module, "values", element, std::move(values));
  return symbols;
}

void write_streamed_tile(Builder& builder, const SpmmSchedule& schedule,
                         const StreamSymbols& symbols, TileArguments& arguments, Reg tile,
                         Reg part) {
  const Reg begin_at =
      builder.index(builder.address(symbols.tile_begin), tile, Operand::integer(4));
  const Reg first = builder.load(begin_at, 0, 1, Cache::readonly);
  const Reg last = builder.load(begin_at, 4, 1, Cache::readonly);
  const Reg count = builder.sub(Scalar::i32, last, first);
  StreamWriter(builder, schedule, symbols, arguments).write(first, count, part);
}

} // namespace sparsertc
