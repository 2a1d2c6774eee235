#include "compiler/inspect/lu_block_solve.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

constexpr uint32_t kLanes = LuBlockSolve::kLanes;
constexpr uint32_t kWords = LuBlockSolve::kRecordWords;
constexpr uint32_t kProducts = LuBlockSolve::kProducts;
constexpr uint32_t kColumns = LuBlockSolve::kColumns;
constexpr uint64_t kMost = uint64_t{1} << 31;

/// Estimated clocks: of a step with its barrier, of a record of each kind.
constexpr uint64_t kStepClocks = 150;
constexpr uint64_t kGatherClocks = 120;
constexpr uint64_t kTriangleClocks = 500;

struct Record {
  uint32_t shape = 0;
  std::array<uint32_t, kLanes* kWords> words = {};
  /// By strip, lane, number; a gather has the first strip alone.
  std::array<uint32_t, kLanes * kColumns> slot, pivot;

  uint32_t strips() const { return shape == LuBlockSolve::kTriangle ? 2 : 1; }
};

/// One of the two substitutions: the products of a row are those at places begin(i) to end(i).
struct Substitution {
  const LuTables& tables;
  bool transposed, forward;

  const LuLevels& levels() const {
    if (transposed)
      return forward ? tables.transposed_forward_levels : tables.transposed_backward_levels;
    return forward ? tables.forward_levels : tables.backward_levels;
  }
  uint64_t begin(uint32_t i) const {
    return forward ? offset()[i] : (transposed ? tables.diagonal : tables.row_diagonal)[i] + 1;
  }
  uint64_t end(uint32_t i) const {
    return forward ? (transposed ? tables.diagonal : tables.row_diagonal)[i] : offset()[i + 1];
  }
  uint32_t index(uint64_t place) const {
    return (transposed ? tables.row_index : tables.column_index)[place];
  }
  uint32_t slot(uint64_t place) const {
    return static_cast<uint32_t>(transposed ? place : tables.row_slot[place]);
  }

private:
  const std::vector<uint64_t>& offset() const {
    return transposed ? tables.column_offset : tables.row_offset;
  }
};

/// Sets of rows that grow together. A row's own set is made by `add`.
class RowSets {
public:
  explicit RowSets(uint32_t n) : parent_(n), size_(n) {}

  void add(uint32_t row) {
    parent_[row] = row;
    size_[row] = 1;
  }
  uint32_t find(uint32_t row) {
    while (parent_[row] != row)
      row = parent_[row] = parent_[parent_[row]];
    return row;
  }
  /// The size of the set that has both.
  uint32_t unite(uint32_t a, uint32_t b) {
    a = find(a), b = find(b);
    if (a != b) {
      if (b < a)
        std::swap(a, b);
      parent_[b] = a;
      size_[a] += size_[b];
    }
    return size_[a];
  }
  uint32_t size(uint32_t row) { return size_[find(row)]; }

private:
  std::vector<uint32_t> parent_, size_;
};

/// Levels that are taken together, [first, last].
struct Span {
  uint64_t first = 0, last = 0;
};

class StepMaker {
public:
  StepMaker(const LuTables& tables, const LuBlockSolveOptions& options)
      : tables_(tables), options_(options), sets_(tables.size), level_(tables.size),
        warps_(std::max(options.warps, 1u)), records_(warps_) {
    solve_.warps = warps_;
    solve_.end.assign(warps_, 0);
  }

  void add(const Substitution& s) {
    for (uint64_t l = 0; l < s.levels().count(); ++l)
      for (uint64_t m = s.levels().offset[l]; m < s.levels().offset[l + 1]; ++m)
        level_[s.levels().member[m]] = l;
    for (const Span& span : choose_spans(s)) {
      join(s, span);
      add_gathers(s, span);
      add_triangles(s, span);
    }
  }

