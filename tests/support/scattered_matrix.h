// A small matrix with a fixed, irregular pattern, for tests of structure.
#pragma once

#include "compiler/input/matrix.h"

namespace sparsertc {

/// Entry (i, j) exists where (7 i + 13 j + i j) is a multiple of `period`; every value is a
/// different multiple of 1/8.
inline Matrix scattered_matrix(uint32_t rows, uint32_t columns, uint32_t period) {
  Matrix matrix;
  matrix.name = "scattered";
  matrix.stored = StoredType::f64;
  matrix.pattern.rows = rows;
  matrix.pattern.columns = columns;
  for (uint32_t i = 0; i < rows; ++i) {
    for (uint32_t j = 0; j < columns; ++j)
      if ((7 * i + 13 * j + i * j) % period == 0) {
        matrix.pattern.column_index.push_back(j);
        matrix.values.push_back(0.125 * static_cast<double>(1 + matrix.values.size()));
      }
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  return matrix;
}

} // namespace sparsertc
