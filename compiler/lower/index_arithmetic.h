// 32-bit arithmetic for numbers of threads, rows and columns, of writers that have a builder.
#pragma once

#include "ir/builder.h"

#include <cstdint>

namespace sparsertc {

class IndexArithmetic {
protected:
  using Reg = ir::Reg;

  explicit IndexArithmetic(ir::Builder& builder) : builder_(builder) {}

  Reg add(Reg a, ir::Operand b) { return builder_.add(ir::Scalar::i32, a, b); }
  /// Times 1, and through 1, is no operation.
  Reg mul(Reg a, int64_t b) {
    return b == 1 ? a : builder_.mul(ir::Scalar::i32, a, ir::Operand::integer(b));
  }
  Reg div(Reg a, uint32_t b) { return b == 1 ? a : with_integer(ir::Opcode::divu, a, b); }
  Reg rem(Reg a, uint32_t b) { return with_integer(ir::Opcode::remu, a, b); }
  Reg less(Reg a, ir::Operand b) {
    return builder_.compare(ir::Comparison::lt, ir::Scalar::i32, a, b);
  }
  Reg both(Reg a, Reg b) { return builder_.value(ir::Opcode::bit_and, ir::Scalar::pred, {a, b}); }
  Reg at_least(Reg a, int64_t b) { return with_integer(ir::Opcode::max, a, b); }
  Reg at_most(Reg a, int64_t b) { return with_integer(ir::Opcode::min, a, b); }
  Reg integer(int64_t value) {
    return builder_.constant(ir::Scalar::i32, ir::Operand::integer(value));
  }

  ir::Builder& builder_;

private:
  Reg with_integer(ir::Opcode opcode, Reg a, int64_t b) {
    return builder_.value(opcode, ir::Scalar::i32, {a, ir::Operand::integer(b)});
  }
};

} // namespace sparsertc