  LuBlockSolve finish() {
    // Warps count their own records so far.
    std::vector<uint32_t> base(warps_, 0);
    uint64_t count = 0;
    for (uint32_t w = 0; w < warps_; ++w) {
      base[w] = static_cast<uint32_t>(count);
      count += records_[w].size();
    }
    if ((count + LuBlockSolve::kReadAhead) * kLanes * kColumns >= kMost)
      throw UserError("the factors are too large for one block's tables",
                      "solve with the dataflow kernel");
    for (uint32_t i = 0; i < LuBlockSolve::kReadAhead; ++i) {
      end_step(); // read, not done
      --solve_.steps;
    }
    for (size_t i = 0; i < solve_.end.size(); ++i)
      solve_.end[i] += base[i % warps_];
    for (const std::vector<Record>& stream : records_)
      for (const Record& record : stream)
        append(record);
    for (uint32_t i = 0; i < LuBlockSolve::kReadAhead; ++i)
      append(empty_record(0));
    return std::move(solve_);
  }

private:
  /// The cheapest sequence of spans by the estimates: for every end of a span its best begin.
  std::vector<Span> choose_spans(const Substitution& s) {
    const LuLevels& levels = s.levels();
    const uint64_t count = levels.count();
    constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
    std::vector<uint64_t> cost(count + 1, kNever), begin(count + 1, 0);
    cost[0] = 0;
    for (uint64_t first = 0; first < count; ++first) {
      uint64_t products = 0, dependent = 0;
      uint32_t largest = 1;
      // The longest chain of a span has a row in each level.
      for (uint64_t last = first; last < std::min<uint64_t>(count, first + kLanes); ++last) {
        for (uint64_t m = levels.offset[last]; m < levels.offset[last + 1]; ++m) {
          const uint32_t i = levels.member[m];
          sets_.add(i);
          for (uint64_t place = s.begin(i); place < s.end(i); ++place) {
            if (level_[s.index(place)] < first) {
              ++products;
            } else {
              dependent += sets_.size(i) == 1 ? 1 : 0;
              dependent += sets_.size(s.index(place)) == 1 ? 1 : 0;
              largest = std::max(largest, sets_.unite(i, s.index(place)));
            }
          }
        }
        if (largest > kLanes)
          break;
        const uint64_t whole = cost[first] + estimate(products, dependent, largest);
        if (whole < cost[last + 1]) {
          cost[last + 1] = whole;
          begin[last + 1] = first;
        }
      }
    }
    std::vector<Span> spans;
    for (uint64_t end = count; end > 0; end = begin[end])
      spans.push_back({begin[end], end - 1});
    std::reverse(spans.begin(), spans.end());
    return spans;
  }

  /// Of the steps of a span with so many products outside of it, and so many rows in sets of more
  /// than one.
  uint64_t estimate(uint64_t products, uint64_t dependent, uint32_t largest) const {
    const auto rounds = [&](uint64_t number, uint64_t of_record) {
      const uint64_t records = (number + of_record - 1) / of_record;
      return (records + warps_ - 1) / warps_;
    };
    uint64_t clocks = 0;
    if (products > 0)
      clocks += kStepClocks + kGatherClocks * rounds(products, kLanes * kProducts);
    if (dependent > 0)
      clocks += kStepClocks + kTriangleClocks * rounds(dependent, kLanes) * chunks(largest);
    return clocks;
  }

  /// Records of a triangle: nobody needs the column of the last row.
  static uint32_t chunks(uint32_t rows) { return (rows - 1 + kColumns - 1) / kColumns; }

  void join(const Substitution& s, const Span& span) {
    const LuLevels& levels = s.levels();
    for (uint64_t m = levels.offset[span.first]; m < levels.offset[span.last + 1]; ++m) {
      const uint32_t i = levels.member[m];
      sets_.add(i);
      for (uint64_t place = s.begin(i); place < s.end(i); ++place)
        if (level_[s.index(place)] >= span.first)
          sets_.unite(i, s.index(place));
    }
  }

  struct Row {
    uint32_t row = 0, lanes = 1;
    std::vector<uint64_t> places; ///< of the products
  };

