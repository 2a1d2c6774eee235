// Streamed SpMM: a loop over the entries of each row, indices and values in memory. Which rows a
// tile has, where their entries begin and how many steps they take stands in a table made here:
//
//   for each row of the tile:  row, begin, steps, rest = row_table[...]
//     sums = 0
//     steps times:  4 (or 8) columns and values as vectors, one multiply-add an entry and column
//     rest times:   one entry
//     split K: partial sums to shared memory    else: epilogue and store
//   split K: meet, then add the parts of their rows in ascending order, epilogue, store
//
// In the border of a convolution a row of the table names segments instead, each the entries of one
// tap in a chunk of channels, with the bits that must be set for it:
//
//   for each segment of the row:  begin, steps, rest, bits = segments[...]
//     if this thread's taps have the bits:  steps and rest as above
//
// Each row's entries begin at a multiple of a step, so that vector loads are aligned; the padding
// is never read as an entry.
#include "compiler/lower/spmm_symbols.h"
#include "compiler/lower/spmm_tile.h"

#include "ir/error.h"

#include <algorithm>
#include <optional>
#include <span>

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
/// Of a segment: as in the row table, then the words of tap bits, in whole vectors of 16 bytes.
constexpr uint32_t segment_bytes(uint32_t words) {
  return kRowTableBytes + (words + 3) / 4 * 16;
}

