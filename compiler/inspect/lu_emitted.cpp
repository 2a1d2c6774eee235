#include "compiler/inspect/lu_emitted.h"

#include "compiler/inspect/lu_schedule.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace sparsertc {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint64_t kMostSlots = uint64_t{1} << 31;
constexpr uint64_t kMostPairs = uint64_t{1} << 32;
/// Of a column in straight-line code: 32 rows each, in a register of each lane.
constexpr uint32_t kMostChunks = 8;
/// Constant offsets of straight-line code have 31 bits.
constexpr uint64_t kMostOffset = uint64_t{1} << 31;
/// A strip is given columns until its code has about so many instructions.
constexpr uint64_t kStripInstructions = 200;
constexpr uint32_t kBlockWarps = 4;
constexpr uint32_t kOneBlockWarps = 32;
/// A level that one block is through with in about the time of a launch: pieces, products, and
/// multiply-adds in straight-line code, which one multiprocessor is slow to fetch.
constexpr uint32_t kSmallPieces = 2 * kOneBlockWarps;
constexpr uint64_t kSmallProducts = 8 * 1024;
constexpr uint64_t kSmallUnrolled = 512;

/// What a column would be in straight-line code.
struct Code {
  uint32_t column = 0;
  uint32_t sources = 0; ///< columns that are subtracted
  uint32_t steps = 0;
  uint64_t products = 0;
  uint32_t chunks = 0;

  uint64_t instructions() const { return 30 + 6 * chunks + 6 * sources + 6 * uint64_t{steps}; }
};

class Planner {
public:
  Planner(const LuTables& tables, const LuEmittedOptions& options)
      : t_(tables), options_(options), code_(tables.size), unrolled_(tables.size, false),
        slot_of_row_(tables.size) {}

  LuEmitted make() {
    check();
    choose_columns();
    find_levels();
    make_strips();
    make_tasks();
    make_launches();
    plan_.slot_column.resize(t_.nnz());
    for (uint32_t j = 0; j < t_.size; ++j)
      for (uint64_t slot = t_.column_offset[j]; slot < t_.column_offset[j + 1]; ++slot)
        plan_.slot_column[slot] = word_of(slot, j);
    return std::move(plan_);
  }

private:
  void check() const {
    if (t_.nnz() >= kMostSlots || multiply_adds(t_) >= kMostPairs)
      throw UserError(fmt::format("{} entries of L + U and {} multiply-adds are too many for the "
                                  "tables of a GPU",
                                  t_.nnz(), multiply_adds(t_)),
                      "--strategy=right-looking needs none");
  }

  int32_t word_of(uint64_t slot, uint32_t j) const {
    return static_cast<int32_t>(slot == t_.diagonal[j] ? ~j : j);
  }

  /// Calls f(slot of v(i,j), slot of v(i,k), slot of v(k,j), k) for each product of column j,
  /// ascending in k.
  template <class F>
  void for_each_pair(uint32_t j, const F& f) {
    const uint64_t begin = t_.column_offset[j], end = t_.column_offset[j + 1];
    for (uint64_t slot = begin; slot < end; ++slot)
      slot_of_row_[t_.row_index[slot]] = slot;
    for (uint64_t right = begin; right < t_.diagonal[j]; ++right) {
      const uint32_t k = t_.row_index[right];
      for (uint64_t left = t_.diagonal[k] + 1; left < t_.column_offset[k + 1]; ++left)
        f(slot_of_row_[t_.row_index[left]], left, right, k);
    }
  }

  Code code_of(uint32_t j) {
    Code code;
    code.column = j;
    const uint64_t begin = t_.column_offset[j];
    code.chunks = static_cast<uint32_t>((t_.column_offset[j + 1] - begin + kLanes - 1) / kLanes);
    uint64_t source = kNone, chunk = kNone;
    for_each_pair(j, [&](uint64_t slot, uint64_t, uint64_t right, uint32_t) {
      if (right != source) {
        ++code.sources;
        chunk = kNone;
      }
      source = right;
      if ((slot - begin) / kLanes != chunk)
        ++code.steps;
      chunk = (slot - begin) / kLanes;
      ++code.products;
    });
    return code;
  }

