// Unrolled SpMM: one multiply-add an entry and column, columns of A as address offsets, weights as
// immediates (Wang, SparseRT, PACT 2020). A tile's code reads
//
//   sums = 0
//   for each used k, ascending:
//     b = B[k][columns];  sums[row] += weight * b  for each entry (row, k)
//   split K: exchange partial sums, add them in ascending order of the parts
//   epilogue and stores, row by row
//
// In the border of a convolution the used k are grouped, by a chunk of channels and by their tap,
// and each group stands in an `if` that asks whether the tap is inside the image.
#include "compiler/lower/spmm_tile.h"
#include "compiler/lower/staged_images.h"

#include <algorithm>
#include <span>

namespace sparsertc {
namespace {

using ir::Builder;
using ir::Cache;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

struct Entry {
  uint32_t column;
  uint32_t row_in_tile;
  uint32_t row;
  double weight;
};

/// The tile's entries with columns in [begin, end), by column, then row.
std::vector<Entry> tile_entries(const SpmmSchedule& schedule, const Pattern& pattern,
                                const std::vector<double>& weights, uint32_t tile, uint32_t begin,
                                uint32_t end) {
  std::vector<Entry> entries;
  const uint32_t first = schedule.tile_begin[tile];
  for (uint32_t i = first; i < schedule.tile_begin[tile + 1]; ++i) {
    const uint32_t row = schedule.row_order[i];
    const auto columns = pattern.row(row);
    for (auto at = std::lower_bound(columns.begin(), columns.end(), begin);
         at != columns.end() && *at < end; ++at) {
      const uint64_t entry = pattern.row_offset[row] + static_cast<uint64_t>(at - columns.begin());
      entries.push_back({*at, i - first, row, weights[entry]});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.column != b.column ? a.column < b.column : a.row_in_tile < b.row_in_tile;
  });
  return entries;
}

/// Sums that start at 0 and take products in f32 or f64.
class ExactSums {
public:
  ExactSums(Builder& builder, const SpmmSchedule& schedule, uint32_t rows)
      : builder_(builder), vec_(schedule.tile.vec),
        type_(accumulator_scalar(schedule.problem.type)) {
    sums_ = builder.fresh_tuple(type_, std::max(1u, rows * vec_));
    for (uint32_t i = 0; i < rows * vec_; ++i)
      builder.constant(type_, float_operand(type_, 0.0), sums_[i]);
  }

  /// The operands for one k, from the loaded elements.
  void set_column(const std::vector<Reg>& loaded) {
    values_.clear();
    for (uint32_t v = 0; v < vec_; ++v)
      values_.push_back(widen(builder_, loaded[v]));
  }
  void multiply_add(const Entry& entry) {
    const Operand weight = float_operand(type_, entry.weight);
    for (uint32_t v = 0; v < vec_; ++v) {
      const Reg sum = sums_[entry.row_in_tile * vec_ + v];
      builder_.fma(type_, values_[v], weight, sum, sum);
    }
  }
  void finish() {}
  Reg row(uint32_t row_in_tile) const { return sums_[row_in_tile * vec_]; }

private:
  Builder& builder_;
  uint32_t vec_;
  Scalar type_;
  Reg sums_;
  std::vector<Reg> values_;
};

/// Sums in f32 that gather `half_terms` products in f16 or bf16 first; pairs of columns share an
/// instruction where `vec` is even.
class GatheredSums {
public:
  GatheredSums(Builder& builder, const SpmmSchedule& schedule, uint32_t rows)
      : builder_(builder), vec_(schedule.tile.vec), terms_(schedule.problem.half_terms),
        gathered_(rows, 0) {
    const bool pairs = vec_ % 2 == 0;
    step_ = pairs ? 2 : 1;
    const bool f16 = schedule.problem.type == DataType::f16;
    half_ = f16 ? (pairs ? Scalar::f16x2 : Scalar::f16) : (pairs ? Scalar::bf16x2 : Scalar::bf16);
    sums_ = builder.fresh_tuple(Scalar::f32, std::max(1u, rows * vec_));
    parts_ = builder.fresh_tuple(half_, std::max(1u, rows * vec_ / step_));
    for (uint32_t i = 0; i < rows * vec_; ++i)
      builder.constant(Scalar::f32, Operand::f32(0.0f), sums_[i]);
  }