  void add_gathers(const Substitution& s, const Span& span) {
    const LuLevels& levels = s.levels();
    std::vector<Row> rows;
    for (uint64_t m = levels.offset[span.first]; m < levels.offset[span.last + 1]; ++m) {
      Row row;
      row.row = levels.member[m];
      for (uint64_t place = s.begin(row.row); place < s.end(row.row); ++place)
        if (level_[s.index(place)] < span.first)
          row.places.push_back(place);
      if (row.places.empty())
        continue;
      const uint64_t of_lane = std::max(options_.products_of_lane, 1u);
      row.lanes = static_cast<uint32_t>(
          std::min<uint64_t>(kLanes, std::bit_ceil((row.places.size() + of_lane - 1) / of_lane)));
      rows.push_back(std::move(row));
    }
    if (rows.empty())
      return;
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return std::pair(b.places.size(), a.row) < std::pair(a.places.size(), b.row);
    });
    begin_step();
    for (size_t first = 0; first < rows.size();) {
      const uint32_t lanes = rows[first].lanes;
      size_t end = first;
      while (end < rows.size() && rows[end].lanes == lanes && end - first < kLanes / lanes)
        ++end;
      add_gather(s, rows, first, end);
      first = end;
    }
    end_step();
  }

  void add_gather(const Substitution& s, const std::vector<Row>& rows, size_t first, size_t end) {
    const uint32_t lanes = rows[first].lanes;
    const uint64_t in_record = uint64_t{lanes} * kProducts;
    std::vector<Record> records((rows[first].places.size() + in_record - 1) / in_record,
                                empty_record(0));
    records.back().shape = lanes;
    for (size_t r = first; r < end; ++r) {
      const auto lane = static_cast<uint32_t>((r - first) * lanes);
      word(records.back(), lane, 0) = rows[r].row;
      for (size_t p = 0; p < rows[r].places.size(); ++p) {
        Record& record = records[p / in_record];
        const auto inside = static_cast<uint32_t>(p % in_record);
        const uint32_t of = lane + inside % lanes, number = inside / lanes;
        set_number(record, of, number, s.slot(rows[r].places[p]), rows[r].row);
        uint32_t& pair = word(record, of, 1 + number / 2);
        const uint32_t shift = number % 2 * 16, k = s.index(rows[r].places[p]);
        pair = (pair & ~(0xFFFFu << shift)) | k << shift;
      }
    }
    deal(records);
  }

  void add_triangles(const Substitution& s, const Span& span) {
    // Rows by sets, in the order of levels within each, the largest sets first.
    const LuLevels& levels = s.levels();
    std::vector<std::vector<uint32_t>> sets;
    std::vector<std::pair<uint32_t, uint32_t>> by_root; // set, position in levels.member
    for (uint64_t m = levels.offset[span.first]; m < levels.offset[span.last + 1]; ++m)
      if (sets_.size(levels.member[m]) > 1)
        by_root.push_back({sets_.find(levels.member[m]), static_cast<uint32_t>(m)});
    if (by_root.empty())
      return;
    std::sort(by_root.begin(), by_root.end());
    for (size_t i = 0; i < by_root.size(); ++i) {
      if (i == 0 || by_root[i].first != by_root[i - 1].first)
        sets.emplace_back();
      sets.back().push_back(levels.member[by_root[i].second]);
    }
    std::stable_sort(sets.begin(), sets.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
    begin_step();
    for (size_t first = 0; first < sets.size();) {
      size_t end = first;
      for (size_t lanes = 0; end < sets.size() && lanes + sets[end].size() <= kLanes; ++end)
        lanes += sets[end].size();
      add_triangle(s, span, sets, first, end);
      first = end;
    }
    end_step();
  }

  void add_triangle(const Substitution& s, const Span& span,
                    const std::vector<std::vector<uint32_t>>& sets, size_t first, size_t end) {
    std::vector<Record> records(chunks(static_cast<uint32_t>(sets[first].size())),
                                empty_record(LuBlockSolve::kTriangle));
    uint32_t lane = 0;
    for (size_t set = first; set < end; ++set) {
      const uint32_t first_lane = lane;
      for (const uint32_t row : sets[set]) {
        for (size_t chunk = 0; chunk < records.size(); ++chunk) {
          const uint32_t source = first_lane + static_cast<uint32_t>(chunk) * kColumns;
          word(records[chunk], lane, 0) = row | source % kLanes << 16;
        }
        for (uint64_t place = s.begin(row); place < s.end(row); ++place) {
          if (level_[s.index(place)] < span.first)
            continue;
          const auto column = static_cast<uint32_t>(
              std::find(sets[set].begin(), sets[set].end(), s.index(place)) - sets[set].begin());
          set_number(records[column / kColumns], lane, column % kColumns, s.slot(place), row);
        }
        ++lane;
      }
    }
    deal(records);
  }

  static uint32_t& word(Record& record, uint32_t lane, uint32_t number) {
    return record.words[lane * kWords + number];
  }
  void set_number(Record& record, uint32_t lane, uint32_t number, uint32_t slot, uint32_t row) {
    const uint32_t at = (number / kProducts * kLanes + lane) * kProducts + number % kProducts;
    record.slot[at] = slot;
    record.pivot[at] = static_cast<uint32_t>(tables_.diagonal[row]);
  }

  Record empty_record(uint32_t shape) const {
    Record record;
    record.shape = shape;
    record.slot.fill(UINT32_MAX);
    record.pivot.fill(UINT32_MAX);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      word(record, lane, 0) = tables_.size;
      if (shape == 0)
        word(record, lane, 1) = word(record, lane, 2) = tables_.size | tables_.size << 16;
    }
    return record;
  }

  void append(const Record& record) {
    const uint32_t numbers = record.strips() * kLanes * kProducts;
    solve_.shape.push_back(record.shape);
    solve_.shape.push_back(static_cast<uint32_t>(solve_.slot.size() / (kLanes * kProducts)));
    solve_.records.insert(solve_.records.end(), record.words.begin(), record.words.end());
    solve_.slot.insert(solve_.slot.end(), record.slot.begin(), record.slot.begin() + numbers);
    solve_.pivot.insert(solve_.pivot.end(), record.pivot.begin(), record.pivot.begin() + numbers);
  }

  void begin_step() { load_.assign(warps_, 0); }
  /// To the warp with the fewest records in this step; among those to the one whose turn it is: it
  /// has had the most time to read ahead.
  void deal(const std::vector<Record>& records) {
    uint32_t least = turn_;
    for (uint32_t i = 1; i < warps_; ++i)
      if (const uint32_t warp = (turn_ + i) % warps_; load_[warp] < load_[least])
        least = warp;
    load_[least] += records.size();
    turn_ = (least + 1) % warps_;
    records_[least].insert(records_[least].end(), records.begin(), records.end());
  }
  void end_step() {
    ++solve_.steps;
    for (const std::vector<Record>& stream : records_)
      solve_.end.push_back(static_cast<uint32_t>(stream.size()));
  }

  const LuTables& tables_;
  const LuBlockSolveOptions& options_;
  RowSets sets_;
  std::vector<uint64_t> level_;
  const uint32_t warps_;
  std::vector<std::vector<Record>> records_; ///< by warp
  std::vector<size_t> load_;                 ///< by warp, records in this step
  uint32_t turn_ = 0;
  LuBlockSolve solve_;
};

} // namespace

LuBlockSolve make_block_solve(const LuTables& tables, const LuBlockSolveOptions& options,
                              bool transposed) {
  if (tables.nnz() >= kMost)
    throw UserError(
        fmt::format("the factors have {} entries, too many for the GPU's tables", tables.nnz()),
        "--device=cpu solves on the CPU");
  if (tables.size > LuBlockSolve::kMostRows)
    throw UserError(fmt::format("{} unknowns are too many for one block", tables.size),
                    "solve with the dataflow kernel");
  StepMaker maker(tables, options);
  maker.add({tables, transposed, true});
  maker.add({tables, transposed, false});
  return maker.finish();
}

uint64_t block_solve_bytes(const LuBlockSolve& solve) {
  return sizeof(uint32_t) * (solve.end.size() + solve.shape.size() + solve.records.size() +
                             solve.slot.size() + solve.pivot.size());
}

} // namespace sparsertc