  /// Those with the most products an instruction first, as long as the budget lasts.
  void choose_columns() {
    std::vector<Code> candidates;
    for (uint32_t j = 0; j < t_.size; ++j) {
      code_[j] = code_of(j);
      const Code& code = code_[j];
      if (code.products > 0 && code.steps <= options_.most_steps && code.chunks <= kMostChunks &&
          code.products >= uint64_t{options_.least_lanes} * code.steps &&
          t_.column_offset[j + 1] * options_.number_bytes < kMostOffset)
        candidates.push_back(code);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const Code& x, const Code& y) {
      return x.products * y.steps > y.products * x.steps;
    });
    uint64_t left = options_.most_multiply_adds;
    for (const Code& code : candidates)
      if (code.products <= left) {
        left -= code.products;
        unrolled_[code.column] = true;
      }
  }

  /// Of each slot; all of a column in straight-line code have one.
  void find_levels() {
    level_.assign(t_.nnz(), 0);
    uint32_t levels = t_.size == 0 ? 0 : 1;
    for (uint32_t j = 0; j < t_.size; ++j) {
      const uint64_t begin = t_.column_offset[j], end = t_.column_offset[j + 1];
      uint32_t of_column = 0;
      for_each_pair(j, [&](uint64_t slot, uint64_t left, uint64_t right, uint32_t k) {
        const uint32_t read = std::max(level_[left], level_[t_.diagonal[k]]);
        of_column = std::max(of_column, read + 1);
        if (!unrolled_[j])
          level_[slot] = std::max(level_[slot], std::max(read, level_[right]) + 1);
      });
      if (unrolled_[j])
        std::fill(level_.begin() + static_cast<ptrdiff_t>(begin),
                  level_.begin() + static_cast<ptrdiff_t>(end), of_column);
      for (uint64_t slot = begin; slot < end; ++slot)
        levels = std::max(levels, level_[slot] + 1);
    }
    plan_.levels.resize(levels);
  }

  void make_strips() {
    std::vector<std::vector<uint32_t>> columns(plan_.levels.size());
    for (uint32_t j = 0; j < t_.size; ++j)
      if (unrolled_[j])
        columns[level_[t_.column_offset[j]]].push_back(j);
    for (size_t l = 0; l < columns.size(); ++l) {
      LuEmittedLevel& level = plan_.levels[l];
      level.first_strip = plan_.strips();
      uint64_t instructions = 0;
      for (const uint32_t j : columns[l]) {
        if (instructions >= kStripInstructions) {
          plan_.strip_offset.push_back(static_cast<uint32_t>(plan_.strip_column.size()));
          instructions = 0;
        }
        plan_.strip_column.push_back(j);
        instructions += code_[j].instructions();
        level.multiply_adds += code_[j].products;
        level.unrolled += code_[j].products;
      }
      if (instructions > 0)
        plan_.strip_offset.push_back(static_cast<uint32_t>(plan_.strip_column.size()));
      level.end_strip = plan_.strips();
    }
  }

  /// By level; in a level long ones first, then by the number of products, so that the lanes of a
  /// warp have about as many.
  void make_tasks() {
    std::vector<uint32_t> count(t_.nnz(), 0);
    std::vector<uint64_t> slots;
    uint64_t pairs = 0;
    for (uint32_t j = 0; j < t_.size; ++j) {
      if (unrolled_[j])
        continue;
      for_each_pair(j, [&](uint64_t slot, uint64_t, uint64_t, uint32_t) { ++count[slot]; });
      for (uint64_t slot = t_.column_offset[j]; slot < t_.column_offset[j + 1]; ++slot) {
        slots.push_back(slot);
        pairs += count[slot];
      }
    }
    std::stable_sort(slots.begin(), slots.end(), [&](uint64_t x, uint64_t y) {
      return level_[x] != level_[y] ? level_[x] < level_[y] : count[x] > count[y];
    });
    std::vector<uint32_t> next(t_.nnz(), 0);
    uint32_t first = 0;
    size_t at = 0;
    for (uint32_t l = 0; l < plan_.levels.size(); ++l) {
      LuEmittedLevel& level = plan_.levels[l];
      level.first_task = level.end_long = static_cast<uint32_t>(plan_.task.size());
      for (; at < slots.size() && level_[slots[at]] == l; ++at) {
        const uint64_t slot = slots[at];
        plan_.task.push_back({static_cast<uint32_t>(slot), 0, first, count[slot]});
        next[slot] = first;
        first += count[slot];
        level.multiply_adds += count[slot];
        if (count[slot] > options_.lane_products)
          level.end_long = static_cast<uint32_t>(plan_.task.size());
      }
      level.end_task = static_cast<uint32_t>(plan_.task.size());
    }
    plan_.left.resize(pairs);
    plan_.right.resize(pairs);
    plan_.pivot.resize(pairs);
    for (uint32_t j = 0; j < t_.size; ++j)
      if (!unrolled_[j])
        for_each_pair(j, [&](uint64_t slot, uint64_t left, uint64_t right, uint32_t k) {
          const uint32_t place = next[slot]++;
          plan_.left[place] = static_cast<uint32_t>(left);
          plan_.right[place] = static_cast<uint32_t>(right);
          plan_.pivot[place] = static_cast<uint32_t>(t_.diagonal[k]);
        });
    std::vector<uint32_t> column(t_.nnz());
    for (uint32_t j = 0; j < t_.size; ++j)
      std::fill(column.begin() + static_cast<ptrdiff_t>(t_.column_offset[j]),
                column.begin() + static_cast<ptrdiff_t>(t_.column_offset[j + 1]), j);
    for (LuEmittedTask& task : plan_.task)
      task.column = word_of(task.slot, column[task.slot]);
  }

  static bool is_small(const LuEmittedLevel& level) {
    return level.pieces() <= kSmallPieces && level.multiply_adds <= kSmallProducts &&
           level.unrolled <= kSmallUnrolled;
  }

  void make_launches() {
    const auto levels = static_cast<uint32_t>(plan_.levels.size());
    for (uint32_t first = 0; first < levels;) {
      uint32_t end = first;
      while (end < levels && is_small(plan_.levels[end]))
        ++end;
      if (end > first + 1) {
        plan_.launches.push_back({first, end, 1, kOneBlockWarps});
        first = end;
        continue;
      }
      const uint32_t pieces = plan_.levels[first].pieces();
      plan_.launches.push_back(
          {first, first + 1, (pieces + kBlockWarps - 1) / kBlockWarps, kBlockWarps});
      ++first;
    }
  }

  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  const LuTables& t_;
  const LuEmittedOptions& options_;
  LuEmitted plan_;
  std::vector<Code> code_;
  std::vector<bool> unrolled_;
  std::vector<uint64_t> slot_of_row_;
  std::vector<uint32_t> level_;
};

} // namespace

LuEmitted make_lu_emitted(const LuTables& tables, const LuEmittedOptions& options) {
  return Planner(tables, options).make();
}

} // namespace sparsertc
