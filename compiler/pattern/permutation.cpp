#include "compiler/pattern/permutation.h"

#include <numeric>

namespace sparsertc {

Permutation identity_permutation(uint32_t size) {
  Permutation p(size);
  std::iota(p.begin(), p.end(), 0u);
  return p;
}

bool is_permutation(const Permutation& p, uint32_t size) {
  if (p.size() != size)
    return false;
  std::vector<bool> seen(size, false);
  for (uint32_t old : p) {
    if (old >= size || seen[old])
      return false;
    seen[old] = true;
  }
  return true;
}

Permutation inverse(const Permutation& p) {
  Permutation result(p.size());
  for (uint32_t place = 0; place < p.size(); ++place)
    result[p[place]] = place;
  return result;
}

Permutation compose(const Permutation& first, const Permutation& second) {
  Permutation result(second.size());
  for (size_t place = 0; place < second.size(); ++place)
    result[place] = first[second[place]];
  return result;
}

Pattern transpose(const Pattern& pattern, std::vector<uint64_t>* source) {
  Pattern result;
  result.rows = pattern.columns;
  result.columns = pattern.rows;
  result.row_offset.assign(uint64_t{pattern.columns} + 1, 0);
  result.column_index.resize(pattern.nnz());
  if (source != nullptr)
    source->resize(pattern.nnz());

  for (uint32_t column : pattern.column_index)
    ++result.row_offset[uint64_t{column} + 1];
  std::partial_sum(result.row_offset.begin(), result.row_offset.end(), result.row_offset.begin());
  std::vector<uint64_t> next(result.row_offset.begin(), result.row_offset.end() - 1);
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint64_t k = pattern.row_offset[row]; k < pattern.row_offset[row + 1]; ++k) {
      const uint64_t to = next[pattern.column_index[k]]++;
      result.column_index[to] = row;
      if (source != nullptr)
        (*source)[to] = k;
    }
  return result;
}

Pattern permute(const Pattern& pattern, const Permutation& rows, const Permutation& columns,
                std::vector<uint64_t>* source) {
  Pattern result;
  result.rows = pattern.rows;
  result.columns = pattern.columns;
  result.row_offset.assign(uint64_t{pattern.rows} + 1, 0);
  result.column_index.resize(pattern.nnz());
  if (source != nullptr)
    source->resize(pattern.nnz());

  for (uint32_t row = 0; row < pattern.rows; ++row)
    result.row_offset[row + 1] = result.row_offset[row] + pattern.row_length(rows[row]);
  // Entries come column by column in the new order, so that rows need no sorting.
  std::vector<uint64_t> entry;
  const Pattern by_column = transpose(pattern, source != nullptr ? &entry : nullptr);
  const Permutation new_row = inverse(rows);
  std::vector<uint64_t> next(result.row_offset.begin(), result.row_offset.end() - 1);
  for (uint32_t column = 0; column < pattern.columns; ++column) {
    const uint32_t old = columns[column];
    for (uint64_t k = by_column.row_offset[old]; k < by_column.row_offset[old + 1]; ++k) {
      const uint64_t to = next[new_row[by_column.column_index[k]]]++;
      result.column_index[to] = column;
      if (source != nullptr)
        (*source)[to] = entry[k];
    }
  }
  return result;
}

Pattern symmetrized_without_diagonal(const Pattern& pattern) {
  const Pattern transposed = transpose(pattern);
  Pattern result;
  result.rows = pattern.rows;
  result.columns = pattern.columns;
  result.row_offset.assign(uint64_t{pattern.rows} + 1, 0);
  result.column_index.reserve(2 * pattern.nnz());
  for (uint32_t row = 0; row < pattern.rows; ++row) {
    const auto own = pattern.row(row);
    const auto other = transposed.row(row);
    size_t i = 0, j = 0;
    while (i < own.size() || j < other.size()) {
      uint32_t column;
      if (j == other.size() || (i < own.size() && own[i] <= other[j])) {
        column = own[i++];
        if (j < other.size() && other[j] == column)
          ++j;
      } else {
        column = other[j++];
      }
      if (column != row)
        result.column_index.push_back(column);
    }
    result.row_offset[row + 1] = result.column_index.size();
  }
  return result;
}

} // namespace sparsertc
