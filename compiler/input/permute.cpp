#include "compiler/input/permute.h"

namespace sparsertc {
namespace {

std::vector<double> gathered(const std::vector<double>& values,
                             const std::vector<uint64_t>& source) {
  std::vector<double> result;
  if (values.empty())
    return result;
  result.reserve(source.size());
  for (uint64_t k : source)
    result.push_back(values[k]);
  return result;
}

Matrix reordered(const Matrix& matrix, Pattern pattern, const std::vector<uint64_t>& source) {
  Matrix result;
  result.pattern = std::move(pattern);
  result.values = gathered(matrix.values, source);
  result.imaginary = gathered(matrix.imaginary, source);
  result.stored = matrix.stored;
  result.name = matrix.name;
  return result;
}

} // namespace

Matrix transpose(const Matrix& matrix) {
  std::vector<uint64_t> source;
  Pattern pattern = transpose(matrix.pattern, &source);
  return reordered(matrix, std::move(pattern), source);
}

Matrix permute(const Matrix& matrix, const Permutation& rows, const Permutation& columns) {
  std::vector<uint64_t> source;
  Pattern pattern = permute(matrix.pattern, rows, columns, &source);
  return reordered(matrix, std::move(pattern), source);
}

} // namespace sparsertc
