// Rows and columns together. For a direct recovery each entry must be alone with its column's
// colour in its row, or with its row's colour in its column: a star bicolouring (Coleman and Verma,
// "The efficient computation of sparse Jacobian matrices using automatic differentiation", 1998;
// Gebremedhin, Manne and Pothen, 2005).
#include "compiler/pattern/conflict_sets.h"
#include "compiler/pattern/degree_buckets.h"

#include <algorithm>

namespace sparsertc {
namespace {

constexpr uint32_t kNever = DegreeBuckets::kNone;

/// Columns, or rows: the vertices of one side. Its lines are those of the other: rows for columns.
struct Side {
  /// Row s: the vertices that have an entry in line s.
  const Pattern& lines;
  /// Entry k of `lines` is entry other_entry[k] of the other side's.
  const std::vector<uint64_t>& other_entry;
  /// In which vertices are coloured.
  const Permutation& order;
  /// For each entry of `lines`, whether it must come from this side.
  std::vector<uint8_t> is_needed;
  std::vector<uint32_t> colour;
  uint32_t colours = 0;
};

// ---- colouring one side when only some entries must come from it -------------------------------

/// Sets of which colour_greedily makes what is needed: in a line, a vertex whose entry is needed
/// must differ from all that are coloured; two whose entries are not may be alike.
struct SideSets {
  Pattern members, enters, avoids;
};

void append_row(Pattern& pattern, const std::vector<uint32_t>& columns) {
  pattern.column_index.insert(pattern.column_index.end(), columns.begin(), columns.end());
  pattern.row_offset.push_back(pattern.nnz());
  ++pattern.rows;
}

SideSets side_sets(const Side& side) {
  const Pattern& lines = side.lines;
  std::vector<uint8_t> is_coloured(lines.columns, 0);
  for (uint64_t k = 0; k < lines.nnz(); ++k)
    is_coloured[lines.column_index[k]] |= side.is_needed[k];
  SideSets result;
  Pattern avoided_by;
  std::vector<uint32_t> needed, coloured, others;
  for (uint32_t line = 0; line < lines.rows; ++line) {
    needed.clear();
    coloured.clear();
    others.clear();
    for (uint64_t k = lines.row_offset[line]; k < lines.row_offset[line + 1]; ++k) {
      const uint32_t vertex = lines.column_index[k];
      if (!is_coloured[vertex])
        continue;
      coloured.push_back(vertex);
      (side.is_needed[k] ? needed : others).push_back(vertex);
    }
    if (needed.empty())
      continue;
    append_row(result.members, coloured);
    append_row(avoided_by, needed);
    if (others.empty())
      continue;
    append_row(result.members, needed);
    append_row(avoided_by, others);
  }
  result.members.columns = avoided_by.columns = lines.columns;
  result.enters = transpose(result.members);
  result.avoids = transpose(avoided_by);
  return result;
}

/// Colours a side for the entries that it must give. The other side must then give those which
/// came out with a colour that is not alone in its line.
void colour_side(Side& side, Side& other) {
  const SideSets sets = side_sets(side);
  side.colour = colour_greedily({sets.members, sets.enters, sets.avoids}, side.order, side.colours);
  const std::vector<uint8_t> is_given = entries_given(side.lines, side.colour, side.colours);
  for (uint64_t k = 0; k < is_given.size(); ++k)
    other.is_needed[side.other_entry[k]] = !is_given[k];
}

// ---- which entries come from which side ---------------------------------------------------------

/// What is left of the pattern, seen from one side.
class Remainder {
public:
  explicit Remainder(const Pattern& pattern)
      : pattern_(pattern), by_length_(pattern.rows, pattern.columns), step_(pattern.rows, kNever) {
    for (uint32_t row = pattern.rows; row-- > 0;)
      if (pattern.row_length(row) > 0)
        by_length_.insert(row, static_cast<uint32_t>(pattern.row_length(row)));
  }
  /// One with the fewest entries left; there must be an entry.
  uint32_t shortest() {
    while (by_length_.first(least_) == kNever)
      ++least_;
    return by_length_.first(least_);
  }
  uint32_t length(uint32_t row) const { return by_length_.key(row); }
  /// Takes the row with its entries away, from `other` too. Returns how many there were.
  uint32_t remove(uint32_t row, Remainder& other, uint32_t step) {
    const uint32_t removed = length(row);
    widest_ = std::max(widest_, removed);
    by_length_.erase(row);
    step_[row] = step;
    for (const uint32_t column : pattern_.row(row))
      if (other.by_length_.is_inside(column))
        other.shorten(column);
    return removed;
  }
  /// The most entries that one had when it was removed.
  uint32_t widest() const { return widest_; }
  /// When it was removed; kNever where others took all its entries away.
  uint32_t step(uint32_t row) const { return step_[row]; }

private:
  void shorten(uint32_t row) {
    const uint32_t left = length(row) - 1;
    if (left == 0) {
      by_length_.erase(row);
      return;
    }
    by_length_.move_by(row, -1);
    least_ = std::min(least_, left);
  }

