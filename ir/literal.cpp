#include "ir/literal.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>

namespace sparsertc::ir {
namespace {

/// An IEEE 754 binary format.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int total_bits() const { return 1 + exponent_bits + mantissa_bits; }
};
constexpr FloatFormat kHalf{5, 10};
constexpr FloatFormat kBfloat{8, 7};
constexpr FloatFormat kSingle{8, 23};
constexpr FloatFormat kDouble{11, 52};

FloatFormat format_of(Scalar scalar) {
  switch (scalar) {
  case Scalar::f16:
    return kHalf;
  case Scalar::bf16:
    return kBfloat;
  case Scalar::f64:
    return kDouble;
  default:
    return kSingle;
  }
}

/// (-1)^negative * significand * 2^exponent, significand odd or 0.
struct Binary {
  bool negative = false;
  bool finite = true;
  uint64_t significand = 0;
  int exponent = 0;
};

Binary decode(uint64_t bits, FloatFormat format) {
  Binary value;
  value.negative = (bits >> (format.total_bits() - 1)) & 1;
  const uint64_t mantissa = bits & ((uint64_t{1} << format.mantissa_bits) - 1);
  const int biased = static_cast<int>((bits >> format.mantissa_bits) &
                                      ((uint64_t{1} << format.exponent_bits) - 1));
  if (biased == (1 << format.exponent_bits) - 1) {
    value.finite = false;
    return value;
  }
  value.significand = biased == 0 ? mantissa : mantissa | (uint64_t{1} << format.mantissa_bits);
  value.exponent = (biased == 0 ? 1 : biased) - format.bias() - format.mantissa_bits;
  if (value.significand != 0) {
    const int zeros = std::countr_zero(value.significand);
    value.significand >>= zeros;
    value.exponent += zeros;
  }
  return value;
}

struct Encoded {
  uint64_t bits;
  bool exact;
};

/// Rounds to nearest, ties to even; too large becomes infinity.
Encoded encode(Binary value, FloatFormat format) {
  const uint64_t sign = uint64_t{value.negative} << (format.total_bits() - 1);
  if (value.significand == 0)
    return {sign, true};
  const int length = 64 - std::countl_zero(value.significand);
  const int least_exponent = 1 - format.bias() - format.mantissa_bits;
  // Exponent of the result's last place: subnormal numbers share the least one.
  const int last = std::max(value.exponent + length - 1 - format.mantissa_bits, least_exponent);
  const int shift = value.exponent - last;
  uint64_t significand = value.significand;
  bool exact = true;
  if (shift >= 0) {
    significand <<= shift;
  } else if (-shift > 64) {
    significand = 0;
    exact = false;
  } else {
    const int dropped = -shift;
    const uint64_t kept = dropped == 64 ? 0 : significand >> dropped;
    const uint64_t rest =
        dropped == 64 ? significand : significand & ((uint64_t{1} << dropped) - 1);
    const uint64_t half = uint64_t{1} << (dropped - 1);
    exact = rest == 0;
    significand = kept + ((rest > half || (rest == half && (kept & 1))) ? 1 : 0);
  }
  // A carry out of the mantissa raises the exponent field by itself.
  const bool normal = (significand >> format.mantissa_bits) != 0;
  const uint64_t field = normal ? static_cast<uint64_t>(last - least_exponent) : 0;
  uint64_t bits = (field << format.mantissa_bits) + significand;
  const uint64_t infinity = ((uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
  if (last - least_exponent >= (1 << format.exponent_bits) - 2 || bits >= infinity) {
    bits = infinity;
    exact = false;
  }
  return {sign | bits, exact};
}

void append_hex(std::string& text, uint64_t value, int digits) {
  char buffer[16];
  for (int i = digits - 1; i >= 0; --i, value >>= 4)
    buffer[i] = "0123456789ABCDEF"[value & 15];
  text.append(buffer, static_cast<size_t>(digits));
}

void append_bits(std::string& text, Scalar scalar, uint64_t bits) {
  switch (scalar) {
  case Scalar::f16:
  case Scalar::bf16:
    text += "0h";
    append_hex(text, bits, 4);
    break;
  case Scalar::f64:
    text += "0d";
    append_hex(text, bits, 16);
    break;
  case Scalar::f32:
    text += "0f";
    append_hex(text, bits, 8);
    break;
  default:
    text += "0x";
    append_hex(text, bits, 8);
    break;
  }
}

constexpr int kDecimalBits = 10;
constexpr int kDecimalPlaces = 10;
constexpr int kDecimalLength = 24;

void append_float(std::string& text, Scalar scalar, uint64_t bits) {
  const Binary value = decode(bits, format_of(scalar));
  const int length = 64 - std::countl_zero(value.significand);
  if (!value.finite || length > kDecimalBits ||
      (value.significand != 0 &&
       (value.exponent < -kDecimalPlaces || value.exponent + length > kDecimalLength))) {
    append_bits(text, scalar, bits);
    return;
  }
  if (value.negative)
    text += '-';
  if (value.exponent >= 0 || value.significand == 0) {
    append_unsigned(text, value.significand << std::max(value.exponent, 0));
    return;
  }
  const int places = -value.exponent;
  append_unsigned(text, value.significand >> places);
  text += '.';
  // The fraction is f / 2^places: each multiplication by 10 brings out a digit, and it ends
  // exactly.
  uint64_t fraction = value.significand & ((uint64_t{1} << places) - 1);
  while (fraction != 0) {
    fraction *= 10;
    text += static_cast<char>('0' + (fraction >> places));
    fraction &= (uint64_t{1} << places) - 1;
  }
}

bool read_hex(std::string_view digits, uint64_t& value) {
  if (digits.empty() || digits.size() > 16)
    return false;
  value = 0;
  for (char c : digits) {
    uint64_t digit = 0;
    if (c >= '0' && c <= '9')
      digit = static_cast<uint64_t>(c - '0');
    else if (c >= 'A' && c <= 'F')
      digit = static_cast<uint64_t>(c - 'A' + 10);
    else if (c >= 'a' && c <= 'f')
      digit = static_cast<uint64_t>(c - 'a' + 10);
    else
      return false;
    value = value << 4 | digit;
  }
  return true;
}

Literal failure(std::string message) {
  return {0, std::move(message)};
}

Literal parse_integer(std::string_view token, Scalar scalar) {
  std::string_view digits = token;
  const bool negative = !digits.empty() && digits.front() == '-';
  if (negative)
    digits.remove_prefix(1);
  uint64_t magnitude = 0;
  const bool hexadecimal = digits.starts_with("0x");
  const unsigned width = scalar == Scalar::i32 ? 32 : 64;
  if (hexadecimal) {
    if (negative || !read_hex(digits.substr(2), magnitude) || (magnitude >> (width - 1)) > 1)
      return failure(fmt::format("an integer of {} bits", width));
    return {width == 32 ? static_cast<int32_t>(magnitude) : static_cast<int64_t>(magnitude), {}};
  }
  if (digits.empty())
    return failure(fmt::format("an integer of type {}", name_of(scalar)));
  const auto [end, status] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
  const uint64_t limit = (uint64_t{1} << (width - 1)) - (negative ? 0 : 1);
  if (status == std::errc::result_out_of_range ||
      (status == std::errc() && end == digits.data() + digits.size() && magnitude > limit))
    return failure(fmt::format("an integer that fits {}", name_of(scalar)));
  if (status != std::errc() || end != digits.data() + digits.size())
    return failure(fmt::format("an integer of type {}", name_of(scalar)));
  return {static_cast<int64_t>(negative ? uint64_t{0} - magnitude : magnitude), {}};
}

constexpr size_t kMostDecimalDigits = 18;

Literal parse_float(std::string_view token, Scalar scalar) {
  const FloatFormat format = format_of(scalar);
  std::string_view digits = token;
  Binary value;
  if (!digits.empty() && digits.front() == '-') {
    value.negative = true;
    digits.remove_prefix(1);
  }
  uint64_t number = 0;
  int places = 0;
  bool point = false;
  size_t count = 0;
  for (char c : digits) {
    if (c == '.' && !point && count != 0) {
      point = true;
    } else if (c >= '0' && c <= '9' && count < kMostDecimalDigits) {
      number = number * 10 + static_cast<uint64_t>(c - '0');
      places += point ? 1 : 0;
      ++count;
    } else {
      count = 0;
      break;
    }
  }
  if (count == 0 || digits.back() == '.') {
    std::string bits;
    append_bits(bits, scalar, 0);
    return failure(fmt::format("a number of type {} (decimal of at most {} digits without an "
                               "exponent, or bits like {})",
                               name_of(scalar), kMostDecimalDigits, bits));
  }
  // number / 10^places is a binary fraction only if 5^places divides the number.
  bool exact = true;
  uint64_t rest = number;
  for (int i = 0; i < places && exact; ++i) {
    exact = rest % 5 == 0;
    rest /= 5;
  }
  if (exact) {
    value.significand = rest;
    value.exponent = -places;
    const Encoded encoded = encode(value, format);
    if (encoded.exact)
      return {static_cast<int64_t>(encoded.bits), {}};
  }
  double nearest = 0;
  std::from_chars(token.data(), token.data() + token.size(), nearest);
  std::string bits;
  append_bits(bits, scalar, encode(decode(std::bit_cast<uint64_t>(nearest), kDouble), format).bits);
  return failure(fmt::format("a number that is exact in {}; the nearest one is written {}",
                             name_of(scalar), bits));
}

} // namespace

void append_unsigned(std::string& text, uint64_t value) {
  char buffer[20];
  char* begin = buffer + sizeof buffer;
  do {
    *--begin = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  text.append(begin, static_cast<size_t>(buffer + sizeof buffer - begin));
}

void append_integer(std::string& text, int64_t value) {
  if (value < 0)
    text += '-';
  append_unsigned(text, value < 0 ? uint64_t{0} - static_cast<uint64_t>(value)
                                  : static_cast<uint64_t>(value));
}

void append_literal(std::string& text, Scalar scalar, int64_t bits) {
  switch (scalar) {
  case Scalar::pred:
    text += bits != 0 ? "true" : "false";
    break;
  case Scalar::f16:
  case Scalar::bf16:
  case Scalar::f32:
  case Scalar::f64:
    append_float(text, scalar, static_cast<uint64_t>(bits));
    break;
  case Scalar::f16x2:
  case Scalar::bf16x2:
    append_bits(text, scalar, static_cast<uint64_t>(bits));
    break;
  case Scalar::none:
  case Scalar::i32:
  case Scalar::i64:
    append_integer(text, bits);
    break;
  }
}

Literal parse_literal(std::string_view token, Scalar scalar) {
  const auto bits = [&](std::string_view prefix, size_t digits) -> Literal {
    uint64_t value = 0;
    if (token.size() != digits + 2 || !token.starts_with(prefix) ||
        !read_hex(token.substr(2), value))
      return failure(fmt::format("{} and {} hexadecimal digits", prefix, digits));
    return {static_cast<int64_t>(value), {}};
  };
  switch (scalar) {
  case Scalar::pred:
    if (token == "true" || token == "false")
      return {token == "true", {}};
    return failure("true or false");
  case Scalar::i32:
  case Scalar::i64:
    return parse_integer(token, scalar);
  case Scalar::f16:
  case Scalar::bf16:
    return token.starts_with("0h") ? bits("0h", 4) : parse_float(token, scalar);
  case Scalar::f32:
    return token.starts_with("0f") ? bits("0f", 8) : parse_float(token, scalar);
  case Scalar::f64:
    return token.starts_with("0d") ? bits("0d", 16) : parse_float(token, scalar);
  case Scalar::f16x2:
  case Scalar::bf16x2:
    return bits("0x", 8);
  case Scalar::none:
    break;
  }
  return failure("a literal");
}

} // namespace sparsertc::ir
