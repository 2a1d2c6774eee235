// Which taps of a filter lie inside the image for one output pixel: a bit for each row and each
// column of the filter, since a tap is inside where its row and its column are.
#pragma once

#include "compiler/inspect/output_pixels.h"
#include "ir/builder.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// Positions of the bits in words of 32: first the rows, then the columns.
class TapBits {
public:
  explicit TapBits(const Convolution& convolution)
      : rows_(convolution.filter_height), columns_(convolution.filter_width) {}

  uint32_t words() const { return (rows_ + columns_ + 31) / 32; }
  uint32_t row(uint32_t r) const { return r; }
  uint32_t column(uint32_t s) const { return rows_ + s; }

  /// The bits, a mask for each word, that must all be set for the tap.
  std::vector<uint32_t> asked(const TapClass& tap, uint32_t r, uint32_t s) const;

private:
  uint32_t rows_, columns_;
};

/// A predicate that all these bits are set in the words; invalid where none is asked.
ir::Reg write_tap_question(ir::Builder& builder, const std::vector<ir::Reg>& words,
                           const std::vector<uint32_t>& asked);

} // namespace sparsertc
