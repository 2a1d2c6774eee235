// exp is reduced by Cody and Waite's method (Software Manual for the Elementary Functions, 1980)
// and a polynomial; Phi(-|x|) = exp(-x^2/2) * g(|x|) with g a polynomial in (1 - z/2)/(1 + z/2), z
// = |x|/sqrt(2). The coefficients are truncated Chebyshev series computed in 50 digits.
#include "compiler/lower/activation.h"

#include "ir/error.h"

#include <cmath>
#include <span>

namespace sparsertc {
namespace {

using ir::Builder;
using ir::Comparison;
using ir::Conversion;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

// exp(r) on |r| <= ln(2)/2, ascending powers.
constexpr double kExpF32[] = {0.99999999995951586382,  1.0000000377501150123,
                              0.50000001078141100716,  0.16666415376600746988,
                              0.041666218094793586205, 0.0083751372679370356944,
                              0.0013948592779495661305};
constexpr double kExpF64[] = {1.0,
                              0.99999999999999999846,
                              0.49999999999999999959,
                              0.1666666666666670245,
                              0.041666666666666721711,
                              0.0083333333333095065775,
                              0.0013888888888861400107,
                              0.00019841269909260645948,
                              0.00002480158736695498496,
                              2.755722491836886848e-6,
                              2.7557239435703934123e-7,
                              2.5114882786996687342e-8,
                              2.0925041004015549828e-9};
// erfcx(z)/2 in u = (1 - z/2)/(1 + z/2), ascending powers.
constexpr double kTailF32[] = {0x1.058671b91aa99p-3,   0x1.b5703589aa7aap-3,  0x1.eeea7ab77e70dp-4,
                               0x1.437ec820cb754p-5,   0x1.e953aa3840c9fp-10, -0x1.ca745bba980abp-9,
                               -0x1.bd5e3e111d577p-12, 0x1.ff4442b038e3fp-12, 0x1.a819d7ebae877p-16,
                               -0x1.5657fd5b31de2p-14, 0x1.13085e3b6e398p-17, 0x1.44b1c1b3a216ap-17,
                               -0x1.343df1efe4ee0p-19};
constexpr double kTailF64[] = {
    0x1.058671b52c776p-3,   0x1.b57034efd3f75p-3,   0x1.eeea7dc8a7898p-4,   0x1.437f0b68c06a1p-5,
    0x1.e9471597bd10fp-10,  -0x1.ca95ed527f656p-9,  -0x1.bc25a48b0e726p-12, 0x1.016b5cb7d673ep-11,
    0x1.6d5f0decd176bp-16,  -0x1.6da96a25f7a03p-14, 0x1.cdc9c40ef550fp-17,  0x1.ceb653af96b0bp-17,
    -0x1.d471d9f5e82d5p-18, -0x1.7575675669734p-21, 0x1.f6ea3b16dbecap-20,  -0x1.41e7b603a0ca3p-21,
    -0x1.b3f4e48b1190ep-23, 0x1.1333463b144a7p-22,  -0x1.44722063674edp-24, -0x1.4e9aafa287e4dp-25,
    0x1.81bd762c6d6bap-25,  -0x1.e9448e372ecdep-28, -0x1.6a7e14b9f15cep-27, 0x1.32b958e3fd619p-28,
    0x1.146859832a2dbp-30,  -0x1.6ed01cbd49e37p-31, 0x1.0e17411be4de7p-36};

/// Arithmetic in one floating-point type.
class Arithmetic {
public:
  Arithmetic(Builder& builder, Scalar type) : builder_(builder), type_(type) {}

  bool is_double() const { return type_ == Scalar::f64; }
  Operand number(double value) const {
    return is_double() ? Operand::f64(value) : Operand::f32(static_cast<float>(value));
  }
  Reg constant(double value) { return builder_.constant(type_, number(value)); }
  Reg add(Reg a, Operand b) { return builder_.add(type_, a, b); }
  Reg mul(Reg a, Operand b) { return builder_.mul(type_, a, b); }
  Reg fma(Reg a, Operand b, Reg c) { return builder_.fma(type_, a, b, c); }
  Reg div(Reg a, Reg b) { return builder_.value(Opcode::div, type_, {a, b}); }
  Reg abs(Reg a) { return builder_.value(Opcode::abs, type_, {a}); }
  Reg neg(Reg a) { return builder_.value(Opcode::neg, type_, {a}); }
  Reg less(Reg a, double b) { return builder_.compare(Comparison::lt, type_, a, number(b)); }
  Reg select(Reg condition, Reg if_true, Operand if_false) {
    return builder_.select(type_, condition, if_true, if_false);
  }
  /// The larger of a and `least`; NaN stays.
  Reg at_least(Reg a, double least) { return select(less(a, least), constant(least), a); }
  /// The smaller of a and `most`; NaN stays.
  Reg at_most(Reg a, double most) {
    const Reg above = builder_.compare(Comparison::gt, type_, a, number(most));
    return select(above, constant(most), a);
  }

