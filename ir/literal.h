// Numbers in .sir text, of every scalar type. A float is written in decimal only where that is
// exact and short, else as its bits, so that text and bits determine each other.
#pragma once

#include "ir/type.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsertc::ir {

void append_unsigned(std::string& text, uint64_t value);
void append_integer(std::string& text, int64_t value);

/// Appends the literal for `bits`: integers in decimal; pred as true or false; floats in decimal
/// where the significand has at most 10 bits and the value 10 binary places, else as 0f########
/// (f32), 0d################ (f64), 0h#### (f16 and bf16); pairs as 0x########.
void append_literal(std::string& text, Scalar scalar, int64_t bits);

struct Literal {
  int64_t bits = 0;  ///< as in Op::immediate: integers sign-extended, the rest zero-extended
  std::string error; ///< what was expected; empty if the token is a literal of the type
};
/// Reads one token. A decimal float must be exact in its type: rounding is never silent.
Literal parse_literal(std::string_view token, Scalar scalar);

} // namespace sparsertc::ir
