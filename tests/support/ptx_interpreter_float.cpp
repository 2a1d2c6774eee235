#include "tests/support/ptx_interpreter_float.h"

#include <vector>

namespace sparsertc::ptx {
namespace {

uint64_t infinity_bits(FloatFormat format) {
  return static_cast<uint64_t>(2 * format.maximum + 1) << (format.precision - 1);
}
uint64_t largest_finite(FloatFormat format) {
  return infinity_bits(format) - 1;
}
uint64_t canonical_nan(FloatFormat format) {
  return (uint64_t{1} << (format.bits - 1)) - 1;
}

/// True if a magnitude with the discarded part described by (half, rest) goes up by one unit.
bool rounds_up(bool negative, bool odd, bool half, bool rest, Rounding rounding) {
  switch (rounding) {
  case Rounding::nearest:
    return half && (rest || odd);
  case Rounding::nearest_away:
    return half;
  case Rounding::zero:
    return false;
  case Rounding::down:
    return negative && (half || rest);
  case Rounding::up:
    return !negative && (half || rest);
  }
  return false;
}

std::vector<float> make_half_table() {
  std::vector<float> table(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = decode(bits, kF16);
    table[bits] =
        std::isnan(value) ? std::bit_cast<float>(kCanonicalNan32) : static_cast<float>(value);
  }
  return table;
}

uint16_t to_half(double value) {
  return static_cast<uint16_t>(round_to_format(value, kF16, Rounding::nearest));
}
uint16_t to_bfloat(double value) {
  return static_cast<uint16_t>(round_to_format(value, kBf16, Rounding::nearest));
}

} // namespace

uint64_t encode(bool negative, uint64_t magnitude, int exponent, bool sticky, FloatFormat format,
                Rounding rounding) {
  const uint64_t sign = static_cast<uint64_t>(negative) << (format.bits - 1);
  if (magnitude == 0 && !sticky)
    return sign;
  if (magnitude == 0) {
    // Less than any bit of the magnitude: keep it as a sticky part below a zero unit.
    const uint64_t bump = rounds_up(negative, false, false, true, rounding) ? 1 : 0;
    return sign | bump;
  }
  const int leading = 63 - std::countl_zero(magnitude) + exponent;
  // Exponent of the result's last place: subnormals share the smallest one.
  const int normal = leading < format.minimum ? format.minimum : leading;
  const int unit = normal - (format.precision - 1);
  const int drop = unit - exponent; // low bits of the magnitude that do not fit
  uint64_t kept = 0;
  bool half = false;
  bool rest = sticky;
  if (drop <= 0) {
    kept = magnitude << -drop; // fits: precision <= 53, and a sticky part only follows wide inputs
  } else if (drop > 64) {
    rest = true;
  } else {
    kept = drop == 64 ? 0 : magnitude >> drop;
    half = (magnitude >> (drop - 1)) & 1;
    rest = rest || (magnitude & ((uint64_t{1} << (drop - 1)) - 1)) != 0;
  }
  if (rounds_up(negative, kept & 1, half, rest, rounding))
    ++kept;
  // `kept` counts units; adding it to the biased exponent's field carries by itself.
  uint64_t bits = kept;
  if (kept >> (format.precision - 1))
    bits += static_cast<uint64_t>(normal - format.minimum) << (format.precision - 1);
  if (bits >= infinity_bits(format)) {
    const bool to_infinity = rounding == Rounding::nearest || rounding == Rounding::nearest_away ||
                             (rounding == Rounding::up && !negative) ||
                             (rounding == Rounding::down && negative);
    bits = to_infinity ? infinity_bits(format) : largest_finite(format);
  }
  return sign | bits;
}

double decode(uint64_t bits, FloatFormat format) {
  if (format.bits == 64)
    return std::bit_cast<double>(bits);
  const bool negative = (bits >> (format.bits - 1)) & 1;
  const uint64_t magnitude = bits & ((uint64_t{1} << (format.bits - 1)) - 1);
  double value = 0;
  if (magnitude > infinity_bits(format)) {
    return std::nan("");
  } else if (magnitude == infinity_bits(format)) {
    value = HUGE_VAL;
  } else {
    const uint64_t fraction = magnitude & ((uint64_t{1} << (format.precision - 1)) - 1);
    const int field = static_cast<int>(magnitude >> (format.precision - 1));
    const uint64_t significand =
        field == 0 ? fraction : fraction | (uint64_t{1} << (format.precision - 1));
    const int exponent = format.minimum + (field == 0 ? 0 : field - 1) - (format.precision - 1);
    value = std::ldexp(static_cast<double>(significand), exponent);
  }
  return negative ? -value : value;
}

uint64_t round_to_format(double value, FloatFormat format, Rounding rounding) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const bool negative = bits >> 63;
  const int field = static_cast<int>((bits >> 52) & 0x7ff);
  uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (field == 0x7ff) {
    if (fraction != 0)
      return canonical_nan(format);
    return (static_cast<uint64_t>(negative) << (format.bits - 1)) | infinity_bits(format);
  }
  int exponent = -1074;
  if (field != 0) {
    fraction |= uint64_t{1} << 52;
    exponent = field - 1075;
  }
  return encode(negative, fraction, exponent, false, format, rounding);
}

