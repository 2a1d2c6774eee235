// Which registers an operation reads and writes, from the table's forms. Everything that walks over
// code (printer, verifier, passes, emitters) may use these instead of knowing each form.
#pragma once

#include "ir/module.h"

#include <cstdint>
#include <span>

namespace sparsertc::ir {

constexpr uint32_t low_half(int64_t immediate) {
  return static_cast<uint32_t>(static_cast<uint64_t>(immediate));
}
constexpr uint32_t high_half(int64_t immediate) {
  return static_cast<uint32_t>(static_cast<uint64_t>(immediate) >> 32);
}
constexpr int64_t two_halves(uint32_t low, uint32_t high) {
  return static_cast<int64_t>((static_cast<uint64_t>(high) << 32) | low);
}

/// Registers of the tuples of a matrix-multiply fragment, a thread's share. c and d are 4 x f32.
struct FragmentShape {
  Scalar input; ///< f16x2, bf16x2, or f32 for tf32 (the low 13 bits do not count)
  uint32_t a;
  uint32_t b;
  bool sparse; ///< for `mma_sparse`: a is 2:4 (tf32: 1:2) packed
};
constexpr uint32_t kFragmentResults = 4;
FragmentShape shape_of(Fragment fragment);

/// Type of the result by the table: Type{} where the operation has none. For `load` and `atomic` it
/// is the pointer's element, for `mma` f32.
Type result_type(const Op& op);
/// Consecutive registers that the operation writes, from Op::result on; 0 where it writes none.
uint32_t result_count(const Op& op);

/// The lists behind call, switch and launch; empty for other operations. The pool indices must be
/// valid (the verifier sees to that).
std::span<const uint32_t> callees(const Function& function, const Op& op);
std::span<const uint32_t> arguments(const Function& function, const Op& op);

/// Calls `visit(Reg first, uint32_t count)` for each register or tuple that the operation reads.
template <class Visit>
void visit_reads(const Function& function, const Op& op, Visit&& visit) {
  const auto slot = [&](uint32_t operand, uint32_t count = 1) {
    if (operand != kNoOperand && operand != kImmediate)
      visit(Reg{operand}, count);
  };
  switch (info(op.code).form) {
  case Form::value:
  case Form::value_none:
  case Form::atomic:
  case Form::copy_async:
  case Form::copy:
  case Form::load:
    for (uint32_t operand : op.operand)
      slot(operand);
    break;
  case Form::alloc:
  case Form::barrier:
  case Form::for_loop:
  case Form::while_end:
  case Form::if_begin:
    slot(op.operand[0]);
    break;
  case Form::store:
    slot(op.operand[0]);
    slot(op.operand[1], op.width);
    break;
  case Form::mma: {
    const FragmentShape shape = shape_of(static_cast<Fragment>(op.detail));
    slot(op.operand[0], shape.a);
    slot(op.operand[1], shape.b);
    slot(op.operand[2], kFragmentResults);
    if (op.code == Opcode::mma_sparse)
      slot(low_half(op.immediate));
    break;
  }
  case Form::switch_call:
    slot(op.operand[0]);
    for (uint32_t argument : arguments(function, op))
      slot(argument);
    break;
  case Form::launch:
    for (uint32_t i = 0; i < 3; ++i)
      slot(function.pool[op.operand[1] + i]);
    for (uint32_t argument : arguments(function, op))
      slot(argument);
    break;
  case Form::call:
    for (uint32_t argument : arguments(function, op))
      slot(argument);
    break;
  case Form::symbol:
  case Form::plain:
  case Form::plain_number:
  case Form::open:
  case Form::else_mark:
  case Form::close:
    break;
  }
}

} // namespace sparsertc::ir
