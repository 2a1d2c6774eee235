#include "compiler/input/dense_array.h"

#include "compiler/input/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sparsertc {
namespace {

static_assert(std::endian::native == std::endian::little,
              "little-endian files are read as they lie in memory");

template <typename T>
T load(const uint8_t* from, bool big_endian) {
  T value;
  std::memcpy(&value, from, sizeof value);
  if (big_endian) {
    if constexpr (sizeof(T) == 2)
      value = static_cast<T>(__builtin_bswap16(static_cast<uint16_t>(value)));
    else if constexpr (sizeof(T) == 4)
      value = static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(value)));
    else if constexpr (sizeof(T) == 8)
      value = static_cast<T>(__builtin_bswap64(static_cast<uint64_t>(value)));
  }
  return value;
}

/// Calls `use` with a function from the element's index to its value, one instance for each type,
/// so that loops over elements have no switch inside.
template <typename Use>
auto with_loader(const DenseArray& a, Use&& use) {
  const uint8_t* const data = a.bytes.data();
  const bool swap = a.big_endian;
  switch (a.type) {
  case StoredType::i8:
    return use([=](uint64_t i) { return static_cast<double>(load<int8_t>(data + i, swap)); });
  case StoredType::u8:
    return use([=](uint64_t i) { return static_cast<double>(data[i]); });
  case StoredType::i16:
    return use([=](uint64_t i) { return static_cast<double>(load<int16_t>(data + 2 * i, swap)); });
  case StoredType::u16:
    return use([=](uint64_t i) { return static_cast<double>(load<uint16_t>(data + 2 * i, swap)); });
  case StoredType::i32:
    return use([=](uint64_t i) { return static_cast<double>(load<int32_t>(data + 4 * i, swap)); });
  case StoredType::u32:
    return use([=](uint64_t i) { return static_cast<double>(load<uint32_t>(data + 4 * i, swap)); });
  case StoredType::i64:
    return use([=](uint64_t i) { return static_cast<double>(load<int64_t>(data + 8 * i, swap)); });
  case StoredType::u64:
    return use([=](uint64_t i) { return static_cast<double>(load<uint64_t>(data + 8 * i, swap)); });
  case StoredType::f16:
    return use([=](uint64_t i) { return from_f16(load<uint16_t>(data + 2 * i, swap)); });
  case StoredType::bf16:
    return use([=](uint64_t i) { return from_bf16(load<uint16_t>(data + 2 * i, swap)); });
  case StoredType::f32:
    return use([=](uint64_t i) { return from_f32(load<uint32_t>(data + 4 * i, swap)); });
  case StoredType::f64:
    return use(
        [=](uint64_t i) { return std::bit_cast<double>(load<uint64_t>(data + 8 * i, swap)); });
  case StoredType::none:
  case StoredType::c64:
  case StoredType::c128:
    break;
  }
  throw InternalError(fmt::format("dense arrays of {} are not read", to_string(a.type)));
}

/// Calls `visit(position)` with the place in the file's order of each element, in row-major order.
template <typename Visit>
void for_each_row_major(const DenseArray& a, Visit&& visit) {
  const uint64_t count = a.elements();
  if (!a.fortran_order || a.shape.size() < 2) {
    for (uint64_t i = 0; i < count; ++i)
      visit(i);
    return;
  }
  std::vector<uint64_t> stride(a.shape.size(), 1);
  for (size_t d = 1; d < a.shape.size(); ++d)
    stride[d] = stride[d - 1] * a.shape[d - 1];
  std::vector<uint64_t> index(a.shape.size(), 0);
  uint64_t position = 0;
  for (uint64_t i = 0; i < count; ++i) {
    visit(position);
    for (size_t d = a.shape.size(); d-- > 0;) {
      position += stride[d];
      if (++index[d] < a.shape[d])
        break;
      position -= stride[d] * a.shape[d];
      index[d] = 0;
    }
  }
}

