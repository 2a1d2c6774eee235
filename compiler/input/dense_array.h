// Dense arrays as raw bytes in a file: element types, orders, and the way to a sparse matrix.
#pragma once

#include "compiler/input/read.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

/// A dense array lying in a file's bytes: prod(shape) elements, without gaps.
struct DenseArray {
  std::vector<uint64_t> shape;
  StoredType type = StoredType::none;
  bool big_endian = false;
  /// Booleans are u8 whose values must be 0 or 1.
  bool boolean = false;
  /// Column-major: the first index runs fastest.
  bool fortran_order = false;
  std::span<const uint8_t> bytes;
  /// For messages: the file (and member), and the offset of `bytes` in it.
  std::string name;
  uint64_t byte_offset = 0;

  uint64_t elements() const { return bytes.size() / size_of(type); }
  /// Element `i` in the order of the file, exact or (64-bit integers) to nearest even.
  double element(uint64_t i) const;
  /// Element `i` as an integer; the type must be one. Values above INT64_MAX come as INT64_MAX.
  int64_t integer(uint64_t i) const;
  Place place_of(uint64_t i) const;
};

/// The product of the dimensions and the element size, or nothing when it passes 64 bits.
std::optional<uint64_t> bytes_of(std::span<const uint64_t> shape, StoredType type);

/// "[64, 3, 3, 3]".
std::string describe_shape(std::span<const uint64_t> shape);

/// The non-zero elements as a sparse matrix; trailing dimensions are flattened into columns, with a
/// remark. -0.0 is a zero; NaN is not. UserError for fewer than two dimensions, dimensions too
/// large, and non-finite elements unless options allow them.
Matrix sparse_from_dense(const DenseArray& array, const ReadOptions& options);

/// All elements in row-major order.
DenseTensor tensor_from_dense(const DenseArray& array);

} // namespace sparsertc
