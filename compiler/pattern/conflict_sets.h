// What greedy colouring and its orders see of a pattern.
#pragma once

#include "compiler/pattern/colouring.h"
#include "compiler/pattern/permutation.h"

namespace sparsertc {

/// Vertices (columns, say) meet in sets (rows). A vertex enters some sets and avoids some: it must
/// differ in colour from every other vertex that enters a set which it avoids. That relation is
/// symmetric. When all entries of a row come from columns, the columns of the row enter it and
/// avoid it; see star_colouring.cpp for the other case. The graph with an edge for each such pair
/// is never stored: it may be dense where the pattern is sparse.
struct ConflictSets {
  /// Row s: the vertices that enter set s.
  const Pattern& members;
  /// Row v: the sets that vertex v enters. The transpose of `members`.
  const Pattern& enters;
  /// Row v: the sets that vertex v avoids.
  const Pattern& avoids;

  uint32_t vertices() const { return enters.rows; }
  /// Whether the vertex needs a colour.
  bool is_needed(uint32_t vertex) const { return enters.row_length(vertex) > 0; }
};

/// All vertices in the order in which they are coloured.
Permutation colouring_order(const ConflictSets& sets, ColouringOrder order);

/// Gives each vertex that is needed the first colour that none of its neighbours has yet, counted
/// from 1, in the given order; the others 0. `count` becomes the number of colours.
std::vector<uint32_t> colour_greedily(const ConflictSets& sets, const Permutation& order,
                                      uint32_t& count);

/// For each entry of `lines`, whether it is given by its vertex's colour: that is not 0 and no
/// other vertex of the line has it. Row s lists the vertices that have an entry in line s.
std::vector<uint8_t> entries_given(const Pattern& lines, const std::vector<uint32_t>& colour,
                                   uint32_t colours);

/// The most entries of a row.
uint64_t widest_row(const Pattern& pattern);

/// Rows and columns together, each side coloured in the given order; tries several ways of dividing
/// the entries among them. Never worse than one side alone in its order.
Colouring colour_both_sides(const Pattern& pattern, const Permutation& column_order,
                            const Permutation& row_order);

} // namespace sparsertc
