// Writes how a thread of a convolution finds its output pixel: from the number of an item or block
// to image, row and column, from there to pointers and to the taps that are inside.
#pragma once

#include "compiler/lower/number.h"
#include "compiler/lower/tap_bits.h"

#include "compiler/inspect/spmm_schedule.h"

#include <vector>

namespace sparsertc {

class PixelWriter {
public:
  struct Pixel {
    Number image, row, column;
  };
  /// `schedule` is the variant's, `range` the block's.
  PixelWriter(ir::Builder& builder, const SpmmSchedule& schedule, const BlockRange& range)
      : builder_(builder), arithmetic_(builder), schedule_(schedule), range_(range),
        convolution_(*schedule.problem.convolution) {}

  /// GPU: the pixel with this number among those of all images.
  Pixel of_item(ir::Reg item) const;

  /// Host: the first pixel of a block, which has a part of a line, or one pixel that all lanes
  /// compute.
  Pixel of_block(Number block) const;
  bool lanes_share_pixel() const;

  /// The pixel's pointers in row 0 of B and of C. That into the image is the place of the filter's
  /// first tap, which may lie outside.
  ir::Reg input(ir::Reg b, const Pixel& pixel) const;
  ir::Reg output(ir::Reg c, const Pixel& pixel) const;
  /// Bytes from one pixel of a line to the next.
  int64_t input_step() const;
  int64_t output_step() const;

  /// The words of TapBits for the pixel (and those that share its line).
  std::vector<ir::Reg> taps(const Pixel& pixel) const;

private:
  struct Position {
    Number row, column;
  };
  bool is_one_image() const { return schedule_.problem.columns == 1u; }
  Number coordinate(const Coordinates& coordinates, Number i) const;
  Position position(const PixelSet& set, Number line, Number along) const;
  ir::Reg choose(ir::Reg first, Number a, Number b) const;
  int64_t pixel_bytes(uint64_t leading) const;
  ir::Reg in_image(ir::Reg base, Number image, uint64_t pixels, uint64_t leading) const;
  void add_taps(std::vector<Number>& words, Number start, uint32_t count, uint32_t dilation,
                uint32_t size, uint32_t first_bit, const std::vector<Inside>& inside) const;

  ir::Builder& builder_;
  Arithmetic arithmetic_;
  const SpmmSchedule& schedule_;
  const BlockRange& range_;
  const Convolution& convolution_;
};

} // namespace sparsertc
