#include "ir/float_bits.h"

#include <bit>

namespace sparsertc {
namespace {

constexpr int kDoubleMantissaBits = 52;
constexpr int kDoubleBias = 1023;
constexpr uint64_t kDoubleMantissa = (uint64_t{1} << kDoubleMantissaBits) - 1;

/// Rounds to a binary format of 1 + ExponentBits + MantissaBits bits.
template <int ExponentBits, int MantissaBits>
uint32_t narrow(double value) {
  constexpr uint64_t kInfinity = ((uint64_t{1} << ExponentBits) - 1) << MantissaBits;
  constexpr int kMinimumExponent = 2 - (1 << (ExponentBits - 1));
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t sign = bits >> 63 << (ExponentBits + MantissaBits);
  const int biased = static_cast<int>(bits >> kDoubleMantissaBits & 0x7ff);
  const uint64_t mantissa = bits & kDoubleMantissa;

  if (biased == 0x7ff) {
    if (mantissa == 0)
      return static_cast<uint32_t>(sign | kInfinity);
    const uint64_t quiet = uint64_t{1} << (MantissaBits - 1);
    return static_cast<uint32_t>(sign | kInfinity | quiet |
                                 mantissa >> (kDoubleMantissaBits - MantissaBits));
  }
  // A subnormal double is far below half of any target's smallest subnormal.
  if (biased == 0)
    return static_cast<uint32_t>(sign);

  const int exponent = biased - kDoubleBias;
  const bool subnormal = exponent < kMinimumExponent;
  const int shift =
      kDoubleMantissaBits - MantissaBits + (subnormal ? kMinimumExponent - exponent : 0);
  // With a shift of 54 or more the value is below half of the smallest subnormal.
  if (shift > kDoubleMantissaBits + 1)
    return static_cast<uint32_t>(sign);
  const uint64_t significand = mantissa | uint64_t{1} << kDoubleMantissaBits;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  uint64_t quotient = significand >> shift;
  // Without a jump: whether to round up is a coin's toss, and there are millions of values.
  quotient += static_cast<uint64_t>(rest > half) | (static_cast<uint64_t>(rest == half) & quotient);
  // Adding, not merging: a carry out of the mantissa moves into the exponent, where it belongs.
  uint64_t magnitude = quotient;
  if (!subnormal)
    magnitude += static_cast<uint64_t>(exponent - kMinimumExponent) << MantissaBits;
  if (magnitude > kInfinity)
    magnitude = kInfinity;
  return static_cast<uint32_t>(sign | magnitude);
}

template <int ExponentBits, int MantissaBits>
double widen(uint32_t bits) {
  constexpr uint32_t kExponentMask = (1u << ExponentBits) - 1;
  constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  const uint64_t sign = static_cast<uint64_t>(bits >> (ExponentBits + MantissaBits) & 1) << 63;
  const uint32_t biased = bits >> MantissaBits & kExponentMask;
  uint64_t mantissa = bits & ((1u << MantissaBits) - 1);
  const int up = kDoubleMantissaBits - MantissaBits;
  if (biased == kExponentMask) {
    const uint64_t quiet = mantissa != 0 ? uint64_t{1} << (kDoubleMantissaBits - 1) : 0;
    return std::bit_cast<double>(sign | uint64_t{0x7ff} << kDoubleMantissaBits | quiet |
                                 mantissa << up);
  }
  int exponent = static_cast<int>(biased) - kBias;
  if (biased == 0) {
    if (mantissa == 0)
      return std::bit_cast<double>(sign);
    // A subnormal is normal in float64: bring its leading one to the implicit place.
    const int leading = MantissaBits + 1 - std::bit_width(mantissa);
    mantissa = mantissa << leading & ((1u << MantissaBits) - 1);
    exponent = 1 - kBias - leading;
  }
  return std::bit_cast<double>(
      sign | static_cast<uint64_t>(exponent + kDoubleBias) << kDoubleMantissaBits | mantissa << up);
}

} // namespace

uint16_t to_f16(double value) {
  return static_cast<uint16_t>(narrow<5, 10>(value));
}

uint16_t to_bf16(double value) {
  return static_cast<uint16_t>(narrow<8, 7>(value));
}

uint32_t to_f32(double value) {
  return narrow<8, 23>(value);
}

double from_f16(uint16_t bits) {
  return widen<5, 10>(bits);
}

double from_bf16(uint16_t bits) {
  return widen<8, 7>(bits);
}

double from_f32(uint32_t bits) {
  // The processor's own widening is exact and quiets NaNs, too.
  return static_cast<double>(std::bit_cast<float>(bits));
}

} // namespace sparsertc
