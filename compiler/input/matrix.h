// What every reader produces: a sparse matrix in compressed rows, values in float64, with the type
// they had in the file.
#pragma once

#include "compiler/pattern/pattern.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// The element type a file stored; `none` for pattern-only files. Every integer, f16, bf16 and f32
/// value is exact in f64, and so are integers below 2^53 (larger ones are rounded to nearest even).
enum class StoredType : uint8_t {
  none,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128
};

/// "f16", "i64", ...; "none".
std::string_view to_string(StoredType type);
/// Bytes of one element; 0 for `none`.
uint64_t size_of(StoredType type);

/// A sparse matrix: pattern plus one value per entry, in the pattern's row-major order.
struct Matrix {
  Pattern pattern;
  /// nnz values; empty when the file had none (StoredType::none).
  std::vector<double> values;
  /// nnz imaginary parts for complex files, else empty.
  std::vector<double> imaginary;
  /// `none` also where the values were made from a seed.
  StoredType stored = StoredType::none;
  /// For messages and headers: the file (and tensor) this came from.
  std::string name;
  /// The shape in the file where it had more than two dimensions and the trailing ones were
  /// flattened ([OC, IC, KH, KW] becomes OC x IC*KH*KW), else empty.
  std::vector<uint64_t> source_shape;
  /// What a user should be told about the reading: dimensions flattened, duplicates summed.
  std::vector<std::string> remarks;

  bool has_values() const { return !values.empty() || pattern.nnz() == 0; }
};

/// What is wrong with a matrix, or nothing: the pattern's faults, and arrays of the wrong length.
std::optional<std::string> find_fault(const Matrix& matrix);

} // namespace sparsertc
