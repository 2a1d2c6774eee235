#include "ir/value_places.h"

#include "ir/float_bits.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace sparsertc {
namespace {

using ir::Scalar;

/// The bits of one value in a type of 16 or 32 bits.
template <Scalar type>
uint32_t bits_of(double value) {
  if constexpr (type == Scalar::f16)
    return to_f16(value);
  else if constexpr (type == Scalar::bf16)
    return to_bf16(value);
  else
    return std::bit_cast<uint32_t>(static_cast<float>(value));
}

template <Scalar type>
constexpr uint32_t kInfinity = type == Scalar::f16    ? 0x7C00u
                               : type == Scalar::bf16 ? 0x7F80u
                                                      : 0x7F800000u;

/// f16 and bf16 that stand as f32 are widened, which is exact.
template <Scalar type, Scalar stored>
uint32_t widened(uint32_t bits) {
  if constexpr (type == stored)
    return bits;
  else if constexpr (type == Scalar::bf16)
    return bits << 16;
  else
    return std::bit_cast<uint32_t>(static_cast<float>(from_f16(static_cast<uint16_t>(bits))));
}

// The loops below do not stop at a value that is not finite, which is rare: they note it.

template <Scalar type, Scalar stored, typename Value>
bool encode(std::span<const Value> values, uint32_t* elements) {
  bool finite = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = bits_of<type>(values[i]);
    finite &= (bits & kInfinity<type>) != kInfinity<type>;
    elements[i] = widened<type, stored>(bits);
  }
  return finite;
}

template <typename Value>
bool encode_f64(std::span<const Value> values, uint32_t* elements) {
  bool finite = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(values[i]));
    constexpr uint64_t kInfinityF64 = uint64_t{0x7FF} << 52;
    finite &= (bits & kInfinityF64) != kInfinityF64;
    elements[2 * i] = static_cast<uint32_t>(bits);
    elements[2 * i + 1] = static_cast<uint32_t>(bits >> 32);
  }
  return finite;
}

template <typename Value>
bool encode_all(Scalar type, Scalar stored, std::span<const Value> values, uint32_t* elements) {
  if (stored == Scalar::f64)
    return encode_f64(values, elements);
  if (type == Scalar::f32)
    return encode<Scalar::f32, Scalar::f32>(values, elements);
  const bool as_f32 = stored == Scalar::f32;
  if (type == Scalar::f16)
    return as_f32 ? encode<Scalar::f16, Scalar::f32>(values, elements)
                  : encode<Scalar::f16, Scalar::f16>(values, elements);
  return as_f32 ? encode<Scalar::bf16, Scalar::f32>(values, elements)
                : encode<Scalar::bf16, Scalar::bf16>(values, elements);
}

template <typename Value>
std::optional<size_t> encode_any(Scalar type, Scalar stored, std::span<const Value> values,
                                 std::vector<uint32_t>& elements) {
  elements.resize(values.size() * (stored == Scalar::f64 ? 2 : 1));
  if (encode_all(type, stored, values, elements.data()))
    return std::nullopt;
  uint32_t one[2];
  size_t first = 0;
  while (encode_all(type, stored, values.subspan(first, 1), one))
    ++first;
  return first;
}

template <typename Element>
void write(const ValuePlaces& places, std::span<const uint32_t> elements, uint8_t* code) {
  for (size_t p = 0; p < places.offset.size(); ++p) {
    const auto bits = static_cast<Element>(elements[places.element[p]]);
    std::memcpy(code + places.offset[p], &bits, sizeof bits);
  }
}

} // namespace

std::optional<size_t> encode_values(Scalar type, Scalar stored, std::span<const double> values,
                                    std::vector<uint32_t>& elements) {
  return encode_any(type, stored, values, elements);
}

std::optional<size_t> encode_values(Scalar type, Scalar stored, std::span<const float> values,
                                    std::vector<uint32_t>& elements) {
  return encode_any(type, stored, values, elements);
}

void write_elements(const ValuePlaces& places, std::span<const uint32_t> elements,
                    std::span<uint8_t> code) {
  if (places.element_bytes() == 2)
    write<uint16_t>(places, elements, code.data());
  else
    write<uint32_t>(places, elements, code.data());
}

std::vector<uint32_t> read_elements(const ValuePlaces& places, std::span<const uint8_t> code) {
  std::vector<uint32_t> elements(places.elements(), 0);
  for (size_t p = places.offset.size(); p-- > 0;)
    std::memcpy(&elements[places.element[p]], &code[places.offset[p]], places.element_bytes());
  return elements;
}

std::vector<double> decode_values(Scalar stored, std::span<const uint32_t> elements) {
  std::vector<double> values(elements.size() / (stored == Scalar::f64 ? 2 : 1));
  for (size_t i = 0; i < values.size(); ++i)
    switch (stored) {
    case Scalar::f16:
      values[i] = from_f16(static_cast<uint16_t>(elements[i]));
      break;
    case Scalar::bf16:
      values[i] = from_bf16(static_cast<uint16_t>(elements[i]));
      break;
    case Scalar::f64:
      values[i] =
          std::bit_cast<double>(elements[2 * i] | static_cast<uint64_t>(elements[2 * i + 1]) << 32);
      break;
    default:
      values[i] = from_f32(elements[i]);
    }
  return values;
}

const char* find_fault(const ValuePlaces& places, uint64_t code_bytes) {
  const bool narrow = places.type == Scalar::f16 || places.type == Scalar::bf16;
  const bool known = narrow || places.type == Scalar::f32 || places.type == Scalar::f64;
  if (!known || !(places.stored == places.type || (narrow && places.stored == Scalar::f32)))
    return "the type of the values is not known";
  if (places.offset.size() != places.element.size())
    return "offsets and elements are not equally many";
  // Every element has a place: so there are not more elements than places, and memory for them.
  if (places.values > places.offset.size() || places.elements() > places.offset.size())
    return "a value has no place";
  std::vector<bool> has_place(places.elements(), false);
  uint64_t next = 0;
  for (size_t p = 0; p < places.offset.size(); ++p) {
    if (places.offset[p] < next)
      return "the places do not ascend";
    next = uint64_t{places.offset[p]} + places.element_bytes();
    if (next > code_bytes)
      return "a place lies outside the code";
    if (places.element[p] >= places.elements())
      return "a place of a value that does not exist";
    has_place[places.element[p]] = true;
  }
  for (const bool has : has_place)
    if (!has)
      return "a value has no place";
  return nullptr;
}

} // namespace sparsertc
