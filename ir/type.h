// Types of the IR: a scalar, or a pointer to a scalar in one memory space.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sparsertc::ir {

/// Element types. The pairs (f16x2, bf16x2) fill one 32-bit register; the first element is the low
/// half.
enum class Scalar : uint8_t { none, pred, i32, i64, f16, f16x2, bf16, bf16x2, f32, f64 };

/// Memory spaces. `none` marks a type that is no pointer. `any` is host or device memory, not
/// decided yet: it exists in host functions until the pass `place` has run, and no emitter takes
/// it. `cluster` is shared memory of any block of the executing block's cluster.
enum class Space : uint8_t { none, host, device, shared, constant, any, cluster };

/// A type in one byte. Space is part of a pointer's type, so that host code which reads device
/// memory element by element is ill-typed.
class Type {
public:
  constexpr Type() = default;
  constexpr Type(Scalar scalar)
      : scalar_(scalar), space_(Space::none) {} // NOLINT: a scalar is a type
  static constexpr Type pointer(Space space, Scalar element) {
    Type type(element);
    type.space_ = space;
    return type;
  }

  constexpr bool is_pointer() const { return space_ != Space::none; }
  constexpr bool is_none() const { return scalar_ == Scalar::none; }
  constexpr bool is_scalar() const { return !is_pointer() && !is_none(); }
  /// The scalar itself, or what the pointer points to.
  constexpr Scalar element() const { return scalar_; }
  constexpr Space space() const { return space_; }
  constexpr bool is_integer() const {
    return !is_pointer() && (scalar_ == Scalar::i32 || scalar_ == Scalar::i64);
  }
  constexpr bool is_float() const { return !is_pointer() && scalar_ >= Scalar::f16; }
  constexpr bool is_pair() const {
    return !is_pointer() && (scalar_ == Scalar::f16x2 || scalar_ == Scalar::bf16x2);
  }

  friend constexpr bool operator==(Type, Type) = default;

private:
  Scalar scalar_ : 4 = Scalar::none;
  Space space_ : 4 = Space::none;
};
static_assert(sizeof(Type) == 1);

/// Bytes of one element in memory; `pred` has no memory form (0).
constexpr uint32_t size_in_bytes(Scalar scalar) {
  switch (scalar) {
  case Scalar::none:
  case Scalar::pred:
    return 0;
  case Scalar::f16:
  case Scalar::bf16:
    return 2;
  case Scalar::i32:
  case Scalar::f16x2:
  case Scalar::bf16x2:
  case Scalar::f32:
    return 4;
  case Scalar::i64:
  case Scalar::f64:
    return 8;
  }
  return 0;
}

/// f16x2 -> f16, bf16x2 -> bf16, anything else unchanged.
constexpr Scalar half_of_pair(Scalar scalar) {
  if (scalar == Scalar::f16x2)
    return Scalar::f16;
  if (scalar == Scalar::bf16x2)
    return Scalar::bf16;
  return scalar;
}

std::string_view name_of(Scalar scalar);
std::string_view name_of(Space space);
/// "f32", or "device.f32" for a pointer to f32 in device memory.
std::string to_string(Type type);
std::optional<Scalar> scalar_from_name(std::string_view name);
std::optional<Space> space_from_name(std::string_view name);

} // namespace sparsertc::ir
