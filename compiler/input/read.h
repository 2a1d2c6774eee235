// The entry point of the input room: files, standard input or bytes -> matrices and dense tensors.
#pragma once

#include "compiler/input/bytes.h"
#include "compiler/input/matrix.h"
#include "compiler/input/triplets.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

enum class Format : uint8_t { smtx, matrix_market, npy, npz, safetensors };

/// "smtx", "mtx", "npy", "npz", "safetensors": the suffix without its dot.
std::string_view to_string(Format format);

struct ReadOptions {
  /// Which tensor of an .npz or .safetensors file; empty: the only candidate.
  std::string tensor;
  Duplicates duplicates = Duplicates::sum;
  /// Makes values for files without any (random_values.h). Files with values keep theirs.
  std::optional<uint64_t> random_values_seed;
  /// Refuse a matrix that has no values after all this.
  bool require_values = false;
  /// Let NaN and infinite values through.
  bool allow_nonfinite = false;
  /// Overrides what suffix or content say.
  std::optional<Format> format;
  /// The limit on file size, decompressed size and the size of one archive member, in bytes.
  uint64_t maximum_bytes = kDefaultMaximumBytes;
};

/// The format that the name's suffix says (after ".gz", in any case), or nothing.
std::optional<Format> format_of_name(std::string_view path);
/// The format that the (decompressed) content looks like, or nothing.
std::optional<Format> format_of_content(std::span<const uint8_t> bytes);

/// Reads a sparse matrix. "-" is standard input, whose format is recognised by content. UserError
/// with the place (file:line:column, or file and byte, counted after decompression) for everything
/// malformed.
Matrix read_matrix(const std::string& path, const ReadOptions& options = {});

/// The same from memory; gzip is recognised. `name` stands for the file in messages. Without
/// `format` (and options.format) the content decides.
Matrix read_matrix_from_bytes(std::span<const uint8_t> bytes, const std::string& name,
                              std::optional<Format> format, const ReadOptions& options = {});

/// A tensor of a file, as --list-tensors shows it.
struct TensorInfo {
  /// Empty for .npy.
  std::string name;
  /// As the file names it: "F32", "<f4".
  std::string dtype;
  std::vector<uint64_t> shape;
  /// Of its data, decompressed.
  uint64_t bytes = 0;
};

/// The tensors of an .npy, .npz or .safetensors file, in the file's order (safetensors: by name).
std::vector<TensorInfo> list_tensors(const std::string& path, const ReadOptions& options = {});
std::vector<TensorInfo> list_tensors_from_bytes(std::span<const uint8_t> bytes,
                                                const std::string& name,
                                                std::optional<Format> format,
                                                const ReadOptions& options = {});

/// A dense array of any number of dimensions.
struct DenseTensor {
  std::vector<uint64_t> shape;
  /// The element type in the file.
  StoredType stored = StoredType::none;
  /// Whether the file stored it in column-major order.
  bool fortran_order = false;
  /// Row-major, whatever the file's order.
  std::vector<double> values;
};

/// Reads a dense array from .npy, .npz, .safetensors or a (real) Matrix Market file, whose
/// coordinate form is filled up with zeros. NaN and infinity are let through. Complex values are
/// a UserError.
DenseTensor read_dense(const std::string& path, const ReadOptions& options = {});
DenseTensor read_dense_from_bytes(std::span<const uint8_t> bytes, const std::string& name,
                                  std::optional<Format> format, const ReadOptions& options = {});

/// Writes row-major values as .npy (version 1.0, C order, little-endian), rounded to `type`: f16,
/// f32, f64, or i64 for whole numbers. The format has no bf16: such values are rounded to bf16 and
/// written as f32. The file appears whole or not at all; "-" is standard output.
void write_npy(const std::string& path, std::span<const uint64_t> shape, StoredType type,
               std::span<const double> values);
/// The same of elements as they are in memory: i32, i64, f16, f32 or f64.
void write_npy_elements(const std::string& path, std::span<const uint64_t> shape, StoredType type,
                        std::span<const uint8_t> elements);
/// write_npy in memory.
std::vector<uint8_t> npy_bytes(std::span<const uint64_t> shape, StoredType type,
                               std::span<const double> values);

/// An array as write_npz writes it; see write_npy.
struct NamedArray {
  std::string name;
  std::vector<uint64_t> shape;
  StoredType type = StoredType::f64;
  std::vector<double> values;
};

/// Writes arrays as .npz, uncompressed, in this order; the same bytes for the same arrays.
void write_npz(const std::string& path, std::span<const NamedArray> arrays);

} // namespace sparsertc
