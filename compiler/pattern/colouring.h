// Colouring a Jacobian's pattern: which columns (or rows) can be evaluated together because none of
// their entries fall on one another.
//
// Columns without a common row ("structurally orthogonal": Curtis, Powell and Reid, "On the
// estimation of sparse Jacobian matrices", 1974) may share a colour: J * s with s the sum of their
// unit vectors has each of their entries by itself. That is a distance-2 colouring of one side of
// the bipartite graph of rows and columns (Gebremedhin, Manne and Pothen, "What color is your
// Jacobian? Graph coloring for computing derivatives", 2005), done here greedily, vertex after
// vertex, each with the first colour that is free.
#pragma once

#include "compiler/pattern/pattern.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

enum class ColouringSide : uint8_t {
  column, ///< J * S: forward mode
  row,    ///< S^T * J: reverse mode
  star,   ///< both together, each entry from either (Coleman and Verma, 1998)
};
std::string_view to_string(ColouringSide side);

/// Which vertex is coloured next. A vertex's degree is the number of others that it must differ
/// from.
enum class ColouringOrder : uint8_t {
  natural,
  largest_first, ///< by descending degree (Welsh and Powell, 1967)
  smallest_last, ///< the last is one of least degree, and so on without it (Matula and Beck, 1983)
  incidence_degree, ///< next is one with the most coloured neighbours (Coleman and More, 1983)
};
std::string_view to_string(ColouringOrder order);

/// Colours count from 1, columns and rows by themselves. Colour 0 is given to a column or row that
/// need not be evaluated: one without entries, or, for `star`, one whose entries all come from the
/// other side.
struct Colouring {
  ColouringSide side = ColouringSide::column;
  /// One for each column; empty for `row`.
  std::vector<uint32_t> column_colour;
  /// One for each row; empty for `column`.
  std::vector<uint32_t> row_colour;
  uint32_t column_colours = 0;
  uint32_t row_colours = 0;

  uint64_t count() const { return uint64_t{column_colours} + row_colours; }
  bool operator==(const Colouring&) const = default;
};

/// Sequential; the same pattern gives the same colours. Time: `natural` takes at most the sum of
/// the squares of the row lengths (for `column`), mostly little more than the number of entries;
/// the other orders take that sum. Memory is proportional to the entries. `star` never uses more
/// colours than one side alone in the same order.
Colouring colour_pattern(const Pattern& pattern, ColouringSide side, ColouringOrder order);

/// No colouring has fewer. `column`: the widest row. `row`: the widest column. `star`: with p
/// column and q row colours a row gives at most p and a column at most q of its entries, so p + q
/// must let all be counted.
uint64_t colouring_lower_bound(const Pattern& pattern, ColouringSide side);

/// What is wrong with a colouring ("row 3: columns 5 and 7 have colour 2"), or nothing: each entry
/// must be the only one with its column's colour in its row, or with its row's colour in its
/// column. Shares nothing with the code that colours.
std::optional<std::string> find_conflict(const Pattern& pattern, const Colouring& colouring);

} // namespace sparsertc