  void set_column(const std::vector<Reg>& loaded) {
    values_.clear();
    for (uint32_t v = 0; v < vec_; v += step_)
      values_.push_back(
          step_ == 1 ? loaded[v] : builder_.value(Opcode::pack, half_, {loaded[v], loaded[v + 1]}));
  }
  void multiply_add(const Entry& entry) {
    const Operand weight = half_operand(half_, entry.weight);
    const uint32_t count = gathered_[entry.row_in_tile]++;
    for (uint32_t i = 0; i < values_.size(); ++i) {
      const Reg part = parts_[entry.row_in_tile * vec_ / step_ + i];
      if (count == 0)
        builder_.mul(half_, values_[i], weight, part);
      else
        builder_.fma(half_, values_[i], weight, part, part);
    }
    if (gathered_[entry.row_in_tile] == terms_)
      flush(entry.row_in_tile);
  }
  void finish() {
    for (uint32_t row = 0; row < gathered_.size(); ++row)
      if (gathered_[row] != 0)
        flush(row);
  }
  Reg row(uint32_t row_in_tile) const { return sums_[row_in_tile * vec_]; }

private:
  void flush(uint32_t row) {
    for (uint32_t v = 0; v < vec_; ++v) {
      Reg half = parts_[(row * vec_ + v) / step_];
      if (step_ == 2)
        half = builder_.value(v % 2 == 0 ? Opcode::low : Opcode::high, half_, {half});
      const Reg sum = sums_[row * vec_ + v];
      builder_.add(Scalar::f32, sum, widen(builder_, half), sum);
    }
    gathered_[row] = 0;
  }

  Builder& builder_;
  uint32_t vec_;
  uint32_t terms_;
  std::vector<uint32_t> gathered_;
  uint32_t step_ = 1;
  Scalar half_ = Scalar::f16;
  Reg sums_, parts_;
  std::vector<Reg> values_;
};

/// B read where it is used.
class GlobalB {
public:
  GlobalB(Builder& builder, const SpmmSchedule& schedule, TileArguments& arguments)
      : builder_(builder), schedule_(schedule),
        address_(builder, arguments.b, b_rows(schedule), arguments.b_stride),
        loaded_(schedule.tile.vec) {}

  /// The thread's elements of row k; valid until the next call.
  const std::vector<Reg>& load(uint32_t k) {
    const uint32_t vec = schedule_.tile.vec;
    const uint32_t width = schedule_.neighbouring_columns ? vec : 1;
    for (uint32_t v = 0; v < vec; v += width) {
      const auto place = address_.at(k, v / width);
      const Reg vector = builder_.load(place.pointer, place.offset, width, Cache::readonly);
      for (uint32_t i = 0; i < width; ++i)
        loaded_[v + i] = vector[i];
    }
    return loaded_;
  }
  void finish() {}
  /// Where a block of control flow begins or ends.
  void forget_bases() { address_.forget_bases(); }

private:
  Builder& builder_;
  const SpmmSchedule& schedule_;
  RowAddress address_;
  std::vector<Reg> loaded_;
};

/// B in chunks of rows in shared memory.
class StagedB {
public:
  StagedB(Builder& builder, const SpmmSchedule& schedule, TileArguments& arguments)
      : builder_(builder), schedule_(schedule), arguments_(arguments),
        source_(builder, arguments.copy_sources, b_rows(schedule), arguments.b_stride),
        element_(element_bytes(schedule.problem.type)),
        row_bytes_(schedule.columns_per_block() * element_), piece_(staging_piece_bytes(schedule)),
        rows_a_pass_(schedule.threads_x * schedule.tile.groups * piece_ / row_bytes_),
        loaded_(schedule.tile.vec),
        chunks_(builder, (schedule.inner + schedule.tile.chunk - 1) / schedule.tile.chunk,
                schedule.tile.prefetch, [this](uint32_t chunk) { copy_chunk(chunk); }) {}
  StagedB(const StagedB&) = delete;

  const std::vector<Reg>& load(uint32_t k) {
    const SpmmTile& tile = schedule_.tile;
    chunks_.enter(k / tile.chunk);
    const uint32_t slot = chunks_.slot(k / tile.chunk);
    const int64_t row = int64_t{slot * tile.chunk + k % tile.chunk} * row_bytes_;
    const uint32_t width = schedule_.neighbouring_columns ? tile.vec : 1;
    for (uint32_t v = 0; v < tile.vec; v += width) {
      const Reg vector =
          builder_.load(arguments_.staged_columns,
                        row + int64_t{v / width} * schedule_.threads_x * element_, width);
      for (uint32_t i = 0; i < width; ++i)
        loaded_[v + i] = vector[i];
    }
    return loaded_;
  }
  void finish() { chunks_.finish(); }

private:
  void copy_chunk(uint32_t chunk) {
    const SpmmTile& tile = schedule_.tile;
    for (uint32_t pass = 0; pass * rows_a_pass_ < tile.chunk; ++pass) {
      const uint32_t row = chunk * tile.chunk + pass * rows_a_pass_;
      if (row >= schedule_.inner)
        break;
      Reg bytes; // rows beyond K are filled with zeros, not read
      if (row + rows_a_pass_ > schedule_.inner) {
        const Reg in_b = builder_.compare(ir::Comparison::lt, Scalar::i32, arguments_.copy_row,
                                          Operand::integer(schedule_.inner - row));
        const Reg all = builder_.constant(Scalar::i32, Operand::integer(piece_));
        bytes = builder_.select(Scalar::i32, in_b, all, Operand::integer(0));
      }
      const auto place = source_.at(row, 0);
      const uint32_t slot_row = chunk % tile.prefetch * tile.chunk + pass * rows_a_pass_;
      builder_.copy_async(arguments_.staged_copies, static_cast<int32_t>(slot_row * row_bytes_),
                          place.pointer, static_cast<int32_t>(place.offset), piece_, bytes);
    }
  }

