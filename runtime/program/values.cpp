#include "runtime/program/values.h"

#include "ir/error.h"
#include "ir/float_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace sparsertc::program {
namespace {

using ir::Op;
using ir::Opcode;
using ir::Scalar;

template <class T>
T get(Bits bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(bits);
  else
    return static_cast<T>(bits);
}

template <class T>
Bits put(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(value);
  else
    return static_cast<Bits>(static_cast<int64_t>(value));
}

[[noreturn]] void refuse(const Op& op) {
  throw UserError(
      fmt::format("'{}' on {} in a host function", ir::info(op.code).text, ir::to_string(op.type)),
      "programs that are executed compute in i32, i64, f32 and f64 on the host; convert "
      "first, or let a kernel do it");
}

template <class T>
bool compare(ir::Comparison how, T a, T b) {
  using Unsigned = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                               std::type_identity<T>>::type;
  const auto ua = static_cast<Unsigned>(a), ub = static_cast<Unsigned>(b);
  switch (how) {
  case ir::Comparison::eq:
    return a == b;
  case ir::Comparison::ne:
    return a != b;
  case ir::Comparison::lt:
    return a < b;
  case ir::Comparison::le:
    return a <= b;
  case ir::Comparison::gt:
    return a > b;
  case ir::Comparison::ge:
    return a >= b;
  case ir::Comparison::ltu:
    return ua < ub;
  case ir::Comparison::leu:
    return ua <= ub;
  case ir::Comparison::gtu:
    return ua > ub;
  case ir::Comparison::geu:
    return ua >= ub;
  }
  return false;
}

template <class T>
Bits integer(const Op& op, std::span<const Bits, 3> in) {
  using Unsigned = std::make_unsigned_t<T>;
  constexpr uint64_t kWidth = 8 * sizeof(T);
  const T a = get<T>(in[0]), b = get<T>(in[1]);
  const auto ua = static_cast<Unsigned>(a), ub = static_cast<Unsigned>(b);
  const auto result = [](Unsigned value) { return put(static_cast<T>(value)); };
  const uint64_t shift = static_cast<uint32_t>(in[1]);
  switch (op.code) {
  case Opcode::add:
    return result(static_cast<Unsigned>(ua + ub));
  case Opcode::sub:
    return result(static_cast<Unsigned>(ua - ub));
  case Opcode::mul:
    return result(static_cast<Unsigned>(ua * ub));
  case Opcode::divu:
    return ub == 0 ? 0 : result(ua / ub); // undefined
  case Opcode::remu:
    return ub == 0 ? 0 : result(ua % ub);
  case Opcode::neg:
    return result(static_cast<Unsigned>(0 - ua));
  case Opcode::abs:
    return result(a < 0 ? static_cast<Unsigned>(0 - ua) : ua);
  case Opcode::min:
    return put(std::min(a, b));
  case Opcode::max:
    return put(std::max(a, b));
  case Opcode::minu:
    return result(std::min(ua, ub));
  case Opcode::maxu:
    return result(std::max(ua, ub));
  case Opcode::bit_and:
    return result(ua & ub);
  case Opcode::bit_or:
    return result(ua | ub);
  case Opcode::bit_xor:
    return result(ua ^ ub);
  case Opcode::bit_not:
    return result(static_cast<Unsigned>(~ua));
  case Opcode::shl:
    return shift >= kWidth ? 0 : result(static_cast<Unsigned>(ua << shift));
  case Opcode::shr:
    return shift >= kWidth ? 0 : result(static_cast<Unsigned>(ua >> shift));
  case Opcode::sar:
    return put(static_cast<T>(a >> std::min(shift, kWidth - 1)));
  case Opcode::popc:
    return static_cast<Bits>(std::popcount(ua));
  case Opcode::clz:
    return static_cast<Bits>(std::countl_zero(ua));
  case Opcode::brev: {
    Unsigned reversed = 0;
    for (uint64_t i = 0; i < kWidth; ++i)
      reversed = static_cast<Unsigned>(reversed << 1 | (ua >> i & 1));
    return result(reversed);
  }
  case Opcode::compare:
    return compare(static_cast<ir::Comparison>(op.detail), a, b);
  default:
    refuse(op);
  }
}

template <class T>
Bits floating(const Op& op, std::span<const Bits, 3> in) {
  const T a = get<T>(in[0]), b = get<T>(in[1]), c = get<T>(in[2]);
  switch (op.code) {
  case Opcode::add:
    return put(a + b);
  case Opcode::sub:
    return put(a - b);
  case Opcode::mul:
    return put(a * b);
  case Opcode::fma:
    return put(std::fma(a, b, c));
  case Opcode::div:
    return put(a / b);
  case Opcode::sqrt:
    return put(std::sqrt(a));
  case Opcode::neg:
    return put(-a);
  case Opcode::abs:
    return put(std::abs(a));
  case Opcode::compare:
    return compare(static_cast<ir::Comparison>(op.detail), a, b);
  default:
    refuse(op);
  }
}

Bits predicate(const Op& op, std::span<const Bits, 3> in) {
  switch (op.code) {
  case Opcode::bit_and:
    return in[0] & in[1];
  case Opcode::bit_or:
    return in[0] | in[1];
  case Opcode::bit_xor:
    return in[0] ^ in[1];
  case Opcode::bit_not:
    return in[0] ^ 1;
  default:
    refuse(op);
  }
}

double widened(Scalar type, Bits bits) {
  switch (type) {
  case Scalar::f16:
    return from_f16(static_cast<uint16_t>(bits));
  case Scalar::bf16:
    return from_bf16(static_cast<uint16_t>(bits));
  case Scalar::f32:
    return get<float>(bits);
  default:
    return get<double>(bits);
  }
}

/// To an integer, saturating; NaN gives 0.
Bits to_integer(Scalar type, double value, ir::Conversion how) {
  if (std::isnan(value))
    return 0;
  const double whole = how == ir::Conversion::floor      ? std::floor(value)
                       : how == ir::Conversion::ceil     ? std::ceil(value)
                       : how == ir::Conversion::truncate ? std::trunc(value)
                                                         : std::nearbyint(value);
  const bool narrow = type == Scalar::i32;
  const int64_t least =
      narrow ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
  const int64_t most =
      narrow ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int64_t>::max();
  // The largest i64 is no double; what is at least 2^63 is too large.
  if (whole >= (narrow ? static_cast<double>(most) : 9223372036854775808.0))
    return put(most);
  if (whole <= static_cast<double>(least))
    return put(least);
  return put(static_cast<int64_t>(whole));
}

Bits convert(const Op& op, Scalar source, Bits in) {
  const Scalar to = op.type.element();
  const auto how = static_cast<ir::Conversion>(op.detail);
  const bool from_integer = source == Scalar::i32 || source == Scalar::i64;
  if (to == Scalar::i32 || to == Scalar::i64) {
    if (!from_integer)
      return to_integer(to, widened(source, in), how);
    if (to == Scalar::i32)
      return put(static_cast<int32_t>(in));
    return how == ir::Conversion::zero ? static_cast<uint32_t>(in) : in;
  }
  if (from_integer) {
    const auto value = static_cast<int64_t>(in);
    return to == Scalar::f32 ? put(static_cast<float>(value)) : put(static_cast<double>(value));
  }
  const double value = widened(source, in);
  switch (to) {
  case Scalar::f16:
    return to_f16(value);
  case Scalar::bf16:
    return to_bf16(value);
  case Scalar::f32:
    return to_f32(value);
  default:
    return put(value);
  }
}

} // namespace

