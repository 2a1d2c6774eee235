// Maximum product matching: which entries should be pivots, and how to scale rows and columns so
// that no entry is larger than they are.
#pragma once

#include "compiler/pattern/matching.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sparsertc {

/// A matching with the scaling that belongs to it: |row_scale[i] * a_ij * column_scale[j]| is 1 for
/// matched entries and at most 1 for all others, up to rounding. (Factors stay within exp(+-700):
/// where magnitudes would ask for more, scaled values may be others.)
struct ScaledMatching {
  Matching matching;
  /// Positive factors; all 1 where the matching is not perfect.
  std::vector<double> row_scale;
  std::vector<double> column_scale;
  /// Steps of Dijkstra's algorithm that were needed beyond the cheap assignment: columns taken.
  uint64_t search_steps = 0;

  bool is_perfect() const {
    return matching.size == matching.column_of_row.size() &&
           matching.size == matching.row_of_column.size();
  }
};

/// Among the perfect matchings of a square pattern one with the largest product of magnitudes,
/// after Duff and Koster, "On algorithms for permuting large entries to the diagonal of a sparse
/// matrix" (SIAM J. Matrix Anal. Appl. 22, 2001): shortest augmenting paths in the logarithms, with
/// dual variables that become the scaling. `magnitudes` holds |a| for each entry of the pattern,
/// finite; zeros count as no entry. Where no perfect matching exists, `matching` is a maximum one
/// of the non-zero entries. At most (rows) searches, each O(entries * log(rows)).
ScaledMatching maximum_product_matching(const Pattern& square, std::span<const double> magnitudes);

/// Whether every diagonal entry is at least a tenth of the largest magnitude in its row and of the
/// largest in its column: the rule by which `--matching=auto` leaves rows where they are.
bool has_strong_diagonal(const Pattern& square, std::span<const double> magnitudes);

} // namespace sparsertc
