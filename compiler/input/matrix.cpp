#include "compiler/input/matrix.h"

#include <fmt/format.h>

namespace sparsertc {

std::string_view to_string(StoredType type) {
  switch (type) {
  case StoredType::none:
    return "none";
  case StoredType::i8:
    return "i8";
  case StoredType::u8:
    return "u8";
  case StoredType::i16:
    return "i16";
  case StoredType::u16:
    return "u16";
  case StoredType::i32:
    return "i32";
  case StoredType::u32:
    return "u32";
  case StoredType::i64:
    return "i64";
  case StoredType::u64:
    return "u64";
  case StoredType::f16:
    return "f16";
  case StoredType::bf16:
    return "bf16";
  case StoredType::f32:
    return "f32";
  case StoredType::f64:
    return "f64";
  case StoredType::c64:
    return "c64";
  case StoredType::c128:
    return "c128";
  }
  return "?";
}

uint64_t size_of(StoredType type) {
  switch (type) {
  case StoredType::none:
    return 0;
  case StoredType::i8:
  case StoredType::u8:
    return 1;
  case StoredType::i16:
  case StoredType::u16:
  case StoredType::f16:
  case StoredType::bf16:
    return 2;
  case StoredType::i32:
  case StoredType::u32:
  case StoredType::f32:
    return 4;
  case StoredType::i64:
  case StoredType::u64:
  case StoredType::f64:
  case StoredType::c64:
    return 8;
  case StoredType::c128:
    return 16;
  }
  return 0;
}

std::optional<std::string> find_fault(const Matrix& matrix) {
  if (auto fault = find_fault(matrix.pattern))
    return fault;
  const uint64_t nnz = matrix.pattern.nnz();
  if (!matrix.values.empty() && matrix.values.size() != nnz)
    return fmt::format("{} values for {} entries", matrix.values.size(), nnz);
  if (!matrix.imaginary.empty() && matrix.imaginary.size() != nnz)
    return fmt::format("{} imaginary parts for {} entries", matrix.imaginary.size(), nnz);
  if (!matrix.imaginary.empty() && matrix.values.empty())
    return "imaginary parts without values";
  return std::nullopt;
}

} // namespace sparsertc