  /// Horner's rule; coefficients in ascending powers.
  Reg polynomial(std::span<const double> coefficients, Reg x) {
    Reg sum = constant(coefficients.back());
    for (size_t i = coefficients.size() - 1; i-- > 0;)
      sum = fma(sum, x, constant(coefficients[i]));
    return sum;
  }

  /// 2^n for an integer register n within the normal exponents.
  Reg power_of_two(Reg n) {
    if (!is_double()) {
      const Reg biased = builder_.add(Scalar::i32, n, Operand::integer(127));
      const Reg bits = builder_.value(Opcode::shl, Scalar::i32, {biased, Operand::integer(23)});
      return builder_.bitcast(Scalar::f32, bits);
    }
    const Reg wide = builder_.convert(Scalar::i64, n, Conversion::sign);
    const Reg biased = builder_.add(Scalar::i64, wide, Operand::integer(1023));
    const Reg bits = builder_.value(Opcode::shl, Scalar::i64, {biased, Operand::integer(52)});
    return builder_.bitcast(Scalar::f64, bits);
  }

  /// exp(a) for a <= 0 above the underflow threshold or somewhat below it.
  Reg exp(Reg a) {
    // n = a / ln 2 to the nearest integer, by the constant 1.5 * 2^(p-1): its sum has no fraction.
    const double shift = is_double() ? 0x1.8p52 : 0x1.8p23;
    const Reg shifted = fma(a, number(1.4426950408889634074), constant(shift));
    const Reg n = add(shifted, number(-shift));
    // ln 2 in two parts, the first with trailing zeros so that n * high is exact.
    const double high = is_double() ? 0x1.62e42feep-1 : 0x1.62ep-1;
    const double low = is_double() ? 0x1.a39ef35793c76p-33 : 0x1.0bfbe8p-15;
    const Reg r = fma(n, number(-low), fma(n, number(-high), a));
    const Reg p = is_double() ? polynomial(kExpF64, r) : polynomial(kExpF32, r);
    // 2^n in two factors: the first product is exact, the second rounds subnormal results once.
    const Reg whole = builder_.convert(Scalar::i32, n, Conversion::nearest);
    const Reg first = builder_.value(Opcode::sar, Scalar::i32, {whole, Operand::integer(1)});
    const Reg second = builder_.sub(Scalar::i32, whole, first);
    return mul(mul(p, power_of_two(first)), power_of_two(second));
  }

private:
  Builder& builder_;
  Scalar type_;
};

Reg write_relu(Arithmetic& a, Reg x) {
  return a.select(a.less(x, 0.0), a.constant(0.0), x);
}

Reg write_silu(Arithmetic& a, Reg x) {
  // With e = exp(-|x|): x / (1 + e) above 0, x * e / (1 + e) below. Beyond `bound` the result is
  // below every subnormal.
  const double bound = a.is_double() ? -760.0 : -110.0;
  const Reg inside = a.at_least(x, bound);
  const Reg e = a.exp(a.at_least(a.neg(a.abs(inside)), bound));
  const Reg numerator = a.select(a.less(inside, 0.0), a.mul(inside, e), inside);
  return a.div(numerator, a.add(e, a.number(1.0)));
}

Reg write_gelu(Arithmetic& a, Reg x) {
  const double bound = a.is_double() ? 40.0 : 15.0;
  const Reg inside = a.at_least(x, -bound);
  const Reg magnitude = a.at_most(a.abs(inside), bound);
  const Reg half_z = a.mul(magnitude, a.number(std::sqrt(0.5) / 2)); // z/2, z = |x|/sqrt(2)
  const Reg u = a.div(a.add(a.neg(half_z), a.number(1.0)), a.add(half_z, a.number(1.0)));
  const Reg g = a.is_double() ? a.polynomial(kTailF64, u) : a.polynomial(kTailF32, u);
  const Reg e = a.exp(a.mul(a.mul(magnitude, a.number(-0.5)), magnitude));
  const Reg tail = a.mul(e, g); // Phi(-|x|)
  const Reg rest = a.add(a.neg(tail), a.number(1.0));
  return a.mul(inside, a.select(a.less(inside, 0.0), tail, rest));
}

} // namespace

Reg write_activation(Builder& builder, Scalar type, Activation activation, Reg x) {
  Arithmetic arithmetic(builder, type);
  switch (activation) {
  case Activation::none:
    return x;
  case Activation::relu:
    return write_relu(arithmetic, x);
  case Activation::gelu:
    return write_gelu(arithmetic, x);
  case Activation::silu:
    return write_silu(arithmetic, x);
  }
  throw InternalError("unknown activation");
}

double activation_error_units(Activation activation) {
  switch (activation) {
  case Activation::none:
  case Activation::relu:
    return 0;
  case Activation::gelu:
    return 8;
  case Activation::silu:
    return 8;
  }
  return 0;
}

double activation_lipschitz(Activation activation) {
  switch (activation) {
  case Activation::none:
  case Activation::relu:
    return 1;
  case Activation::gelu:
    return 1.13;
  case Activation::silu:
    return 1.1;
  }
  return 1;
}

} // namespace sparsertc
