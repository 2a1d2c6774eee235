#include "tests/support/lu_right_looking.h"

#include "compiler/inspect/lu_levels.h"

#include <cmath>

namespace sparsertc::test {

template <class T>
std::vector<T> factor_by_levels(const LuTables& t, const std::vector<double>& values) {
  std::vector<T> v = placed<T>(t, values);
  const LuLevels levels = factor_levels(t, LevelRule::right_looking);
  for (const uint32_t j : levels.member) {
    v[t.diagonal[j]] = 1 / v[t.diagonal[j]];
    for (uint64_t p = t.row_diagonal[j] + 1; p < t.row_offset[j + 1]; ++p) {
      const T factor = v[t.row_slot[p]] * v[t.diagonal[j]];
      uint64_t slot = t.row_slot[p];
      for (uint64_t q = t.diagonal[j] + 1; q < t.column_offset[j + 1]; ++q) {
        while (t.row_index[slot] != t.row_index[q])
          ++slot;
        v[slot] = std::fma(-v[q], factor, v[slot]);
      }
    }
  }
  return v;
}

template std::vector<float> factor_by_levels(const LuTables&, const std::vector<double>&);
template std::vector<double> factor_by_levels(const LuTables&, const std::vector<double>&);

} // namespace sparsertc::test
