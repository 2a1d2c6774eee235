// Arithmetic of the small floating-point types and rounding with every mode, for the PTX
// interpreter. Values travel as their bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace sparsertc::ptx {

/// A binary floating-point format: `precision` bits of significand (the hidden one included),
/// exponents `minimum` to `maximum` of the leading bit.
struct FloatFormat {
  int precision;
  int minimum;
  int maximum;
  int bits;
};
inline constexpr FloatFormat kF16 = {11, -14, 15, 16};
inline constexpr FloatFormat kBf16 = {8, -126, 127, 16};
/// Stored in the upper 19 bits of an f32.
inline constexpr FloatFormat kTf32 = {11, -126, 127, 19};
inline constexpr FloatFormat kF32 = {24, -126, 127, 32};
inline constexpr FloatFormat kF64 = {53, -1022, 1023, 64};

/// To nearest even, toward zero, down, up, to nearest with ties away from zero.
enum class Rounding : uint8_t { nearest, zero, down, up, nearest_away };

/// (-1)^negative * magnitude * 2^exponent, plus something in (0, 2^exponent) where `sticky`:
/// rounded once. A zero magnitude without sticky gives a zero of the given sign.
uint64_t encode(bool negative, uint64_t magnitude, int exponent, bool sticky, FloatFormat format,
                Rounding rounding);

/// The value of finite or infinite bits; NaN for NaN. Exact for every format.
double decode(uint64_t bits, FloatFormat format);

/// `value` rounded once; NaN gives the format's canonical NaN (all ones but the sign).
uint64_t round_to_format(double value, FloatFormat format, Rounding rounding);

/// `value` rounded to an integer that stays a float.
double round_to_integral(double value, Rounding rounding);

/// `value` rounded to an integer in [low, high], saturating; NaN gives 0.
int64_t round_to_integer(double value, Rounding rounding, int64_t low, int64_t high);
uint64_t round_to_unsigned(double value, Rounding rounding, uint64_t high);

/// Canonical NaN of the hardware for f32 results.
inline constexpr uint32_t kCanonicalNan32 = 0x7fffffffu;

float half_to_float(uint16_t bits);
inline float bfloat_to_float(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// a * b + c of doubles that came from 16-bit formats, rounded to odd: the product is exact (at
/// most 22 bits), the sum's inexactness is kept in the last bit, so that one more rounding to 24 or
/// fewer bits is the correct one (Boldo and Melquiond, "When double rounding is odd", 2005).
inline double fma_to_odd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  if (!std::isfinite(sum))
    return sum;
  // Two-sum (Knuth): sum + error is exactly product + c.
  const double c_part = sum - product;
  const double error = (product - (sum - c_part)) + (c - c_part);
  if (error == 0)
    return sum;
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  if ((bits & 1) == 0) {
    // The exact value lies strictly between two neighbours; take the one with the odd last bit.
    const bool away = (error > 0) == (sum > 0);
    bits = away ? bits + 1 : bits - 1;
  }
  return std::bit_cast<double>(bits);
}

uint16_t half_add(uint16_t a, uint16_t b);
uint16_t half_sub(uint16_t a, uint16_t b);
uint16_t half_mul(uint16_t a, uint16_t b);
uint16_t half_fma(uint16_t a, uint16_t b, uint16_t c);
uint16_t bfloat_add(uint16_t a, uint16_t b);
uint16_t bfloat_sub(uint16_t a, uint16_t b);
uint16_t bfloat_mul(uint16_t a, uint16_t b);
uint16_t bfloat_fma(uint16_t a, uint16_t b, uint16_t c);

/// min and max of IEEE 754-2019 minimumNumber/maximumNumber: a NaN loses against a number, -0 < +0.
template <class Float>
Float minimum_number(Float a, Float b) {
  if (std::isnan(a))
    return b;
  if (std::isnan(b))
    return a;
  if (a == b)
    return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class Float>
Float maximum_number(Float a, Float b) {
  if (std::isnan(a))
    return b;
  if (std::isnan(b))
    return a;
  if (a == b)
    return std::signbit(a) ? b : a;
  return a < b ? b : a;
}

} // namespace sparsertc::ptx