void put(std::vector<uint8_t>& bytes, const void* data, size_t size) {
  const auto* from = static_cast<const uint8_t*>(data);
  bytes.insert(bytes.end(), from, from + size);
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
        b_(builder, arguments.b, b_rows(schedule), arguments.b_stride),
        epilogue_(builder, schedule, arguments) {
    if (schedule.asks_taps)
      segments_ = builder.address(symbols.segments);
  }

  /// `first` is the tile's first place in row order, `count` its number of rows.
  void write(Reg first, Reg count, Reg part) {
    const Reg i = builder_.for_loop(count, 1);
    const Reg place = builder_.add(Scalar::i32, first, i);
    if (parts_are_threads(schedule_)) {
      const Reg sums = write_part(segment_of(place, part));
      const Reg slot = builder_.index(own_partial(part), i, Operand::integer(row_bytes()));
      for (uint32_t v = 0; v < tile_.vec; ++v)
        builder_.store(slot, slot_bytes(v), sums[v]);
      builder_.end();
      if (tiles_meet_in_clusters(schedule_))
        builder_.cluster_barrier();
      else
        builder_.barrier(arguments_.barrier, schedule_.threads_x * tile_.splitk);
      write_exchange(first, count, part);
      // A block may end only when nobody needs its shared memory any more.
      if (tiles_meet_in_clusters(schedule_))
        builder_.cluster_barrier();
      return;
    }
    const Reg row = segment_of(place, Reg{});
    epilogue_.write_row(row[0], write_parts(row));
    builder_.end();
  }

private:
  /// row, begin, steps, rest of the row at `place` in row order (of its part `part`).
  Reg segment_of(Reg place, Reg part) {
    row_entry_ = builder_.index(table_, place, Operand::integer(kRowTableBytes * tile_.parts()));
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

  Reg start_sums() {
    const Reg sums = builder_.fresh_tuple(accumulator_, tile_.vec);
    for (uint32_t v = 0; v < tile_.vec; ++v)
      builder_.constant(accumulator_, float_operand(accumulator_, 0.0), sums[v]);
    return sums;
  }
  Walk start_walk(Reg segment) { return start_walk(segment, start_sums()); }
  Walk start_walk(Reg segment, Reg sums) {
    Walk walk;
    walk.segment = segment;
    walk.sums = sums;
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

  /// The sums of one part of a row.
  Reg write_part(Reg segment) {
    if (schedule_.asks_taps)
      return write_segments(segment);
    const Walk walk = start_walk(segment);
    finish_walk(walk, walk.steps());
    return walk.sums;
  }

  /// The same in the border: `row` is row, first segment, number of segments.
  Reg write_segments(Reg row) {
    const Reg sums = start_sums();
    const Reg i = builder_.for_loop(row[2], 1);
    const uint32_t words = static_cast<uint32_t>(arguments_.taps.size());
    const Reg at = builder_.index(segments_, builder_.add(Scalar::i32, row[1], i),
                                  Operand::integer(segment_bytes(words)));
    const Reg segment = builder_.load(at, 0, 4, Cache::readonly);
    Reg inside;
    for (uint32_t w = 0; w < words; ++w) {
      const Reg bits = builder_.load(at, kRowTableBytes + 4 * w, 1, Cache::readonly);
      const Reg found = builder_.value(Opcode::bit_and, Scalar::i32, {arguments_.taps[w], bits});
      const Reg all = builder_.compare(ir::Comparison::eq, Scalar::i32, found, bits);
      inside = inside.valid() ? builder_.value(Opcode::bit_and, Scalar::pred, {inside, all}) : all;
    }
    builder_.if_begin(inside);
    const Walk walk = start_walk(segment, sums);
    finish_walk(walk, walk.steps());
    builder_.end();
    builder_.end();
    return sums;
  }

  /// All parts of a row in one thread. They advance side by side as long as all have steps left:
  /// sums that do not wait for each other. Returns their total, added in ascending order.
  Reg write_parts(Reg first_segment) {
    if (schedule_.asks_taps || tile_.parts() == 1)
      return write_parts_in_turn(first_segment);
    std::vector<Walk> walks = {start_walk(first_segment)};
    for (uint32_t p = 1; p < tile_.parts(); ++p)
      walks.push_back(
          start_walk(builder_.load(row_entry_, int64_t{p} * kRowTableBytes, 4, Cache::readonly)));
    Reg common = walks[0].steps();
    for (uint32_t p = 1; p < tile_.parts(); ++p)
      common = builder_.value(Opcode::min, Scalar::i32, {common, walks[p].steps()});
    builder_.for_loop(common, 1);
    for (const Walk& walk : walks)
      write_step(walk, step_);
    builder_.end();
    for (const Walk& walk : walks)
      finish_walk(walk, builder_.sub(Scalar::i32, walk.steps(), common));
    const Reg total = walks[0].sums;
    for (uint32_t p = 1; p < tile_.parts(); ++p)
      for (uint32_t v = 0; v < tile_.vec; ++v)
        builder_.add(accumulator_, total[v], walks[p].sums[v], total[v]);
    return total;
  }

  Reg write_parts_in_turn(Reg first_segment) {
    const Reg total = write_part(first_segment);
    for (uint32_t p = 1; p < tile_.parts(); ++p) {
      const Reg sums =
          write_part(builder_.load(row_entry_, int64_t{p} * kRowTableBytes, 4, Cache::readonly));
      for (uint32_t v = 0; v < tile_.vec; ++v)
        builder_.add(accumulator_, total[v], sums[v], total[v]);
    }
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

  // A block's shared memory holds [its parts][row of the tile][column of the thread][thread].
  int64_t slot_bytes(uint32_t v) const {
    return int64_t{v} * schedule_.threads_x * ir::size_in_bytes(accumulator_);
  }
  int64_t row_bytes() const { return slot_bytes(tile_.vec); }
  int64_t part_bytes() const { return row_bytes() * tile_.rows; }
  Reg own_partial(Reg part) {
    if (tile_.splitk == 1)
      return arguments_.partial;
    if (tiles_meet_in_clusters(schedule_))
      part = builder_.value(Opcode::remu, Scalar::i32, {part, Operand::integer(tile_.splitk)});
    return builder_.index(arguments_.partial, part, Operand::integer(part_bytes()));
  }

  void write_exchange(Reg first, Reg count, Reg part) {
    std::vector<Reg> partial = {arguments_.partial}; // of each block
    if (tiles_meet_in_clusters(schedule_))
      for (uint32_t rank = 0; rank < tile_.cluster; ++rank) {
        partial.resize(tile_.cluster);
        partial[rank] = builder_.peer(arguments_.partial, Operand::integer(rank));
      }
    const Reg rest = builder_.sub(Scalar::i32, count, part);
    const Reg step = builder_.for_loop(rest, tile_.parts());
    const Reg row = builder_.add(Scalar::i32, step, part);
    const Reg place = builder_.add(Scalar::i32, first, row);
    const Reg segment = segment_of(place, Reg{});
    for (Reg& of_block : partial)
      of_block = builder_.index(of_block, row, Operand::integer(row_bytes()));
    const Reg total = builder_.fresh_tuple(accumulator_, tile_.vec);
    for (uint32_t v = 0; v < tile_.vec; ++v)
      for (uint32_t p = 0; p < tile_.parts(); ++p) {
        const Reg slot = partial[p / tile_.splitk];
        const int64_t at = part_bytes() * (p % tile_.splitk) + slot_bytes(v);
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
  Reg table_, columns_, values_, segments_;
  RowAddress b_;
  EpilogueWriter epilogue_;
  Reg row_entry_;
};

} // namespace

namespace {

/// Collects the arrays of the streamed strategy.
class StreamTables {
public:
  StreamTables(const SpmmSchedule& schedule, const Pattern& pattern,
               const std::vector<double>& weights)
      : schedule_(schedule), pattern_(pattern), weights_(weights), b_(b_rows(schedule)),
        step_(streamed_entries_per_step(schedule.tile)) {
    columns_.reserve(4 * (pattern.nnz() + uint64_t{pattern.rows} * step_));
    if (schedule.asks_taps)
      order_.emplace(schedule);
  }

  void add_row(uint32_t row) {
    const uint32_t parts = schedule_.tile.parts();
    const auto of_row = pattern_.row(row);
    auto from = of_row.begin();
    for (uint32_t part = 0; part < parts; ++part) {
      const auto to =
          std::lower_bound(from, of_row.end(), split_begin(schedule_.inner, parts, part + 1));
      entries_.clear();
      for (; from != to; ++from)
        entries_.emplace_back(*from, pattern_.row_offset[row] +
                                         static_cast<uint64_t>(from - of_row.begin()));
      if (order_)
        add_segments(row);
      else
        put_segment(row_table_, row, entries_);
    }
  }

  StreamSymbols finish(ir::Module& module) {
    if (count_ == 0) // an array in memory has at least one element
      put_entry(0, 0.0);
    if (segment_count_ == 0)
      segments_.resize(segment_bytes(1));
    if (count_ > INT32_MAX)
      throw UserError("the streamed strategy holds at most 2^31 - 1 entries",
                      "split the matrix along its rows");
    // Blocks may hold more groups than tiles are left: those find an empty tile.
    std::vector<uint8_t> tile_begin;
    const uint32_t slots = schedule_.row_blocks() * schedule_.tile.groups + 1;
    for (uint32_t i = 0; i < slots; ++i)
      put(tile_begin, &schedule_.tile_begin[std::min(i, schedule_.tile_count())], sizeof(uint32_t));
    const std::string prefix = schedule_.asks_taps ? "border_" : "";
    const auto add = [&](const char* name, Scalar element, std::vector<uint8_t>& bytes) {
      return add_device_symbol(module, prefix + name, element, std::move(bytes));
    };
    StreamSymbols symbols{};
    symbols.tile_begin = add("tile_begin", Scalar::i32, tile_begin);
    symbols.row_table = add("row_table", Scalar::i32, row_table_);
    symbols.columns = add("columns", Scalar::i32, columns_);
    symbols.values = add("values", element_scalar(schedule_.problem.type), values_);
    if (schedule_.asks_taps)
      symbols.segments = add("segments", Scalar::i32, segments_);
    return symbols;
  }

private:
  /// Column and place among the weights.
  using PlacedColumn = std::pair<uint32_t, uint64_t>;

  void put_entry(uint32_t table_value, double weight) {
    put(columns_, &table_value, sizeof table_value);
    put_value(values_, schedule_.problem.type, weight);
    ++count_;
  }

  /// `first`, begin, steps, rest; and the entries, padded to a whole step.
  void put_segment(std::vector<uint8_t>& table, uint32_t first,
                   std::span<const PlacedColumn> entries) {
    const auto length = static_cast<uint32_t>(entries.size());
    const uint32_t segment[4] = {first, static_cast<uint32_t>(count_), length / step_,
                                 length % step_};
    put(table, segment, sizeof segment);
    for (const auto& [column, place] : entries)
      put_entry(b_.table_value(column), weights_[place]);
    while (count_ % step_ != 0)
      put_entry(0, 0.0);
  }

  void add_segments(uint32_t row) {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [&](const PlacedColumn& a, const PlacedColumn& b) {
                       return order_->question_of(a.first) < order_->question_of(b.first);
                     });
    const uint32_t first = segment_count_;
    for (size_t begin = 0; begin < entries_.size();) {
      const uint64_t question = order_->question_of(entries_[begin].first);
      size_t end = begin;
      while (end < entries_.size() && order_->question_of(entries_[end].first) == question)
        ++end;
      const std::span<const PlacedColumn> of_tap(entries_.data() + begin, end - begin);
      begin = end;
      if (!order_->is_possible(of_tap.front().first))
        continue;
      put_segment(segments_, row, of_tap);
      const std::vector<uint32_t> bits = order_->asked(of_tap.front().first);
      put(segments_, bits.data(), 4 * bits.size());
      segments_.resize((segments_.size() + 15) / 16 * 16);
      ++segment_count_;
    }
    const uint32_t entry[4] = {row, first, segment_count_ - first, 0};
    put(row_table_, entry, sizeof entry);
  }

  const SpmmSchedule& schedule_;
  const Pattern& pattern_;
  const std::vector<double>& weights_;
  RowMap b_;
  uint32_t step_;
  std::optional<BorderOrder> order_;
  uint64_t count_ = 0;
  uint32_t segment_count_ = 0;
  std::vector<PlacedColumn> entries_;
  std::vector<uint8_t> row_table_, columns_, values_, segments_;
};

} // namespace

StreamSymbols add_stream_symbols(ir::Module& module, const SpmmSchedule& schedule,
                                 const Pattern& pattern, const std::vector<double>& weights) {
  StreamTables tables(schedule, pattern, weights);
  for (uint32_t row : schedule.row_order)
    tables.add_row(row);
  return tables.finish(module);
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