  Builder& builder_;
  const SpmmSchedule& schedule_;
  TileArguments& arguments_;
  RowAddress source_;
  uint32_t element_, row_bytes_, piece_, rows_a_pass_;
  std::vector<Reg> loaded_;
  StagedChunks chunks_; ///< begins to copy when it is made
};

template <class Sums, class B>
void write_products(Builder& builder, std::span<const Entry> entries, Sums& sums, B& b) {
  for (size_t i = 0; i < entries.size();) {
    const uint32_t column = entries[i].column;
    builder.set_origin(entries[i].row, column);
    sums.set_column(b.load(column));
    for (; i < entries.size() && entries[i].column == column; ++i) {
      builder.set_origin(entries[i].row, column);
      sums.multiply_add(entries[i]);
    }
  }
  builder.clear_origin();
  sums.finish();
}

/// The products of the border of a convolution: what one question about a tap guards at a time.
template <class Sums>
void write_border_products(Builder& builder, const SpmmSchedule& schedule,
                           const TileArguments& arguments, const std::vector<Entry>& entries,
                           Sums& sums, GlobalB& b) {
  const BorderOrder order(schedule);
  std::vector<Entry> sorted = entries;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Entry& a, const Entry& c) {
    return order.question_of(a.column) < order.question_of(c.column);
  });
  for (size_t begin = 0; begin < sorted.size();) {
    const uint64_t question = order.question_of(sorted[begin].column);
    size_t end = begin;
    while (end < sorted.size() && order.question_of(sorted[end].column) == question)
      ++end;
    const std::span<const Entry> guarded(sorted.data() + begin, end - begin);
    begin = end;
    if (!order.is_possible(guarded.front().column))
      continue;
    const Reg inside =
        write_tap_question(builder, arguments.taps, order.asked(guarded.front().column));
    if (inside.valid())
      builder.if_begin(inside);
    b.forget_bases();
    write_products(builder, guarded, sums, b);
    b.forget_bases();
    if (inside.valid())
      builder.end();
  }
}

/// Partial sums of rows that another part finishes go to the block's shared memory; this part adds
/// up the rows r with r % parts == part.
template <class Sums>
class ExchangeWriter {
public:
  ExchangeWriter(Builder& builder, const SpmmSchedule& schedule, TileArguments& arguments,
                 const Sums& sums, uint32_t rows, uint32_t part)
      : builder_(builder), schedule_(schedule), tile_(schedule.tile), sums_(sums), rows_(rows),
        part_(part), type_(accumulator_scalar(schedule.problem.type)),
        clusters_(tiles_meet_in_clusters(schedule)), partial_(tile_.cluster),
        barrier_(arguments.barrier) {
    partial_[rank_of(part)] = arguments.partial;
  }

  void write(EpilogueWriter& epilogue, uint32_t first_row) {
    for (uint32_t row = 0; row < rows_; ++row)
      if (row % tile_.parts() != part_)
        for (uint32_t v = 0; v < tile_.vec; ++v)
          builder_.store(partial_[rank_of(part_)], slot(part_, row, v), sums_.row(row)[v]);
    meet();
    const auto finish = [&](uint32_t row, Reg total) {
      epilogue.write_row(schedule_.row_order[first_row + row], total);
    };
    std::vector<Reg> totals;
    for (uint32_t row = part_; row < rows_; row += tile_.parts()) {
      totals.push_back(add_up(row));
      if (!clusters_)
        finish(row, totals.back());
    }
    if (!clusters_)
      return;
    // Nobody's shared memory is needed any more: what follows may end at any time.
    meet();
    for (size_t i = 0; i < totals.size(); ++i)
      finish(part_ + static_cast<uint32_t>(i) * tile_.parts(), totals[i]);
  }

private:
  uint32_t rank_of(uint32_t part) const { return part / tile_.splitk; }
  int64_t slot(uint32_t part, uint32_t row, uint32_t v) const {
    return int64_t{(part % tile_.splitk * tile_.rows + row) * tile_.vec + v} * schedule_.threads_x *
           ir::size_in_bytes(type_);
  }
  void meet() {
    if (clusters_)
      builder_.cluster_barrier();
    else
      builder_.barrier(barrier_, schedule_.threads_x * tile_.splitk);
  }
  Reg partial_of(uint32_t rank) {
    if (!partial_[rank].valid())
      partial_[rank] = builder_.peer(partial_[rank_of(part_)], Operand::integer(rank));
    return partial_[rank];
  }
  Reg add_up(uint32_t row) {
    const Reg total = builder_.fresh_tuple(type_, tile_.vec);
    for (uint32_t v = 0; v < tile_.vec; ++v) {
      for (uint32_t p = 0; p < tile_.parts(); ++p) {
        const Reg sum =
            p == part_ ? sums_.row(row)[v] : builder_.load(partial_of(rank_of(p)), slot(p, row, v));
        if (p == 0)
          builder_.move(sum, total[v]);
        else
          builder_.add(type_, total[v], sum, total[v]);
      }
    }
    return total;
  }

