#include "compiler/pattern/pattern.h"

#include "ir/sha256.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

namespace sparsertc {

static_assert(
    std::endian::native == std::endian::little,
    "digests hash the bytes of arrays as they lie in memory, which must be little-endian");

std::optional<std::string> find_fault(const Pattern& pattern) {
  if (pattern.rows > kMaximumDimension || pattern.columns > kMaximumDimension)
    return fmt::format("{} x {} is too large", pattern.rows, pattern.columns);
  if (pattern.row_offset.size() != uint64_t{pattern.rows} + 1)
    return fmt::format("{} rows, but {} row offsets", pattern.rows, pattern.row_offset.size());
  if (pattern.row_offset.front() != 0)
    return fmt::format("the first row offset is {}, not 0", pattern.row_offset.front());
  if (pattern.row_offset.back() != pattern.nnz())
    return fmt::format("the last row offset is {}, but there are {} column indices",
                       pattern.row_offset.back(), pattern.nnz());
  for (uint32_t row = 0; row < pattern.rows; ++row)
    if (pattern.row_offset[row] > pattern.row_offset[row + 1])
      return fmt::format("row {}: the row offsets descend", row);
  for (uint32_t row = 0; row < pattern.rows; ++row) {
    const auto columns = pattern.row(row);
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i] >= pattern.columns)
        return fmt::format("row {}: column {} of {}", row, columns[i], pattern.columns);
      if (i > 0 && columns[i - 1] >= columns[i])
        return fmt::format("row {}: columns do not ascend", row);
    }
  }
  return std::nullopt;
}

std::string pattern_digest(const Pattern& pattern) {
  Sha256 hash;
  hash.add(std::string_view("sparsertc pattern 1\n"));
  const uint32_t dimensions[2] = {pattern.rows, pattern.columns};
  hash.add(dimensions, sizeof dimensions);
  const uint64_t nnz = pattern.nnz();
  hash.add(&nnz, sizeof nnz);
  hash.add(pattern.row_offset.data(), pattern.row_offset.size() * sizeof(uint64_t));
  hash.add(pattern.column_index.data(), pattern.column_index.size() * sizeof(uint32_t));
  return hash.hex();
}

PatternStatistics statistics_of(const Pattern& pattern) {
  PatternStatistics result;
  result.rows = pattern.rows;
  result.columns = pattern.columns;
  result.nnz = pattern.nnz();
  const double positions = static_cast<double>(pattern.rows) * pattern.columns;
  if (positions > 0)
    result.sparsity = 1.0 - static_cast<double>(result.nnz) / positions;

  std::vector<uint64_t> column_length(pattern.columns, 0);
  for (const uint32_t column : pattern.column_index)
    ++column_length[column];
  for (const uint64_t length : column_length) {
    result.empty_columns += length == 0;
    result.maximum_column_length = std::max(result.maximum_column_length, length);
  }
  if (pattern.rows == 0)
    return result;

  result.mean_row_length = static_cast<double>(result.nnz) / pattern.rows;
  result.minimum_row_length = pattern.row_length(0);
  double squares = 0;
  for (uint32_t row = 0; row < pattern.rows; ++row) {
    const uint64_t length = pattern.row_length(row);
    result.empty_rows += length == 0;
    result.minimum_row_length = std::min(result.minimum_row_length, length);
    result.maximum_row_length = std::max(result.maximum_row_length, length);
    const double deviation = static_cast<double>(length) - result.mean_row_length;
    squares += deviation * deviation;
    const size_t bucket = std::bit_width(length);
    if (result.row_length_histogram.size() <= bucket)
      result.row_length_histogram.resize(bucket + 1, 0);
    ++result.row_length_histogram[bucket];
    // Columns ascend, so a row's farthest entry is its first or its last.
    for (const uint64_t i : {uint64_t{0}, length - 1}) {
      if (length == 0)
        break;
      const uint32_t column = pattern.row(row)[i];
      result.bandwidth =
          std::max<uint64_t>(result.bandwidth, row > column ? row - column : column - row);
    }
  }
  if (result.nnz > 0)
    result.row_length_variation = std::sqrt(squares / pattern.rows) / result.mean_row_length;
  return result;
}

} // namespace sparsertc
