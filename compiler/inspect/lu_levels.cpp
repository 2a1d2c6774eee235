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

} // namespace

LuLevels factor_levels(const LuPattern& rows, const LuColumns& columns, LevelRule rule) {
  return kahn(rows.rows.rows, [&](uint32_t k, const auto& f) {
    const std::span<const uint32_t> lower = behind(columns.columns, columns.diagonal, k);
    if (lower.empty())
      return;
    const std::span<const uint32_t> upper = behind(rows.rows, rows.diagonal, k);
    for (const uint32_t j : upper)
      f(j);
    if (rule == LevelRule::right_looking)
      for (const uint32_t j : lower)
        f(j);
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
