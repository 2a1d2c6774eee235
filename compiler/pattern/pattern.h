// A sparsity pattern in compressed sparse rows.
#pragma once

#include <cstdint>
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
};

} // namespace sparsertc
