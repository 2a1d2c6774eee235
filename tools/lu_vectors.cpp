#include "tools/lu_vectors.h"

#include "compiler/input/read.h"
#include "ir/error.h"
#include "tools/session.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

namespace sparsertc {
namespace {

bool is_npy(const std::string& path) {
  return path.size() >= 4 && path.compare(path.size() - 4, 4, ".npy") == 0;
}

/// The one-dimensional array of an .npy file, or nothing.
std::optional<LuVectors> read_vector(const std::string& path, uint32_t rows) {
  if (format_of_name(path) != Format::npy)
    return {};
  const std::vector<TensorInfo> tensors = list_tensors(path);
  if (tensors.size() != 1 || tensors[0].shape.size() != 1)
    return {};
  LuVectors b;
  b.count = 1;
  b.real = read_dense(path).values;
  if (b.real.size() != rows)
    throw UserError(Place{path, 0, 0, {}},
                    fmt::format("b has {} numbers, expected {}", b.real.size(), rows));
  for (size_t i = 0; i < b.real.size(); ++i)
    if (!std::isfinite(b.real[i]))
      throw UserError(
          Place{path, 0, 0, {}},
          fmt::format("the number {} (counted from 0) is {}, expected a finite one", i, b.real[i]));
  return b;
}

} // namespace

LuVectors read_vectors(const std::string& path, uint32_t rows) {
  ReadOptions options;
  options.require_values = true;
  if (std::optional<LuVectors> vector = read_vector(path, rows))
    return std::move(*vector);
  const Matrix matrix = read_matrix(path, options);
  const Pattern& pattern = matrix.pattern;
  // One row is a vector that lies.
  const bool lies = pattern.rows == 1 && pattern.columns == rows && rows != 1;
  if (!lies && pattern.rows != rows)
    throw UserError(Place{path, 0, 0, {}},
                    fmt::format("b has {} rows and {} columns, expected {} rows", pattern.rows,
                                pattern.columns, rows));
  LuVectors b;
  b.count = lies ? 1 : pattern.columns;
  b.real.assign(b.count * rows, 0);
  if (!matrix.imaginary.empty())
    b.imaginary.assign(b.count * rows, 0);
  for (uint32_t i = 0; i < pattern.rows; ++i)
    for (uint64_t p = pattern.row_offset[i]; p < pattern.row_offset[i + 1]; ++p) {
      const uint64_t column = pattern.column_index[p];
      const uint64_t place = lies ? column : column * rows + i;
      b.real[place] = matrix.values[p];
      if (!matrix.imaginary.empty())
        b.imaginary[place] = matrix.imaginary[p];
    }
  return b;
}

void write_vectors(const std::string& path, const LuVectors& x, uint32_t rows) {
  if (is_npy(path)) {
    if (!x.imaginary.empty())
      throw UserError(Place{path, 0, 0, {}},
                      "the solution is complex, which .npy is not written as", "write it as .mtx");
    const uint64_t shape[] = {rows, x.count};
    std::vector<double> row_major(x.real.size());
    for (uint64_t i = 0; i < rows; ++i)
      for (uint64_t c = 0; c < x.count; ++c)
        row_major[i * x.count + c] = x.real[c * rows + i];
    write_npy(path, shape, StoredType::f64, row_major);
    return;
  }
  std::string text = fmt::format("%%MatrixMarket matrix array {} general\n{} {}\n",
                                 x.imaginary.empty() ? "real" : "complex", rows, x.count);
  for (size_t i = 0; i < x.real.size(); ++i) {
    if (x.imaginary.empty())
      fmt::format_to(std::back_inserter(text), "{}\n", x.real[i]);
    else
      fmt::format_to(std::back_inserter(text), "{} {}\n", x.real[i], x.imaginary[i]);
  }
  write_text(path, text);
}

} // namespace sparsertc
