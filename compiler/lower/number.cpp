#include "compiler/lower/number.h"

#include <algorithm>

namespace sparsertc {

using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

Reg Arithmetic::in_register(Number a) const {
  return a.is_known() ? builder_.constant(Scalar::i32, a.operand()) : a.reg();
}

Number Arithmetic::add(Number a, Number b) const {
  if (a.is_known() && b.is_known())
    return a.value() + b.value();
  if (a.is_known())
    std::swap(a, b);
  return b.is(0) ? a : Number(builder_.add(Scalar::i32, a.reg(), b.operand()));
}

Number Arithmetic::sub(Number a, Number b) const {
  if (a.is_known() && b.is_known())
    return a.value() - b.value();
  return b.is(0) ? a : Number(builder_.sub(Scalar::i32, in_register(a), b.operand()));
}

Number Arithmetic::mul(Number a, int64_t b) const {
  if (a.is_known())
    return a.value() * b;
  return b == 1 ? a : Number(builder_.mul(Scalar::i32, a.reg(), Operand::integer(b)));
}

Number Arithmetic::div(Number a, uint32_t b) const {
  if (a.is_known())
    return a.value() / b;
  return b == 1 ? a
                : Number(builder_.value(Opcode::divu, Scalar::i32, {a.reg(), Operand::integer(b)}));
}

Number Arithmetic::rem(Number a, uint32_t b) const {
  if (a.is_known())
    return a.value() % b;
  return b == 1 ? Number(0)
                : Number(builder_.value(Opcode::remu, Scalar::i32, {a.reg(), Operand::integer(b)}));
}

Number Arithmetic::min(Number a, Number b) const {
  if (a.is_known() && b.is_known())
    return std::min(a.value(), b.value());
  if (a.is_known())
    std::swap(a, b);
  return Number(builder_.value(Opcode::min, Scalar::i32, {a.reg(), b.operand()}));
}

} // namespace sparsertc