  Builder& builder_;
  const SpmmSchedule& schedule_;
  const SpmmTile& tile_;
  const Sums& sums_;
  uint32_t rows_, part_;
  Scalar type_;
  bool clusters_;
  std::vector<Reg> partial_; ///< this thread's first partial sum in the memory of each block
  Reg barrier_;
};

template <class Sums>
void write_tile(Builder& builder, const SpmmSchedule& schedule, const Pattern& pattern,
                const std::vector<double>& weights, TileArguments& arguments, uint32_t tile,
                uint32_t part) {
  const uint32_t first_row = schedule.tile_begin[tile];
  const uint32_t rows = schedule.tile_begin[tile + 1] - first_row;
  const uint32_t parts = schedule.tile.parts();
  auto entries_of = [&](uint32_t p) {
    return tile_entries(schedule, pattern, weights, tile, split_begin(schedule.inner, parts, p),
                        split_begin(schedule.inner, parts, p + 1));
  };
  EpilogueWriter epilogue(builder, schedule, arguments);
  const auto write_part = [&](uint32_t p, Sums& sums, GlobalB& b) {
    if (schedule.asks_taps)
      write_border_products(builder, schedule, arguments, entries_of(p), sums, b);
    else
      write_products<Sums, GlobalB>(builder, entries_of(p), sums, b);
  };

  const auto write_staged = [&](auto&& b) {
    std::vector<Entry> entries = tile_entries(schedule, pattern, weights, tile, 0, schedule.inner);
    if (parts > 1)
      std::erase_if(
          entries, [&](const Entry& entry) { return part_of_row(schedule, entry.column) != part; });
    Sums sums(builder, schedule, rows);
    write_products(builder, std::span<const Entry>(entries), sums, b);
    b.finish();
    if (parts > 1) {
      ExchangeWriter<Sums>(builder, schedule, arguments, sums, rows, part)
          .write(epilogue, first_row);
      return;
    }
    for (uint32_t row = 0; row < rows; ++row)
      epilogue.write_row(schedule.row_order[first_row + row], sums.row(row));
  };
  if (stages_images(schedule))
    return write_staged(StagedImages(builder, schedule, arguments));
  if (schedule.tile.stage == Stage::smem)
    return write_staged(StagedB(builder, schedule, arguments));
  if (parts_are_threads(schedule)) {
    GlobalB b(builder, schedule, arguments);
    Sums sums(builder, schedule, rows);
    write_part(part, sums, b);
    ExchangeWriter<Sums>(builder, schedule, arguments, sums, rows, part).write(epilogue, first_row);
    return;
  }
  GlobalB b(builder, schedule, arguments);
  Sums total(builder, schedule, rows);
  write_part(0, total, b);
  for (uint32_t p = 1; p < parts; ++p) {
    Sums sums(builder, schedule, rows);
    write_part(p, sums, b);
    const Scalar type = accumulator_scalar(schedule.problem.type);
    for (uint32_t i = 0; i < rows * schedule.tile.vec; ++i)
      builder.add(type, total.row(0)[i], sums.row(0)[i], total.row(0)[i]);
  }
  for (uint32_t row = 0; row < rows; ++row)
    epilogue.write_row(schedule.row_order[first_row + row], total.row(row));
}

} // namespace

void write_unrolled_tile(Builder& builder, const SpmmSchedule& schedule, const Pattern& pattern,
                         const std::vector<double>& weights, TileArguments& arguments,
                         uint32_t tile, uint32_t part) {
  if (schedule.problem.half_terms != 0)
    write_tile<GatheredSums>(builder, schedule, pattern, weights, arguments, tile, part);
  else
    write_tile<ExactSums>(builder, schedule, pattern, weights, arguments, tile, part);
}

} // namespace sparsertc
