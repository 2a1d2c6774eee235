#include "compiler/input/convert.h"
#include "compiler/input/random_values.h"
#include "ir/error.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include <catch2/catch.hpp>

namespace sparsertc {
namespace {

/// The value of a pattern by the definition of the format, independent of the code under test.
double by_definition(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits >> (exponent_bits + mantissa_bits)) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (exponent == 0)
    return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

/// All 65,536 patterns: exact both ways, and float64 neighbours of every midpoint go where round to
/// nearest, ties to even, sends them.
void check_all(uint16_t (*narrow)(double), double (*widen)(uint16_t), int exponent_bits,
               int mantissa_bits) {
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  uint32_t wrong = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = widen(static_cast<uint16_t>(bits));
    wrong += !same(value, by_definition(bits, exponent_bits, mantissa_bits));
    const uint16_t back = narrow(value);
    if (std::isnan(value))
      wrong += back != (bits | 1u << (mantissa_bits - 1));
    else
      wrong += back != bits;
  }
  CHECK(wrong == 0);

  for (uint32_t low = 0; low < infinity; ++low) {
    const uint32_t high = low + 1;
    // Above the largest number the midpoint is that to the next power of two.
    const double upper = high == infinity ? std::ldexp(1.0, 1 << (exponent_bits - 1))
                                          : widen(static_cast<uint16_t>(high));
    const double midpoint = (widen(static_cast<uint16_t>(low)) + upper) / 2;
    const uint32_t even = (low & 1) == 0 ? low : high;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const double direction = sign == 0 ? 1 : -1;
      wrong += narrow(direction * midpoint) != (sign | even);
      wrong += narrow(direction * std::nextafter(midpoint, 0)) != (sign | low);
      wrong += narrow(direction * std::nextafter(midpoint, 1e300)) != (sign | high);
    }
  }
  CHECK(wrong == 0);
}

} // namespace

TEST_CASE("f16: every pattern and every midpoint") {
  check_all(to_f16, from_f16, 5, 10);
}

TEST_CASE("bf16: every pattern and every midpoint") {
  check_all(to_bf16, from_bf16, 8, 7);
}

TEST_CASE("f32 agrees with the processor's conversion") {
  const uint64_t seed = 20240611;
  INFO("seed " << seed);
  std::mt19937_64 generator(seed);
  uint32_t wrong = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    double value = std::bit_cast<double>(generator());
    // Half of them near f32's range, which random bits seldom hit.
    if (i % 2 == 0)
      value = std::ldexp(1.0 + static_cast<double>(generator() >> 12) * 0x1p-52,
                         static_cast<int>(generator() % 300) - 160);
    if (std::isnan(value))
      continue;
    wrong += to_f32(value) != std::bit_cast<uint32_t>(static_cast<float>(value));
    const auto bits = static_cast<uint32_t>(generator());
    const float narrow = std::bit_cast<float>(bits);
    wrong += !same(from_f32(bits), static_cast<double>(narrow));
  }
  CHECK(wrong == 0);
}

TEST_CASE("Rounding is single and limits are as documented") {
  // Rounding to f32 first would give the tie, and the tie the even neighbour.
  const double above_tie = 1.0 + 0x1p-11 + 0x1p-40;
  CHECK(to_f16(above_tie) == 0x3c01);
  CHECK(to_f16(65519.99999) == 0x7bff);
  CHECK(to_f16(65520.0) == 0x7c00);
  CHECK(to_f16(-1e300) == 0xfc00);
  CHECK(to_f16(0x1p-25) == 0);
  CHECK(to_f16(-0x1p-25) == 0x8000);
  CHECK(to_f16(std::nextafter(0x1p-25, 1)) == 1);
  CHECK(to_f16(std::numeric_limits<double>::denorm_min()) == 0);
  CHECK(to_bf16(3.4e38) == 0x7f80);
  CHECK(to_f32(1e39) == 0x7f800000);
  CHECK((to_f16(std::nan("")) & 0x7e00) == 0x7e00);
  CHECK(round_to(1.0 / 3, StoredType::f32) == static_cast<double>(1.0f / 3.0f));
  CHECK(round_to(1.0 / 3, StoredType::f64) == 1.0 / 3);
  CHECK(round_to(1.0 / 3, StoredType::bf16) == 0.333984375);
  CHECK(round_to(1.0 / 3, StoredType::f16) == 0.333251953125);
  CHECK_THROWS_AS(round_to(1, StoredType::i8), InternalError);
}

TEST_CASE("Random values are reproducible, in range, never zero in any type") {
  // SplitMix64's published outputs for the seed 1234567.
  SplitMix64 generator(1234567);
  CHECK(generator.next() == 6457827717110365317ull);
  CHECK(generator.next() == 3203168211198807973ull);
  CHECK(generator.next() == 9817491932198370423ull);

  const std::vector<double> values = random_values(100'000, 7);
  CHECK(values == random_values(100'000, 7));
  CHECK(values != random_values(100'000, 8));
  CHECK(random_values(10, 7) == std::vector<double>(values.begin(), values.begin() + 10));
  double sum = 0;
  uint32_t wrong = 0;
  for (const double value : values) {
    wrong += !(value >= -1 && value < 1) || value == 0;
    wrong += round_to(value, StoredType::f32) != value;
    wrong += round_to(value, StoredType::f16) == 0 || round_to(value, StoredType::bf16) == 0;
    sum += value;
  }
  CHECK(wrong == 0);
  CHECK(std::fabs(sum / 100'000) < 0.01);
  CHECK(to_f16(0x1p-23) == 2);
}

} // namespace sparsertc
