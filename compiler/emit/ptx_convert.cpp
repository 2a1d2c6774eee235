// Conversions between number types, each with one rounding.
#include "compiler/emit/ptx_function.h"

#include <fmt/format.h>

namespace sparsertc {

using ir::Conversion;
using ir::Scalar;
using ir::Type;

void PtxFunctionPrinter::convert(const Op& op) {
  const Type source = function_->type_of(Reg{op.operand[0]});
  const Scalar from = source.element();
  const Scalar to = op.type.element();
  const auto convertible = [](Type type) {
    return type.is_integer() || (type.is_float() && !type.is_pair());
  };
  if (!convertible(source) || !convertible(op.type))
    malformed(op,
              fmt::format("no conversion from {} to {}", to_string(source), to_string(op.type)));
  if (source.is_integer())
    op.type.is_integer() ? convert_integers(op, from, to) : convert_integer_to_float(op, from, to);
  else
    op.type.is_integer() ? convert_float_to_integer(op, from, to) : convert_floats(op, from, to);
}

void PtxFunctionPrinter::convert_integers(const Op& op, Scalar from, Scalar to) {
  if (from == to)
    line({"mov", bits_of(class_of(op.type))}, reg(op.result), reg(op.operand[0]));
  else if (to == Scalar::i32)
    line({"cvt.u32.u64"}, reg(op.result), reg(op.operand[0]));
  else if (static_cast<Conversion>(op.detail) == Conversion::zero)
    line({"cvt.u64.u32"}, reg(op.result), reg(op.operand[0]));
  else
    line({"cvt.s64.s32"}, reg(op.result), reg(op.operand[0]));
}

/// The rounding of a conversion to a float. (`exact` needs none, but PTX asks for one.)
std::string_view PtxFunctionPrinter::float_rounding(const Op& op) const {
  switch (static_cast<Conversion>(op.detail)) {
  case Conversion::exact:
  case Conversion::nearest:
    return "rn.";
  case Conversion::truncate:
    return "rz.";
  case Conversion::floor:
    return "rm.";
  case Conversion::ceil:
    return "rp.";
  case Conversion::sign:
  case Conversion::zero:
    break;
  }
  malformed(op, "extension is for integers");
}

/// bf16 is the upper half of an f32.
PtxText PtxFunctionPrinter::widen_bf16(const PtxText& source) {
  const PtxText wide = scratch(PtxClass::f32);
  begin({"mov.b32 "});
  body_.put(wide);
  body_.put(std::string_view(", {0, "));
  body_.put(source);
  body_.put('}');
  end_line();
  return wide;
}

/// Finishes a rounding to odd: `rounded` was rounded toward zero; where that was `inexact`, its
/// last bit is set. Rounding the outcome to at least two bits fewer is then as if the exact number
/// had been rounded once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums:
/// proved algorithms using rounding to odd", 2008).
void PtxFunctionPrinter::make_odd(const PtxText& rounded, const PtxText& inexact) {
  const PtxText last = scratch(PtxClass::b32);
  const PtxText bits = scratch(PtxClass::b32);
  line({"selp.b32"}, last, '1', '0', inexact);
  line({"mov.b32"}, bits, rounded);
  line({"or.b32"}, bits, bits, last);
  line({"mov.b32"}, rounded, bits);
}

void PtxFunctionPrinter::convert_integer_to_float(const Op& op, Scalar from, Scalar to) {
  const std::string_view source = suffix_of(from);
  if (to != Scalar::bf16) {
    line({std::string_view("cvt."), float_rounding(op),
          to == Scalar::f16   ? (from == Scalar::i32 ? "f16.s32" : "f16.s64")
          : to == Scalar::f32 ? (from == Scalar::i32 ? "f32.s32" : "f32.s64")
                              : (from == Scalar::i32 ? "f64.s32" : "f64.s64")},
         reg(op.result), reg(op.operand[0]));
    return;
  }
  // Through f32, rounded to odd: its 24 bits are well over the 8 of bf16. (The direct conversion
  // needs sm_90; one expansion for all targets gives the same bits on all.)
  const PtxText wide = scratch(PtxClass::f32);
  const PtxText back = scratch(from == Scalar::i32 ? PtxClass::b32 : PtxClass::b64);
  const PtxText inexact = scratch(PtxClass::pred);
  line({"cvt.rz.f32.", source}, wide, reg(op.operand[0]));
  line({"cvt.rzi.", source, ".f32"}, back, wide);
  line({"setp.ne.", source}, inexact, back, reg(op.operand[0]));
  make_odd(wide, inexact);
  line({"cvt.", float_rounding(op), "bf16.f32"}, reg(op.result), wide);
}

void PtxFunctionPrinter::convert_float_to_integer(const Op& op, Scalar from, Scalar to) {
  std::string_view rounding;
  switch (static_cast<Conversion>(op.detail)) {
  case Conversion::nearest:
    rounding = "rni.";
    break;
  case Conversion::truncate:
    rounding = "rzi.";
    break;
  case Conversion::floor:
    rounding = "rmi.";
    break;
  case Conversion::ceil:
    rounding = "rpi.";
    break;
  case Conversion::exact:
  case Conversion::sign:
  case Conversion::zero:
    malformed(op, "a float becomes an integer only with a rounding");
  }
  const PtxText source = from == Scalar::bf16 ? widen_bf16(reg(op.operand[0])) : reg(op.operand[0]);
  const Scalar wide = from == Scalar::bf16 ? Scalar::f32 : from;
  const std::string_view target = to == Scalar::i32 ? (wide == Scalar::f16   ? "s32.f16"
                                                       : wide == Scalar::f32 ? "s32.f32"
                                                                             : "s32.f64")
                                                    : (wide == Scalar::f16   ? "s64.f16"
                                                       : wide == Scalar::f32 ? "s64.f32"
                                                                             : "s64.f64");
  line({"cvt.", rounding, target}, reg(op.result), source);
  // The conversion saturates. NaN becomes 0 only where neither side is 64 bits wide, else the least
  // integer (PTX ISA, "cvt").
  if (wide == Scalar::f64 || to == Scalar::i64) {
    const PtxText nan = scratch(PtxClass::pred);
    line({"setp.nan.", suffix_of(wide)}, nan, source, source);
    line({"selp", bits_of(class_of(op.type))}, reg(op.result), '0', reg(op.result), nan);
  }
}

void PtxFunctionPrinter::convert_floats(const Op& op, Scalar from, Scalar to) {
  if (from == to) {
    line({"mov", bits_of(class_of(op.type))}, reg(op.result), reg(op.operand[0]));
    return;
  }
  PtxText source = reg(op.operand[0]);
  if (from == Scalar::bf16) {
    if (to == Scalar::f32) {
      begin({"mov.b32 "});
      body_.put(reg(op.result));
      body_.put(std::string_view(", {0, "));
      body_.put(source);
      body_.put('}');
      end_line();
      return;
    }
    source = widen_bf16(source);
    from = Scalar::f32;
  } else if (from == Scalar::f16 && to == Scalar::bf16) {
    const PtxText wide = scratch(PtxClass::f32);
    line({"cvt.f32.f16"}, wide, source);
    source = wide;
    from = Scalar::f32;
  } else if (from == Scalar::f64 && to == Scalar::bf16) {
    // Through f32, rounded to odd: the exponents are the same, so this holds for subnormal and
    // overflowing numbers too; NaN stays NaN with its last bit set.
    const PtxText wide = scratch(PtxClass::f32);
    const PtxText back = scratch(PtxClass::f64);
    const PtxText inexact = scratch(PtxClass::pred);
    line({"cvt.rz.f32.f64"}, wide, source);
    line({"cvt.f64.f32"}, back, wide);
    line({"setp.neu.f64"}, inexact, back, source);
    make_odd(wide, inexact);
    source = wide;
    from = Scalar::f32;
  }

  const bool widens = size_in_bytes(to) > size_in_bytes(from);
  const std::string_view rounding = widens ? std::string_view{} : float_rounding(op);
  const std::string_view types = to == Scalar::f64   ? (from == Scalar::f16 ? "f64.f16" : "f64.f32")
                                 : to == Scalar::f32 ? (from == Scalar::f16 ? "f32.f16" : "f32.f64")
                                 : to == Scalar::bf16
                                     ? "bf16.f32"
                                     : (from == Scalar::f32 ? "f16.f32" : "f16.f64");
  line({"cvt.", rounding, types}, reg(op.result), source);
}

} // namespace sparsertc
