// A sparsity pattern in compressed sparse rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

/// Rows x columns with the column indices of each row, ascending and without duplicates.
/// Dimensions are below 2^31; offsets are 64-bit.
struct Pattern {
  uint32_t rows = 0;
  uint32_t columns = 0;
  /// rows + 1 offsets into `column_index`.
  std::vector<uint64_t> row_offset = {0};
  std::vector<uint32_t> column_index;

  uint64_t nnz() const { return column_index.size(); }
  uint64_t row_length(uint32_t row) const { return row_offset[row + 1] - row_offset[row]; }
  std::span<const uint32_t> row(uint32_t row) const {
    return {column_index.data() + row_offset[row], row_length(row)};
  }

  bool operator==(const Pattern&) const = default;
};

/// The largest number of rows or columns a pattern may have.
inline constexpr uint64_t kMaximumDimension = (uint64_t{1} << 31) - 1;

/// What is wrong with a pattern ("row 3: columns do not ascend"), or nothing. Readers promise
/// patterns without fault; tests and debug builds ask.
std::optional<std::string> find_fault(const Pattern& pattern);

/// SHA-256 (64 lower-case hexadecimal digits) of the pattern's canonical bytes: the text
/// "sparsertc pattern 1\n", then little-endian rows and columns (32 bits each), the number of
/// entries (64 bits), rows + 1 offsets (64 bits each) and the column indices (32 bits each).
std::string pattern_digest(const Pattern& pattern);

/// Figures about a pattern, for `inspect` and for choosing a strategy.
struct PatternStatistics {
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t nnz = 0;
  /// Fraction of positions without an entry, 0 to 1; 0 for a matrix without positions.
  double sparsity = 0;
  uint64_t empty_rows = 0;
  uint64_t empty_columns = 0;
  uint64_t minimum_row_length = 0;
  uint64_t maximum_row_length = 0;
  uint64_t maximum_column_length = 0;
  double mean_row_length = 0;
  /// Standard deviation of the row lengths over their mean; 0 when there are no entries.
  double row_length_variation = 0;
  /// The largest |row - column| over the entries.
  uint64_t bandwidth = 0;
  /// row_length_histogram[0] counts empty rows, [b] rows of 2^(b-1) to 2^b - 1 entries; the last
  /// element is not zero, except for a matrix without rows, whose histogram is empty.
  std::vector<uint64_t> row_length_histogram;
};

PatternStatistics statistics_of(const Pattern& pattern);

} // namespace sparsertc
