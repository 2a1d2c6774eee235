#include "compiler/inspect/lu_levels.h"

#include <algorithm>
#include <span>

namespace sparsertc {
namespace {

/// Kahn's algorithm in rounds: a round takes all vertices whose predecessors have been taken.
/// `for_each_successor(v, f)` calls f(w) for each vertex w that waits for v.
template <class ForEachSuccessor>
LuLevels kahn(uint32_t size, const ForEachSuccessor& for_each_successor) {
  std::vector<uint32_t> missing(size, 0); // predecessors that have not been taken
  for (uint32_t v = 0; v < size; ++v)
    for_each_successor(v, [&](uint32_t w) { ++missing[w]; });
  LuLevels levels;
  levels.member.reserve(size);
  for (uint32_t v = 0; v < size; ++v)
    if (missing[v] == 0)
      levels.member.push_back(v);
  for (uint64_t begin = 0; begin < levels.member.size();) {
    const uint64_t end = levels.member.size();
    // What becomes ready is found in any order; ascending order makes it the same each time.
    std::sort(levels.member.begin() + static_cast<ptrdiff_t>(begin), levels.member.end());
    levels.offset.push_back(end);
    for (; begin < end; ++begin)
      for_each_successor(levels.member[begin], [&](uint32_t w) {
        if (--missing[w] == 0)
          levels.member.push_back(w);
      });
  }
  return levels;
}

/// The entries of a compressed row (or column) behind its diagonal.
std::span<const uint32_t> behind(const Pattern& rows, const std::vector<uint64_t>& diagonal,
                                 uint32_t i) {
  const uint64_t first = diagonal[i] + 1;
  return {rows.column_index.data() + first, rows.row_offset[i + 1] - first};
}

/// The entries of a compressed row (or column) before its diagonal.
std::span<const uint32_t> before(const Pattern& rows, const std::vector<uint64_t>& diagonal,
                                 uint32_t i) {
  const uint64_t first = rows.row_offset[i];
  return {rows.column_index.data() + first, diagonal[i] - first};
}

/// `lower(k)`: the rows of column k of L, below the diagonal; `upper(k)`: the columns of row k of
/// U.
template <class Lower, class Upper>
LuLevels levels_of_columns(uint32_t size, LevelRule rule, const Lower& lower, const Upper& upper) {
  return kahn(size, [&](uint32_t k, const auto& f) {
    const std::span<const uint32_t> below = lower(k);
    if (below.empty())
      return;
    for (const uint32_t j : upper(k))
      f(j);
    if (rule == LevelRule::right_looking)
      for (const uint32_t j : below)
        f(j);
  });
}

} // namespace

LuLevels factor_levels(const LuPattern& rows, const LuColumns& columns, LevelRule rule) {
  return levels_of_columns(
      rows.rows.rows, rule,
      [&](uint32_t k) { return behind(columns.columns, columns.diagonal, k); },
      [&](uint32_t k) { return behind(rows.rows, rows.diagonal, k); });
}

LuLevels factor_levels(const LuTables& tables, LevelRule rule) {
  const auto behind_in = [](const std::vector<uint32_t>& index, uint64_t diagonal, uint64_t end) {
    return std::span(index).subspan(diagonal + 1, end - diagonal - 1);
  };
  return levels_of_columns(
      tables.size, rule,
      [&](uint32_t k) {
        return behind_in(tables.row_index, tables.diagonal[k], tables.column_offset[k + 1]);
      },
      [&](uint32_t k) {
        return behind_in(tables.column_index, tables.row_diagonal[k], tables.row_offset[k + 1]);
      });
}

LuLevels forward_levels(const LuColumns& columns) {
  return kahn(columns.columns.rows, [&](uint32_t k, const auto& f) {
    for (const uint32_t i : behind(columns.columns, columns.diagonal, k))
      f(i);
  });
}

LuLevels backward_levels(const LuColumns& columns) {
  return kahn(columns.columns.rows, [&](uint32_t k, const auto& f) {
    for (const uint32_t i : before(columns.columns, columns.diagonal, k))
      f(i);
  });
}

LuLevels transposed_forward_levels(const LuPattern& rows) {
  return kahn(rows.rows.rows, [&](uint32_t k, const auto& f) {
    for (const uint32_t j : behind(rows.rows, rows.diagonal, k))
      f(j);
  });
}

LuLevels transposed_backward_levels(const LuPattern& rows) {
  return kahn(rows.rows.rows, [&](uint32_t k, const auto& f) {
    for (const uint32_t j : before(rows.rows, rows.diagonal, k))
      f(j);
  });
}

} // namespace sparsertc
