// Arithmetic, comparisons, selections and addresses.
#include "compiler/emit/ptx_function.h"

namespace sparsertc {

using ir::Comparison;
using ir::Opcode;
using ir::Scalar;
using ir::Space;
using ir::Type;

/// add, sub, mul, min, max. `rounded`: floats take an explicit rounding, which also keeps the
/// assembler from contracting a product and a sum.
void PtxFunctionPrinter::arithmetic(const Op& op, std::string_view name, bool rounded) {
  const Scalar half = half_of_pair(op.type.element());
  if (half == Scalar::bf16 && context_.target.compute_capability < 90)
    return bf16_arithmetic(op);
  line({name, rounded && op.type.is_float() ? "rn." : "", suffix_of(op.type)}, reg(op.result),
       reg(op.operand[0]), value_operand(op, 1, op.type));
}

/// Before sm_90 bf16 knows only the fused multiply-add. One factor or the addend is chosen so that
/// there is one rounding, of the exact result, and zeros keep their signs:
///   a + b = fma(a, 1, b)     a - b = fma(b, -1, a)     a * b = fma(a, b, -0)
/// (a product that is a zero of either sign is not changed by adding -0, one that is not zero is
/// rounded as itself).
void PtxFunctionPrinter::bf16_arithmetic(const Op& op) {
  const bool pair = op.type.is_pair();
  const auto constant = [&](int64_t bits) {
    return constant_in_register(op.type, pair ? (bits << 16 | bits) : bits);
  };
  const PtxText a = reg(op.operand[0]);
  const PtxText b = value_operand(op, 1, op.type);
  const Mnemonic fma{"fma.rn.", suffix_of(op.type)};
  if (op.code == Opcode::add)
    line(fma, reg(op.result), a, constant(0x3F80), b);
  else if (op.code == Opcode::sub)
    line(fma, reg(op.result), b, constant(0xBF80), a);
  else
    line(fma, reg(op.result), a, b, constant(0x8000));
}

void PtxFunctionPrinter::bitwise(const Op& op, std::string_view name) {
  const std::string_view suffix =
      op.type == Type(Scalar::pred) ? "pred" : bits_of(class_of(op.type)).substr(1);
  if (op.code == Opcode::bit_not)
    line({name, suffix}, reg(op.result), reg(op.operand[0]));
  else
    line({name, suffix}, reg(op.result), reg(op.operand[0]), operand(op, 1, op.type));
}

void PtxFunctionPrinter::compare(const Op& op) {
  // Ordered for floats, but `ne` holds for NaN.
  constexpr std::string_view kWords[] = {"eq.", "ne.", "lt.", "le.", "gt.",
                                         "ge.", "lt.", "le.", "gt.", "ge."};
  const auto comparison = static_cast<Comparison>(op.detail);
  const bool is_unsigned = comparison >= Comparison::ltu;
  std::string_view word = kWords[op.detail];
  if (op.type.is_float() && comparison == Comparison::ne)
    word = "neu.";

  if (is_unsigned) {
    line({"setp.", word, op.type == Type(Scalar::i64) ? "u64" : "u32"}, reg(op.result),
         reg(op.operand[0]), unsigned_operand(op, 1, op.type));
  } else if (op.type == Type(Scalar::bf16) && context_.target.compute_capability < 90) {
    const PtxText a = scratch(PtxClass::f32);
    widen_bf16(a, reg(op.operand[0]));
    PtxText b = PtxText::f32(static_cast<uint32_t>(op.immediate) << 16);
    if (op.operand[1] != ir::kImmediate) {
      b = scratch(PtxClass::f32);
      widen_bf16(b, reg(op.operand[1]));
    }
    line({"setp.", word, "f32"}, reg(op.result), a, b);
  } else {
    line({"setp.", word, suffix_of(op.type)}, reg(op.result), reg(op.operand[0]),
         value_operand(op, 1, op.type));
  }
}

void PtxFunctionPrinter::select(const Op& op) {
  const PtxClass register_class = class_of(op.type);
  const std::string_view suffix = register_class == PtxClass::f32   ? ".f32"
                                  : register_class == PtxClass::f64 ? ".f64"
                                                                    : bits_of(register_class);
  line({"selp", suffix}, reg(op.result), reg(op.operand[1]), operand(op, 2, op.type),
       reg(op.operand[0]));
}

void PtxFunctionPrinter::bitcast(const Op& op) {
  line({"mov", bits_of(class_of(op.type))}, reg(op.result), reg(op.operand[0]));
}

/// pointer + bytes; shared pointers are 32 bits wide, so the 64-bit byte count is cut (its low half
/// is exact wherever the sum is an address of shared memory).
void PtxFunctionPrinter::pointer_offset(const Op& op) {
  if (class_of(op.type) == PtxClass::b64) {
    line({"add.s64"}, reg(op.result), reg(op.operand[0]), operand(op, 1, Scalar::i64));
    return;
  }
  PtxText bytes;
  if (op.operand[1] == ir::kImmediate) {
    bytes = literal(Scalar::i32, op.immediate);
  } else {
    bytes = scratch(PtxClass::b32);
    line({"cvt.u32.u64"}, bytes, reg(op.operand[1]));
  }
  line({"add.s32"}, reg(op.result), reg(op.operand[0]), bytes);
}

void PtxFunctionPrinter::pointer_index(const Op& op) {
  line({class_of(op.type) == PtxClass::b64 ? "mad.wide.s32" : "mad.lo.s32"}, reg(op.result),
       reg(op.operand[1]), operand(op, 2, Scalar::i32), reg(op.operand[0]));
}

} // namespace sparsertc
