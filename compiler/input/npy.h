// The .npy format of NumPy (format versions 1.0 to 3.0), alone or as a member of an .npz archive.
#pragma once

#include "compiler/input/dense_array.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

struct NpyHeader {
  /// The element type in NumPy's notation: "<f4".
  std::string descr;
  /// The byte of the descr's text, for messages.
  uint64_t descr_at = 0;
  bool fortran_order = false;
  std::vector<uint64_t> shape;
  uint64_t shape_at = 0;
  /// Where the elements begin.
  uint64_t data_offset = 0;
};

NpyHeader parse_npy_header(std::span<const uint8_t> bytes, const std::string& name);

/// The array of numbers or booleans in an .npy file: element type known, size exactly as promised.
/// The result points into `bytes`.
DenseArray parse_npy(std::span<const uint8_t> bytes, const std::string& name);

/// The text of an array of one byte string or Unicode string, as SciPy stores a format's name.
std::string parse_npy_string(std::span<const uint8_t> bytes, const std::string& name);

} // namespace sparsertc