double round_to_integral(double value, Rounding rounding) {
  switch (rounding) {
  case Rounding::nearest: {
    const double below = std::floor(value);
    const double difference = value - below; // exact: both have value's last place or coarser
    if (difference < 0.5)
      return below;
    if (difference > 0.5)
      return below + 1;
    return std::fmod(below, 2.0) == 0 ? below : below + 1;
  }
  case Rounding::nearest_away:
    return std::round(value);
  case Rounding::zero:
    return std::trunc(value);
  case Rounding::down:
    return std::floor(value);
  case Rounding::up:
    return std::ceil(value);
  }
  return value;
}

int64_t round_to_integer(double value, Rounding rounding, int64_t low, int64_t high) {
  if (std::isnan(value))
    return 0;
  const double integral = round_to_integral(value, rounding);
  if (integral >= 9223372036854775808.0)
    return high;
  if (integral < -9223372036854775808.0)
    return low;
  const int64_t result = static_cast<int64_t>(integral);
  return result < low ? low : result > high ? high : result;
}

uint64_t round_to_unsigned(double value, Rounding rounding, uint64_t high) {
  if (std::isnan(value))
    return 0;
  const double integral = round_to_integral(value, rounding);
  if (integral <= 0)
    return 0;
  if (integral >= 18446744073709551616.0)
    return high;
  const uint64_t result = static_cast<uint64_t>(integral);
  return result > high ? high : result;
}

float half_to_float(uint16_t bits) {
  static const std::vector<float> table = make_half_table();
  return table[bits];
}

// Sums and products of two f16 are exact in float64; sums of two bf16 need not be (their exponents
// span 2^-133 to 2^127), so these go through rounding to odd like the fused operations.
uint16_t half_add(uint16_t a, uint16_t b) {
  return to_half(double{half_to_float(a)} + double{half_to_float(b)});
}
uint16_t half_sub(uint16_t a, uint16_t b) {
  return to_half(double{half_to_float(a)} - double{half_to_float(b)});
}
uint16_t half_mul(uint16_t a, uint16_t b) {
  return to_half(double{half_to_float(a)} * double{half_to_float(b)});
}
uint16_t half_fma(uint16_t a, uint16_t b, uint16_t c) {
  return to_half(fma_to_odd(half_to_float(a), half_to_float(b), half_to_float(c)));
}
uint16_t bfloat_add(uint16_t a, uint16_t b) {
  return to_bfloat(fma_to_odd(bfloat_to_float(a), 1.0, bfloat_to_float(b)));
}
uint16_t bfloat_sub(uint16_t a, uint16_t b) {
  return to_bfloat(fma_to_odd(-bfloat_to_float(b), 1.0, bfloat_to_float(a)));
}
uint16_t bfloat_mul(uint16_t a, uint16_t b) {
  return to_bfloat(double{bfloat_to_float(a)} * double{bfloat_to_float(b)});
}
uint16_t bfloat_fma(uint16_t a, uint16_t b, uint16_t c) {
  return to_bfloat(fma_to_odd(bfloat_to_float(a), bfloat_to_float(b), bfloat_to_float(c)));
}

} // namespace sparsertc::ptx
