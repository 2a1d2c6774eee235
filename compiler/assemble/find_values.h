// Finds the values of a sparse matrix in assembled code: by assembling it twice, with different
// markers for values, and comparing.
#pragma once

#include "ir/value_places.h"

#include <cstdint>
#include <span>
#include <string>

namespace sparsertc {

struct FoundValues {
  ValuePlaces places;
  /// Why the places cannot be known; empty where they are.
  std::string refusal;
};

/// `first` and `second` are the same program with two lists of values; the lists' elements are
/// those of encode_values, and no two elements have the same pair of bits.
///
/// Nothing is guessed. Every byte in which the two programs differ must belong to a place that
/// holds some element's bits of the first list in the first program and its bits of the second in
/// the second: then what depends on the values is a copy of them, and everything else is the same
/// for all values. And every element must have a place.
FoundValues find_values(std::span<const uint8_t> first, std::span<const uint8_t> second,
                        ir::Scalar type, ir::Scalar stored,
                        std::span<const uint32_t> first_elements,
                        std::span<const uint32_t> second_elements);

} // namespace sparsertc