  const Pattern& pattern_;
  DegreeBuckets by_length_;
  std::vector<uint32_t> step_;
  uint32_t least_ = 1;
  uint32_t widest_ = 0;
};

/// Decides what `side` must give: lines with at most `width` entries left are taken away with them,
/// they come from this side; while there is none, the vertex with the fewest entries left, whose
/// entries come from the other. That is the minimum nonzero count order of Coleman and Verma with
/// one of the two widths fixed in advance. Their sum bounds the number of colours from below and is
/// mostly an eighth or more too low; where that makes `count` or more, nothing is decided.
bool choose_entries(Side& side, const Side& other, uint64_t width, uint64_t count) {
  Remainder lines(side.lines), vertices(other.lines);
  uint64_t left = side.lines.nnz();
  for (uint32_t step = 0; left > 0; ++step) {
    const uint32_t line = lines.shortest();
    left -= lines.length(line) <= width ? lines.remove(line, vertices, step)
                                        : vertices.remove(vertices.shortest(), lines, step);
  }
  const uint64_t widths = uint64_t{lines.widest()} + vertices.widest();
  if (widths + widths / 8 >= count)
    return false;
  for (uint32_t line = 0; line < side.lines.rows; ++line)
    for (uint64_t k = side.lines.row_offset[line]; k < side.lines.row_offset[line + 1]; ++k)
      side.is_needed[k] = lines.step(line) < vertices.step(side.lines.column_index[k]);
  return true;
}

} // namespace

Colouring colour_both_sides(const Pattern& pattern, const Permutation& column_order,
                            const Permutation& row_order) {
  std::vector<uint64_t> to_pattern, to_transposed;
  const Pattern transposed = transpose(pattern, &to_pattern);
  transpose(transposed, &to_transposed);
  Side columns{pattern, to_transposed, column_order, {}, {}, 0};
  Side rows{transposed, to_pattern, row_order, {}, {}, 0};
  columns.is_needed.resize(pattern.nnz());
  rows.is_needed.resize(pattern.nnz());

  Colouring best;
  const auto count = [&] { return uint64_t{columns.colours} + rows.colours; };
  const auto keep_better = [&] {
    if (best.column_colour.empty() || count() < best.count())
      best = {ColouringSide::star, columns.colour, rows.colour, columns.colours, rows.colours};
  };
  // One side gives everything.
  for (const bool from_columns : {true, false}) {
    Side& first = from_columns ? columns : rows;
    first.is_needed.assign(pattern.nnz(), 1);
    colour_side(first, from_columns ? rows : columns);
    colour_side(from_columns ? rows : columns, first);
    keep_better();
  }
  const auto try_width = [&](Side& first, Side& second, uint64_t width) {
    if (!choose_entries(first, second, width, best.count()))
      return;
    colour_side(first, second);
    colour_side(second, first);
    keep_better();
    if (count() > best.count() + best.count() / 8 + 1)
      return;
    // What the second side gives by chance, the first need not: that saves a few colours.
    colour_side(first, second);
    keep_better();
  };
  const uint64_t bound = colouring_lower_bound(pattern, ColouringSide::star);
  for (const bool columns_first : {true, false})
    for (uint64_t width = 1; width < best.count() && best.count() > bound; width *= 2)
      try_width(columns_first ? columns : rows, columns_first ? rows : columns, width);
  return best;
}

} // namespace sparsertc