void check_booleans(const DenseArray& a) {
  if (!a.boolean)
    return;
  for (uint64_t i = 0; i < a.bytes.size(); ++i)
    if (a.bytes[i] > 1)
      throw UserError(a.place_of(i),
                      fmt::format("expected a boolean (0 or 1), found {}", a.bytes[i]));
}

} // namespace

double DenseArray::element(uint64_t i) const {
  return with_loader(*this, [&](auto&& at) { return at(i); });
}

int64_t DenseArray::integer(uint64_t i) const {
  switch (type) {
  case StoredType::i64:
    return load<int64_t>(bytes.data() + 8 * i, big_endian);
  case StoredType::u64: {
    const uint64_t value = load<uint64_t>(bytes.data() + 8 * i, big_endian);
    return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
  }
  default:
    return static_cast<int64_t>(element(i));
  }
}

Place DenseArray::place_of(uint64_t i) const {
  return Place::binary(name, byte_offset + i * size_of(type));
}

std::optional<uint64_t> bytes_of(std::span<const uint64_t> shape, StoredType type) {
  // A zero anywhere makes the array empty, however large the others are.
  if (std::find(shape.begin(), shape.end(), uint64_t{0}) != shape.end())
    return 0;
  uint64_t total = size_of(type);
  for (const uint64_t dimension : shape)
    if (__builtin_mul_overflow(total, dimension, &total))
      return std::nullopt;
  return total;
}

std::string describe_shape(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Matrix sparse_from_dense(const DenseArray& array, const ReadOptions& options) {
  if (array.shape.size() < 2)
    throw UserError(
        Place::binary(array.name, array.byte_offset),
        fmt::format("expected a matrix, found an array of shape {}", describe_shape(array.shape)),
        "reshape it to two dimensions, [rows, columns]");
  const uint64_t rows = array.shape[0];
  uint64_t columns = 1;
  for (size_t d = 1; d < array.shape.size(); ++d)
    if (__builtin_mul_overflow(columns, array.shape[d], &columns))
      columns = std::numeric_limits<uint64_t>::max();
  const uint64_t file_bytes = array.byte_offset + array.bytes.size();
  const Place place = Place::binary(array.name, array.byte_offset);
  check_dimension(rows, "rows", file_bytes, place);
  check_dimension(columns, "columns", file_bytes, place);
  check_booleans(array);

  Matrix matrix;
  matrix.name = array.name;
  matrix.stored = array.type;
  Pattern& pattern = matrix.pattern;
  pattern.rows = static_cast<uint32_t>(rows);
  pattern.columns = static_cast<uint32_t>(columns);
  pattern.row_offset.assign(rows + 1, 0);
  if (array.shape.size() > 2) {
    matrix.source_shape = array.shape;
    matrix.remarks.push_back(fmt::format("shape {} is read as {} x {}: trailing dimensions are "
                                         "flattened",
                                         describe_shape(array.shape), rows, columns));
  }
  if (array.elements() == 0)
    return matrix;

  with_loader(array, [&](auto&& at) {
    uint64_t row = 0;
    uint64_t column = 0;
    for_each_row_major(array, [&](uint64_t position) {
      const double value = at(position);
      if (value != 0) {
        if (!std::isfinite(value) && !options.allow_nonfinite)
          throw UserError(array.place_of(position),
                          fmt::format("the value at row {}, column {} (counted from 0) is {}, "
                                      "expected a finite number",
                                      row, column, value),
                          "repair the weights: they must be finite");
        pattern.column_index.push_back(static_cast<uint32_t>(column));
        matrix.values.push_back(value);
      }
      if (++column == columns) {
        column = 0;
        pattern.row_offset[++row] = pattern.column_index.size();
      }
    });
  });
  return matrix;
}

DenseTensor tensor_from_dense(const DenseArray& array) {
  check_booleans(array);
  DenseTensor tensor;
  tensor.shape = array.shape;
  tensor.stored = array.type;
  tensor.fortran_order = array.fortran_order;
  tensor.values.reserve(array.elements());
  with_loader(array, [&](auto&& at) {
    for_each_row_major(array, [&](uint64_t position) { tensor.values.push_back(at(position)); });
  });
  return tensor;
}

} // namespace sparsertc
