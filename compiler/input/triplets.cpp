#include "compiler/input/triplets.h"

#include "ir/error.h"

#include <algorithm>

#include <fmt/format.h>

namespace sparsertc {
namespace {

/// Indices of the entries in the order of `key`, a stable counting sort of `order`.
std::vector<uint64_t> sort_by(const std::vector<uint32_t>& key, uint32_t keys,
                              const std::vector<uint64_t>& order) {
  std::vector<uint64_t> next(uint64_t{keys} + 1, 0);
  for (const uint32_t k : key)
    ++next[k + 1];
  for (uint32_t k = 0; k < keys; ++k)
    next[k + 1] += next[k];
  std::vector<uint64_t> sorted(order.size());
  for (const uint64_t entry : order)
    sorted[next[key[entry]]++] = entry;
  return sorted;
}

/// Row-major order of the entries; empty when they already are in it.
std::vector<uint64_t> row_major_order(const Triplets& t) {
  bool row_major = true;
  bool column_major = true;
  for (size_t i = 1; i < t.row.size(); ++i) {
    row_major = row_major && (t.row[i - 1] < t.row[i] ||
                              (t.row[i - 1] == t.row[i] && t.column[i - 1] <= t.column[i]));
    column_major = column_major && t.column[i - 1] <= t.column[i];
  }
  if (row_major)
    return {};
  std::vector<uint64_t> order(t.row.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  if (!column_major)
    order = sort_by(t.column, t.columns, order);
  return sort_by(t.row, t.rows, order);
}

} // namespace

Matrix compress(Triplets&& t, Duplicates duplicates,
                const std::function<void(uint64_t, uint64_t)>& on_duplicate) {
  const std::vector<uint64_t> order = row_major_order(t);
  const uint64_t count = t.row.size();
  const auto entry_at = [&](uint64_t i) { return order.empty() ? i : order[i]; };
  const bool has_values = !t.value.empty();
  const bool has_imaginary = !t.imaginary.empty();

  Matrix matrix;
  Pattern& pattern = matrix.pattern;
  pattern.rows = t.rows;
  pattern.columns = t.columns;
  pattern.row_offset.assign(uint64_t{t.rows} + 1, 0);
  pattern.column_index.reserve(count);
  matrix.values.reserve(t.value.size());
  matrix.imaginary.reserve(t.imaginary.size());
  uint64_t merged = 0;
  uint64_t previous = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t entry = entry_at(i);
    if (i > 0 && t.row[entry] == t.row[previous] && t.column[entry] == t.column[previous]) {
      if (duplicates == Duplicates::refuse)
        on_duplicate(previous, entry);
      if (has_values)
        matrix.values.back() += t.value[entry];
      if (has_imaginary)
        matrix.imaginary.back() += t.imaginary[entry];
      ++merged;
    } else {
      pattern.column_index.push_back(t.column[entry]);
      if (has_values)
        matrix.values.push_back(t.value[entry]);
      if (has_imaginary)
        matrix.imaginary.push_back(t.imaginary[entry]);
      ++pattern.row_offset[t.row[entry] + 1];
    }
    previous = entry;
  }
  for (uint32_t row = 0; row < t.rows; ++row)
    pattern.row_offset[row + 1] += pattern.row_offset[row];
  if (merged > 0)
    matrix.remarks.push_back(
        fmt::format("{} duplicate entries were {}", merged,
                    has_values ? "added to the first of their position" : "taken as one"));
  return matrix;
}

void check_dimension(uint64_t dimension, const char* what, uint64_t file_bytes,
                     const Place& place) {
  if (dimension > kMaximumDimension)
    throw UserError(place, fmt::format("{} {}, but at most {} are possible (31 bits)", dimension,
                                       what, kMaximumDimension));
  constexpr uint64_t kAlwaysAllowed = uint64_t{1} << 20;
  if (dimension > std::max(kAlwaysAllowed, file_bytes))
    throw UserError(
        place,
        fmt::format("{} {} are promised, but there are only {} bytes", dimension, what, file_bytes),
        fmt::format("remove empty {}: more than {} need at least a byte each", what,
                    kAlwaysAllowed));
}

} // namespace sparsertc
