// Register words as values; internal to the interpreter.
#pragma once

#include "tests/support/ptx_interpreter_float.h"

#include <bit>
#include <cstdint>
#include <type_traits>

namespace sparsertc::ptx {

template <class T>
inline T from_word(uint64_t word) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(word));
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(word);
  else
    return static_cast<T>(word);
}
template <class T>
inline uint64_t to_word(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(value);
  else if constexpr (std::is_same_v<T, bool>)
    return value ? 1 : 0;
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

/// The hardware returns one NaN from f32 arithmetic, whatever NaN went in.
inline float canonical(float value) {
  return value != value ? std::bit_cast<float>(kCanonicalNan32) : value;
}

template <class Operation, class... Pairs>
uint32_t by_halves(Operation operation, Pairs... pairs) {
  const uint32_t low = operation(static_cast<uint16_t>(pairs)...);
  const uint32_t high = operation(static_cast<uint16_t>(pairs >> 16)...);
  return high << 16 | low;
}

} // namespace sparsertc::ptx
