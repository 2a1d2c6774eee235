// What every reader produces: a sparse matrix in compressed rows, values in float64, with the type
// they had in the file.
#pragma once

#include "compiler/pattern/pattern.h"

#include <complex>
#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

/// The element type a file stored; `none` for pattern-only files. Every integer, f16, bf16 and f32
/// value is exact in f64, and so are integers below 2^53 (larger ones are rounded to nearest even).
enum class StoredType : uint8_t { none, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64,
                                  c64, c128 };

/// A sparse matrix: pattern plus one value per entry, in the pattern's row-major order.
struct Matrix {
  Pattern pattern;
  /// nnz values; empty when the file had none (StoredType::none).
  std::vector<double> values;
  /// nnz imaginary parts for complex files, else empty.
  std::vector<double> imaginary;
  StoredType stored = StoredType::none;
  /// For messages and headers: the file (and tensor) this came from.
  std::string name;

  bool has_values() const { return !values.empty() || pattern.nnz() == 0; }
};

} // namespace sparsertc
