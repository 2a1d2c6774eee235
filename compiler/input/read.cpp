#include "compiler/input/read.h"

#include "compiler/input/random_values.h"
#include "compiler/input/readers.h"

#include "ir/error.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

namespace sparsertc {
namespace {

constexpr const char* kSuffixes = ".smtx, .mtx, .npy, .npz and .safetensors, each also with .gz";

std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Place file_place(const std::string& name) {
  return Place{name, 0, 0, std::nullopt};
}

std::string name_of(const std::string& path) {
  return path == "-" ? kStandardInputName : path;
}

/// What a path's suffix says; for standard input nothing, so that the content decides. Before the
/// file is opened nobody knows whether it exists, so an unknown suffix is reported only for files
/// that do: the caller reads first.
std::optional<Format> format_for_path(const std::string& path, const ReadOptions& options) {
  if (options.format || path == "-")
    return options.format;
  const std::optional<Format> format = format_of_name(path);
  if (!format)
    throw UserError(
        file_place(path), "the file's suffix says no known format",
        fmt::format("known suffixes are {}; from standard input the content decides", kSuffixes));
  return format;
}

Format decide(std::span<const uint8_t> bytes, const std::string& name, std::optional<Format> format,
              const ReadOptions& options) {
  if (options.format)
    return *options.format;
  if (!format)
    format = format_of_content(bytes);
  if (!format)
    throw UserError(file_place(name),
                    bytes.empty() ? "the input is empty" : "the content has no known format",
                    fmt::format("known formats are those with the suffixes {}", kSuffixes));
  return *format;
}

/// Calls `use` with the bytes, decompressed where they are gzip.
template <typename Use>
auto with_plain(std::span<const uint8_t> bytes, const std::string& name, const ReadOptions& options,
                Use&& use) {
  if (!is_gzip(bytes))
    return use(bytes);
  const std::vector<uint8_t> plain = decompress_gzip(bytes, name, options.maximum_bytes);
  return use(std::span<const uint8_t>(plain));
}

void check_finite(const Matrix& matrix) {
  const Pattern& pattern = matrix.pattern;
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint64_t i = pattern.row_offset[row]; i < pattern.row_offset[row + 1]; ++i) {
      const double parts[2] = {matrix.values[i],
                               matrix.imaginary.empty() ? 0.0 : matrix.imaginary[i]};
      for (const double part : parts)
        if (!std::isfinite(part))
          throw UserError(file_place(matrix.name),
                          fmt::format("the duplicates at row {}, column {} (counted from 0) add up "
                                      "to {}, expected a finite number",
                                      row, pattern.column_index[i], part),
                          "repair the matrix: weights must be finite");
    }
}

void complete(Matrix& matrix, const ReadOptions& options) {
  if (matrix.has_values()) {
    // Readers refuse non-finite values with their place; only sums can still be.
    if (!options.allow_nonfinite && !matrix.values.empty())
      check_finite(matrix);
    if (options.random_values_seed && matrix.pattern.nnz() > 0)
      matrix.remarks.push_back("the file has values: no random ones were made");
    return;
  }
  if (options.random_values_seed)
    matrix.values = random_values(matrix.pattern.nnz(), *options.random_values_seed);
  else if (options.require_values)
    throw UserError(file_place(matrix.name),
                    "the file has a pattern but no values, and values are needed here",
                    "--values=random:SEED makes some, the same for the same seed");
}

} // namespace

std::string_view to_string(Format format) {
  switch (format) {
  case Format::smtx:
    return "smtx";
  case Format::matrix_market:
    return "mtx";
  case Format::npy:
    return "npy";
  case Format::npz:
    return "npz";
  case Format::safetensors:
    return "safetensors";
  }
  return "?";
}

std::optional<Format> format_of_name(std::string_view path) {
  std::string name(path);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.ends_with(".gz"))
    name.resize(name.size() - 3);
  for (const Format format :
       {Format::smtx, Format::matrix_market, Format::npy, Format::npz, Format::safetensors})
    if (name.ends_with(fmt::format(".{}", to_string(format))))
      return format;
  return std::nullopt;
}

