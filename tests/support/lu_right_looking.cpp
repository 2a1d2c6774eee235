#include "tests/support/lu_right_looking.h"

#include "compiler/inspect/lu_levels.h"

#include <algorithm>

namespace sparsertc::test {

template <class T>
std::vector<T> factor_by_levels(const LuTables& t, const std::vector<lu::Wide<T>>& values,
                                uint32_t tail_columns) {
  std::vector<T> v = placed<T>(t, values);
  LuLevels levels = factor_levels(t, LevelRule::right_looking);
  const auto tail = std::stable_partition(levels.member.begin(), levels.member.end(),
                                          [&](uint32_t j) { return j < t.size - tail_columns; });
  std::sort(tail, levels.member.end());
  for (const uint32_t j : levels.member) {
    v[t.diagonal[j]] = lu::reciprocal(v[t.diagonal[j]]);
    for (uint64_t p = t.row_diagonal[j] + 1; p < t.row_offset[j + 1]; ++p) {
      const T factor = rounded_product(v[t.row_slot[p]], v[t.diagonal[j]]);
      uint64_t slot = t.row_slot[p];
      for (uint64_t q = t.diagonal[j] + 1; q < t.column_offset[j + 1]; ++q) {
        while (t.row_index[slot] != t.row_index[q])
          ++slot;
        v[slot] = fused(-v[q], factor, v[slot]);
      }
    }
  }
  return v;
}

#define SPARSERTC_INSTANTIATE(T)                                                                   \
  template std::vector<T> factor_by_levels(const LuTables&, const std::vector<lu::Wide<T>>&,       \
                                           uint32_t);
SPARSERTC_INSTANTIATE(float)
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

} // namespace sparsertc::test