Bits load_element(Scalar type, const void* address) {
  Bits bits = 0;
  std::memcpy(&bits, address, ir::size_in_bytes(type));
  return type == Scalar::i32 ? put(static_cast<int32_t>(bits)) : bits;
}

void store_element(Scalar type, void* address, Bits value) {
  std::memcpy(address, &value, ir::size_in_bytes(type));
}

Bits evaluate(const Op& op, ir::Type source, std::span<const Bits, 3> in) {
  switch (op.code) {
  case Opcode::constant:
  case Opcode::move:
    return in[0];
  case Opcode::select:
    return in[0] != 0 ? in[1] : in[2];
  case Opcode::offset:
    return in[0] + in[1];
  case Opcode::index:
    return in[0] + static_cast<Bits>(static_cast<int64_t>(static_cast<int32_t>(in[1])) *
                                     static_cast<int32_t>(in[2]));
  case Opcode::convert:
    return convert(op, source.element(), in[0]);
  case Opcode::bitcast:
    return op.type == Scalar::i32                      ? put(static_cast<int32_t>(in[0]))
           : ir::size_in_bytes(op.type.element()) == 4 ? static_cast<uint32_t>(in[0])
                                                       : in[0];
  default:
    break;
  }
  if (!op.type.is_scalar())
    refuse(op);
  switch (op.type.element()) {
  case Scalar::pred:
    return predicate(op, in);
  case Scalar::i32:
    return integer<int32_t>(op, in);
  case Scalar::i64:
    return integer<int64_t>(op, in);
  case Scalar::f32:
    return floating<float>(op, in);
  case Scalar::f64:
    return floating<double>(op, in);
  default:
    refuse(op);
  }
}

} // namespace sparsertc::program
