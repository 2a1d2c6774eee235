// Numbers in .sir text: bits -> text -> the same bits, for all types.
#include "ir/literal.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

using namespace sparsertc::ir;

namespace {

std::string text_of(Scalar scalar, int64_t bits) {
  std::string text;
  append_literal(text, scalar, bits);
  return text;
}

int64_t bits_of(float value) {
  return static_cast<int64_t>(std::bit_cast<uint32_t>(value));
}
int64_t bits_of(double value) {
  return std::bit_cast<int64_t>(value);
}

void check_round_trip(Scalar scalar, int64_t bits) {
  const std::string text = text_of(scalar, bits);
  const Literal literal = parse_literal(text, scalar);
  if (!literal.error.empty() || literal.bits != bits) {
    CAPTURE(text, literal.error, bits);
    FAIL("the literal does not come back");
  }
}

} // namespace

TEST_CASE("all 16-bit floats come back from their text", "[ir]") {
  for (int64_t bits = 0; bits <= UINT16_MAX; ++bits) {
    check_round_trip(Scalar::f16, bits);
    check_round_trip(Scalar::bf16, bits);
  }
}

TEST_CASE("random bits of every type come back from their text", "[ir]") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random() >> (random() % 64);
    const auto low = static_cast<int64_t>(bits & UINT32_MAX);
    check_round_trip(Scalar::f32, low);
    check_round_trip(Scalar::f16x2, low);
    check_round_trip(Scalar::bf16x2, low);
    check_round_trip(Scalar::f64, static_cast<int64_t>(bits));
    check_round_trip(Scalar::i64, static_cast<int64_t>(bits));
    check_round_trip(Scalar::i32, static_cast<int32_t>(low));
    // Few significant bits: the decimal form.
    const auto small = static_cast<double>(static_cast<int64_t>(random() % 2047) - 1023);
    const double value = std::ldexp(small, static_cast<int>(random() % 60) - 30);
    check_round_trip(Scalar::f64, bits_of(value));
    check_round_trip(Scalar::f32, bits_of(static_cast<float>(value)));
  }
}

TEST_CASE("special values are written as expected", "[ir]") {
  using Limits = std::numeric_limits<float>;
  CHECK(text_of(Scalar::f32, bits_of(0.0f)) == "0");
  CHECK(text_of(Scalar::f32, bits_of(-0.0f)) == "-0");
  CHECK(text_of(Scalar::f32, bits_of(0.5f)) == "0.5");
  CHECK(text_of(Scalar::f32, bits_of(-2.0f)) == "-2");
  CHECK(text_of(Scalar::f32, bits_of(1.1f)) == "0f3F8CCCCD");
  CHECK(text_of(Scalar::f32, bits_of(0.0009765625f)) == "0.0009765625");
  CHECK(text_of(Scalar::f32, bits_of(1023.0f)) == "1023");
  CHECK(text_of(Scalar::f32, bits_of(1025.0f)) == "0f44802000");
  CHECK(text_of(Scalar::f32, bits_of(Limits::infinity())) == "0f7F800000");
  CHECK(text_of(Scalar::f32, bits_of(-Limits::infinity())) == "0fFF800000");
  CHECK(text_of(Scalar::f32, 0x7FC00001) == "0f7FC00001");
  CHECK(text_of(Scalar::f32, bits_of(Limits::denorm_min())) == "0f00000001");
  CHECK(text_of(Scalar::f64, bits_of(0.1)) == "0d3FB999999999999A");
  CHECK(text_of(Scalar::f64, bits_of(-0.0)) == "-0");
  CHECK(text_of(Scalar::f16, 0x3C00) == "1");
  CHECK(text_of(Scalar::f16, 0x7C00) == "0h7C00");
  CHECK(text_of(Scalar::bf16, 0x3F80) == "1");
  CHECK(text_of(Scalar::f16x2, 0x3C00BC00) == "0x3C00BC00");
  CHECK(text_of(Scalar::i32, INT32_MIN) == "-2147483648");
  CHECK(text_of(Scalar::i64, INT64_MIN) == "-9223372036854775808");
  CHECK(text_of(Scalar::pred, 1) == "true");
  CHECK(text_of(Scalar::pred, 0) == "false");
}

TEST_CASE("literals by hand", "[ir]") {
  CHECK(parse_literal("0xFFFFFFFF", Scalar::i32).bits == -1);
  CHECK(parse_literal("0xffffffffffffffff", Scalar::i64).bits == -1);
  CHECK(parse_literal("-9223372036854775808", Scalar::i64).bits == INT64_MIN);
  CHECK(parse_literal("16777217", Scalar::f64).bits == bits_of(16777217.0));
  CHECK(parse_literal("3.75", Scalar::f16).bits == 0x4380);
  CHECK(parse_literal("65504", Scalar::f16).bits == 0x7BFF);
  CHECK(parse_literal("-0.0000152587890625", Scalar::f16).bits == 0x8100);

  struct Case {
    const char* token;
    Scalar scalar;
    const char* error;
  };
  const Case cases[] = {
      {"0.1", Scalar::f32, "the nearest one is written 0f3DCCCCCD"},
      {"0.1", Scalar::f64, "the nearest one is written 0d3FB999999999999A"},
      {"0.1", Scalar::f16, "the nearest one is written 0h2E66"},
      {"16777217", Scalar::f32, "the nearest one is written 0f4B800000"},
      {"65520", Scalar::f16, "the nearest one is written 0h7C00"},
      {"1e5", Scalar::f32, "decimal of at most 18 digits"},
      {"1.", Scalar::f32, "decimal of at most 18 digits"},
      {".5", Scalar::f32, "decimal of at most 18 digits"},
      {"nan", Scalar::f32, "a number of type f32"},
      {"0f3F8CCCC", Scalar::f32, "0f and 8 hexadecimal digits"},
      {"0f3F8CCCCG", Scalar::f32, "0f and 8 hexadecimal digits"},
      {"0h3C0", Scalar::f16, "0h and 4 hexadecimal digits"},
      {"0d0", Scalar::f64, "0d and 16 hexadecimal digits"},
      {"1", Scalar::f16x2, "0x and 8 hexadecimal digits"},
      {"2147483648", Scalar::i32, "fits i32"},
      {"-2147483649", Scalar::i32, "fits i32"},
      {"9223372036854775808", Scalar::i64, "fits i64"},
      {"99999999999999999999", Scalar::i64, "fits i64"},
      {"0x100000000", Scalar::i32, "32 bits"},
      {"1.5", Scalar::i32, "an integer of type i32"},
      {"-", Scalar::i32, "an integer of type i32"},
      {"1", Scalar::pred, "true or false"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.token, name_of(c.scalar));
    CHECK_THAT(parse_literal(c.token, c.scalar).error, Catch::Contains(c.error));
  }
}
