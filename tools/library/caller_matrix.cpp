#include "tools/library/caller_matrix.h"

#include "runtime/plan/c_guard.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <set>

namespace sparsertc {
namespace {

/// Numbers of either width.
class Indices {
public:
  Indices(const void* numbers, uint32_t type) : numbers_(numbers), type_(type) {}
  int64_t operator[](int64_t i) const {
    return type_ == SPARSERTC_INDEX_I32 ? static_cast<const int32_t*>(numbers_)[i]
                                        : static_cast<const int64_t*>(numbers_)[i];
  }

private:
  const void* numbers_;
  uint32_t type_;
};

void check_dimension(const char* name, int64_t value) {
  if (value < 0 || static_cast<uint64_t>(value) > kMaximumDimension)
    throw UsageError(fmt::format("{} is {}, possible are 0 to {}", name, value, kMaximumDimension));
}

/// Row i of a matrix whose offsets have been checked.
void add_row(const Indices& offsets, const Indices& columns, int64_t row, Pattern& pattern) {
  int64_t before = -1;
  for (int64_t entry = offsets[row]; entry < offsets[row + 1]; ++entry) {
    const int64_t column = columns[entry];
    const auto refuse = [&](const char* what) {
      throw UsageError(fmt::format("row {}: column {} {}", row, column, what),
                       "columns of a row ascend, each at most once, from 0 to k - 1");
    };
    if (column < 0 || column >= pattern.columns)
      refuse("is out of range");
    if (column == before)
      refuse("comes twice");
    if (column < before)
      refuse("comes after a larger one");
    before = column;
    pattern.column_index.push_back(static_cast<uint32_t>(column));
  }
}

template <typename Real>
constexpr StoredType stored_type() {
  return sizeof(Real) == sizeof(float) ? StoredType::f32 : StoredType::f64;
}

template <typename Real>
void take_real(const Real* values, int64_t count, Matrix& matrix) {
  matrix.values.assign(values, values + count);
  matrix.stored = stored_type<Real>();
}

/// Pairs of real and imaginary part.
template <typename Real>
void take_complex(const Real* parts, int64_t count, Matrix& matrix) {
  for (int64_t i = 0; i < count; ++i) {
    matrix.values.push_back(parts[2 * i]);
    matrix.imaginary.push_back(parts[2 * i + 1]);
  }
  matrix.stored = stored_type<Real>();
}

} // namespace

Matrix to_matrix(const sparsertc_matrix& given, MatrixNumbers numbers) {
  check_dimension("m", given.m);
  check_dimension("k", given.k);
  if (given.nnz < 0 || given.nnz > std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format("nnz is {}, possible are 0 to {}", given.nnz,
                                 std::numeric_limits<uint32_t>::max()));
  if (given.index_type > SPARSERTC_INDEX_I64)
    throw UsageError(fmt::format("index_type is {}, which is none", given.index_type));
  const bool any = numbers == MatrixNumbers::real_or_complex_or_none;
  if (given.value_type > (any ? SPARSERTC_VALUE_C128 : SPARSERTC_VALUE_F64))
    throw UsageError(fmt::format("value_type is {}, which is none{}", given.value_type,
                                 any ? "" : " of a layer's"));
  check_not_null(given.row_offsets, "row_offsets");
  if (given.nnz > 0) {
    check_not_null(given.column_indices, "column_indices");
    if (!any)
      check_not_null(given.values, "values");
  }
  const Indices offsets(given.row_offsets, given.index_type);
  const Indices columns(given.column_indices, given.index_type);
  if (offsets[0] != 0)
    throw UsageError(fmt::format("row_offsets[0] is {}, expected 0", offsets[0]));
  for (int64_t row = 0; row < given.m; ++row)
    if (offsets[row + 1] < offsets[row])
      throw UsageError(fmt::format("row_offsets[{}] is {}, less than the {} before it", row + 1,
                                   offsets[row + 1], offsets[row]));
  if (offsets[given.m] != given.nnz)
    throw UsageError(
        fmt::format("row_offsets[{}] is {}, and nnz is {}", given.m, offsets[given.m], given.nnz));

  Matrix matrix;
  matrix.name = "the matrix in memory";
  Pattern& pattern = matrix.pattern;
  pattern.rows = static_cast<uint32_t>(given.m);
  pattern.columns = static_cast<uint32_t>(given.k);
  pattern.row_offset.reserve(static_cast<size_t>(given.m) + 1);
  pattern.column_index.reserve(static_cast<size_t>(given.nnz));
  for (int64_t row = 0; row < given.m; ++row) {
    add_row(offsets, columns, row, pattern);
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  if (any && given.values == nullptr)
    return matrix;
  switch (given.value_type) {
  case SPARSERTC_VALUE_F32:
    take_real(static_cast<const float*>(given.values), given.nnz, matrix);
    break;
  case SPARSERTC_VALUE_F64:
    take_real(static_cast<const double*>(given.values), given.nnz, matrix);
    break;
  case SPARSERTC_VALUE_C64:
    take_complex(static_cast<const float*>(given.values), given.nnz, matrix);
    break;
  default:
    take_complex(static_cast<const double*>(given.values), given.nnz, matrix);
  }
  return matrix;
}

std::vector<std::pair<std::string, std::optional<std::string>>> split_words(std::string_view text) {
  std::vector<std::pair<std::string, std::optional<std::string>>> words;
  std::set<std::string> seen;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty())
      continue;
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!seen.insert(name).second)
      throw UsageError(fmt::format("{}: given twice", name));
    words.emplace_back(name, equals == std::string::npos ? std::nullopt
                                                         : std::optional(word.substr(equals + 1)));
  }
  return words;
}

void hand_out(const std::vector<uint8_t>& bundle, sparsertc_compiled& compiled) {
  auto* bytes = new uint8_t[bundle.size()];
  std::memcpy(bytes, bundle.data(), bundle.size());
  compiled.bundle = bytes;
  compiled.bytes = bundle.size();
}

} // namespace sparsertc
