#include "compiler/input/convert.h"

#include "ir/error.h"

namespace sparsertc {

double round_to(double value, StoredType type) {
  switch (type) {
  case StoredType::f16:
    return from_f16(to_f16(value));
  case StoredType::bf16:
    return from_bf16(to_bf16(value));
  case StoredType::f32:
    return from_f32(to_f32(value));
  case StoredType::f64:
    return value;
  default:
    throw InternalError("round_to: " + std::string(to_string(type)) +
                        " is no floating-point type to round to");
  }
}

} // namespace sparsertc
