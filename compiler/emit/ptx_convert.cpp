// Conversions between number types, each with one rounding.
#include "compiler/emit/ptx_function.h"

#include <fmt/format.h>

namespace sparsertc {

using ir::Conversion;
using ir::Scalar;
using ir::Type;

void PtxFunctionPrinter::convert(const Op& op) {
  const Scalar from = function_->register_type[op.operand[0]].element();
  const Scalar to = op.type.element();
  const auto conversion = static_cast<Conversion>(op.detail);
  const bool from_integer = from == Scalar::i32 || from == Scalar::i64;
  if (op.type.is_integer() && !from_integer)
    return convert_float_to_integer(op, from);
  if (from == Scalar::bf16) {
    if (to == Scalar::f32)
      return widen_bf16(reg(op.result), reg(op.operand[0]));
    const PtxText wide = scratch(PtxClass::f32);
    widen_bf16(wide, reg(op.operand[0]));
    return line({"cvt.f64.f32"}, reg(op.result), wide);
  }

  struct Row {
    Scalar from, to;
    std::string_view exact, nearest;
  };
  // PTX wants a rounding from integer to float even where there is nothing to round.
  constexpr Row kRows[] = {
      {Scalar::f16, Scalar::f32, "cvt.f32.f16", {}},
      {Scalar::f16, Scalar::f64, "cvt.f64.f16", {}},
      {Scalar::f32, Scalar::f64, "cvt.f64.f32", {}},
      {Scalar::f64, Scalar::f32, {}, "cvt.rn.f32.f64"},
      {Scalar::f64, Scalar::f16, {}, "cvt.rn.f16.f64"},
      {Scalar::f32, Scalar::f16, {}, "cvt.rn.f16.f32"},
      {Scalar::f32, Scalar::bf16, {}, "cvt.rn.bf16.f32"},
      {Scalar::i32, Scalar::f64, "cvt.rn.f64.s32", {}},
      {Scalar::i32, Scalar::f32, {}, "cvt.rn.f32.s32"},
      {Scalar::i64, Scalar::f32, {}, "cvt.rn.f32.s64"},
      {Scalar::i64, Scalar::f64, {}, "cvt.rn.f64.s64"},
      {Scalar::i64, Scalar::i32, "cvt.u32.u64", {}},
  };
  std::string_view instruction;
  if (from == Scalar::i32 && to == Scalar::i64)
    instruction = conversion == Conversion::sign ? "cvt.s64.s32" : "cvt.u64.u32";
  for (const Row& row : kRows)
    if (row.from == from && row.to == to)
      instruction = conversion == Conversion::exact ? row.exact : row.nearest;
  if (instruction.empty())
    malformed(op, fmt::format("no such conversion from {} to {}", name_of(from), name_of(to)));
  line({instruction}, reg(op.result), reg(op.operand[0]));
}

/// bf16 is the upper half of an f32. (A conversion instruction exists only from sm_90.)
void PtxFunctionPrinter::widen_bf16(const PtxText& result, const PtxText& source) {
  begin({"mov.b32 "});
  body_.put(result);
  body_.put(std::string_view(", {0, "));
  body_.put(source);
  body_.put('}');
  end_line();
}

void PtxFunctionPrinter::convert_float_to_integer(const Op& op, Scalar from) {
  std::string_view rounding;
  switch (static_cast<Conversion>(op.detail)) {
  case Conversion::nearest:
    rounding = "cvt.rni.";
    break;
  case Conversion::truncate:
    rounding = "cvt.rzi.";
    break;
  case Conversion::floor:
    rounding = "cvt.rmi.";
    break;
  case Conversion::ceil:
    rounding = "cvt.rpi.";
    break;
  case Conversion::exact:
  case Conversion::sign:
  case Conversion::zero:
    malformed(op, "a float becomes an integer only with a rounding");
  }
  const bool wide = op.type == Type(Scalar::i64);
  std::string_view types;
  if (from == Scalar::f16)
    types = wide ? "s64.f16" : "s32.f16";
  else if (from == Scalar::f32)
    types = wide ? "s64.f32" : "s32.f32";
  else
    types = wide ? "s64.f64" : "s32.f64";
  line({rounding, types}, reg(op.result), reg(op.operand[0]));
  // The conversion saturates. NaN becomes 0 only where neither side is 64 bits wide, else the least
  // integer (PTX ISA, "cvt").
  if (from == Scalar::f64 || wide) {
    const PtxText nan = scratch(PtxClass::pred);
    line({"setp.nan.", suffix_of(from)}, nan, reg(op.operand[0]), reg(op.operand[0]));
    line({"selp", bits_of(class_of(op.type))}, reg(op.result), '0', reg(op.result), nan);
  }
}

} // namespace sparsertc
