// Where the values of a sparse matrix stand in assembled code, so that others can be written there:
// what binds a compiled layer to new weights.
//
// A value stands in the code as one element or, f64, as two (its low and its high word), each of 16
// or 32 bits: an instruction's immediate, or data. An element may have several places.
#pragma once

#include "ir/type.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sparsertc {

struct ValuePlaces {
  /// What the values are rounded to first (nearest even): f32, f16, bf16 or f64.
  ir::Scalar type = ir::Scalar::f32;
  /// How they stand in the code: as `type`, or f16 and bf16 widened to f32.
  ir::Scalar stored = ir::Scalar::f32;
  uint64_t values = 0;
  /// Place p begins at byte `offset[p]` of the code and holds element `element[p]`, which is
  /// value * elements_per_value() + word. Offsets ascend; places do not overlap.
  std::vector<uint32_t> offset, element;

  uint32_t element_bytes() const { return stored_half() ? 2 : 4; }
  uint32_t elements_per_value() const { return stored == ir::Scalar::f64 ? 2 : 1; }
  uint64_t elements() const { return values * elements_per_value(); }

private:
  bool stored_half() const { return ir::size_in_bytes(stored) == 2; }
};

/// The elements of values that are rounded to `type` and stand as `stored`: one number for each
/// element, in the order of the values. A value that is not finite after rounding ends it; its
/// index is then the result.
std::optional<size_t> encode_values(ir::Scalar type, ir::Scalar stored,
                                    std::span<const double> values,
                                    std::vector<uint32_t>& elements);
std::optional<size_t> encode_values(ir::Scalar type, ir::Scalar stored,
                                    std::span<const float> values, std::vector<uint32_t>& elements);

/// Writes the elements to their places in `code`, which is as long as the places say.
void write_elements(const ValuePlaces& places, std::span<const uint32_t> elements,
                    std::span<uint8_t> code);
/// What stands at the first place of each element, the inverse of write_elements.
std::vector<uint32_t> read_elements(const ValuePlaces& places, std::span<const uint8_t> code);

/// The float64 values that elements stand for.
std::vector<double> decode_values(ir::Scalar stored, std::span<const uint32_t> elements);

/// What is wrong with places in code of `code_bytes`, or null: an offset that does not ascend or
/// lies outside, an element that does not exist or has no place, a type that cannot be.
const char* find_fault(const ValuePlaces& places, uint64_t code_bytes);

} // namespace sparsertc
