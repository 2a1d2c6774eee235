// Maximum matchings of rows with columns: the structural rank, and where it is lacking.
#pragma once

#include "compiler/pattern/pattern.h"
#include "compiler/pattern/permutation.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

inline constexpr uint32_t kUnmatched = UINT32_MAX;

/// Pairs of a row and a column that have an entry; each row and each column is in one pair at most.
struct Matching {
  /// For each row its column, or kUnmatched.
  std::vector<uint32_t> column_of_row;
  /// For each column its row, or kUnmatched.
  std::vector<uint32_t> row_of_column;
  /// The number of pairs.
  uint32_t size = 0;
};

/// A matching of the largest possible size, which is the pattern's structural rank (Hopcroft and
/// Karp, "An n^5/2 algorithm for maximum matchings in bipartite graphs", 1973). Diagonal entries
/// are preferred: a pattern with a full diagonal is matched along it.
Matching maximum_matching(const Pattern& pattern);

/// The rows in the order that puts the matched entries on the diagonal; of a perfect matching of a
/// square pattern.
Permutation row_permutation(const Matching& matching);

/// The coarse decomposition of Dulmage and Mendelsohn ("Coverings of bipartite graphs", 1958); all
/// lists ascend. It does not depend on which maximum matching it is made from.
struct DulmageMendelsohn {
  /// Fewer rows than columns: these columns cannot all be matched, whatever the values.
  std::vector<uint32_t> underdetermined_rows;
  std::vector<uint32_t> underdetermined_columns;
  /// More rows than columns: these rows cannot all be matched.
  std::vector<uint32_t> overdetermined_rows;
  std::vector<uint32_t> overdetermined_columns;
};

DulmageMendelsohn dulmage_mendelsohn(const Pattern& pattern, const Matching& maximum);

} // namespace sparsertc