std::optional<Format> format_of_content(std::span<const uint8_t> bytes) {
  const std::string_view text = as_text(bytes);
  if (text.starts_with("\x93NUMPY"))
    return Format::npy;
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06"))
    return Format::npz;
  if (text.starts_with("%%"))
    return Format::matrix_market;
  // Eight bytes of length, whose upper ones are zero in any file of this world, then JSON.
  if (text.size() > 8 && text[6] == '\0' && text[7] == '\0' && text[8] == '{')
    return Format::safetensors;
  const std::string_view line = text.substr(0, text.find('\n'));
  const bool header = !line.empty() && line.find_first_not_of("0123456789, \t\r") == line.npos;
  if (header && line.find(',') != line.npos)
    return Format::smtx;
  return std::nullopt;
}

Matrix read_matrix_from_bytes(std::span<const uint8_t> compressed, const std::string& name,
                              std::optional<Format> format, const ReadOptions& options) {
  return with_plain(compressed, name, options, [&](std::span<const uint8_t> bytes) {
    Matrix matrix;
    const Format decided = decide(bytes, name, format, options);
    if (!options.tensor.empty() && decided != Format::npz && decided != Format::safetensors)
      throw UserError(
          file_place(name),
          fmt::format("the file holds one matrix, expected one with a tensor '{}'", options.tensor),
          "leave --tensor out: only .npz and .safetensors files have named tensors");
    switch (decided) {
    case Format::smtx:
      matrix = read_smtx(as_text(bytes), name, options);
      break;
    case Format::matrix_market:
      matrix = read_matrix_market(as_text(bytes), name, options);
      break;
    case Format::npy:
      matrix = read_npy(bytes, name, options);
      break;
    case Format::npz:
      matrix = read_npz(bytes, name, options);
      break;
    case Format::safetensors:
      matrix = read_safetensors(bytes, name, options);
      break;
    }
    complete(matrix, options);
    return matrix;
  });
}

std::vector<TensorInfo> list_tensors_from_bytes(std::span<const uint8_t> compressed,
                                                const std::string& name,
                                                std::optional<Format> format,
                                                const ReadOptions& options) {
  return with_plain(compressed, name, options, [&](std::span<const uint8_t> bytes) {
    switch (decide(bytes, name, format, options)) {
    case Format::npy:
      return std::vector<TensorInfo>{describe_npy(bytes, name)};
    case Format::npz:
      return list_npz(bytes, name, options);
    case Format::safetensors:
      return list_safetensors(bytes, name);
    case Format::smtx:
    case Format::matrix_market:
      break;
    }
    throw UserError(file_place(name), "the file holds one matrix and no list of tensors",
                    "tensors are listed for .npy, .npz and .safetensors");
  });
}

DenseTensor read_dense_from_bytes(std::span<const uint8_t> compressed, const std::string& name,
                                  std::optional<Format> format, const ReadOptions& options) {
  return with_plain(compressed, name, options, [&](std::span<const uint8_t> bytes) {
    switch (decide(bytes, name, format, options)) {
    case Format::matrix_market:
      return read_matrix_market_dense(as_text(bytes), name, options);
    case Format::npy:
      return read_npy_dense(bytes, name, options);
    case Format::npz:
      return read_npz_dense(bytes, name, options);
    case Format::safetensors:
      return read_safetensors_dense(bytes, name, options);
    case Format::smtx:
      break;
    }
    throw UserError(file_place(name), "expected a dense array, found a sparse pattern (.smtx)",
                    "dense arrays are read from .npy, .npz, .safetensors and .mtx");
  });
}

Matrix read_matrix(const std::string& path, const ReadOptions& options) {
  const std::vector<uint8_t> bytes = read_bytes(path, options.maximum_bytes);
  return read_matrix_from_bytes(bytes, name_of(path), format_for_path(path, options), options);
}

std::vector<TensorInfo> list_tensors(const std::string& path, const ReadOptions& options) {
  const std::vector<uint8_t> bytes = read_bytes(path, options.maximum_bytes);
  return list_tensors_from_bytes(bytes, name_of(path), format_for_path(path, options), options);
}

DenseTensor read_dense(const std::string& path, const ReadOptions& options) {
  const std::vector<uint8_t> bytes = read_bytes(path, options.maximum_bytes);
  return read_dense_from_bytes(bytes, name_of(path), format_for_path(path, options), options);
}

} // namespace sparsertc
