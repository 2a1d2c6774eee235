// Whole numbers (i32) that are known at compile time or held in a register, and arithmetic that
// writes no operation where the result is known.
#pragma once

#include "ir/builder.h"

#include <cstdint>

namespace sparsertc {

class Number {
public:
  Number(int64_t value) : value_(value) {} // NOLINT: a number is a Number
  Number(ir::Reg reg) : reg_(reg) {}       // NOLINT: so is a register
  bool is_known() const { return !reg_.valid(); }
  int64_t value() const { return value_; }
  ir::Reg reg() const { return reg_; }
  bool is(int64_t value) const { return is_known() && value_ == value; }
  ir::Operand operand() const {
    return is_known() ? ir::Operand::integer(value_) : ir::Operand(reg_);
  }

private:
  int64_t value_ = 0;
  ir::Reg reg_;
};

/// Arithmetic on numbers that fit in 31 bits.
class Arithmetic {
public:
  explicit Arithmetic(ir::Builder& builder) : builder_(builder) {}

  ir::Reg in_register(Number a) const;
  Number add(Number a, Number b) const;
  Number sub(Number a, Number b) const;
  Number mul(Number a, int64_t b) const;
  /// Of numbers that are not negative, by positive ones.
  Number div(Number a, uint32_t b) const;
  Number rem(Number a, uint32_t b) const;
  Number min(Number a, Number b) const;

private:
  ir::Builder& builder_;
};

} // namespace sparsertc
