// Which outputs of a convolution are interior, which are border, and in which order blocks of
// threads take them.
//
//            left                right          interior: the whole window lies inside the image.
//          +-----+--------------+-----+           Its code tests nothing.
//      top |  b  |      b       |  b  |         border:   some taps may lie outside. Its code asks,
//          +-----+--------------+-----+           once for each tap and chunk of channels, whether
//          |  b  |   interior   |  b  |           this thread's tap is inside, and skips what is
//          |     |              |     |           not: padding is never read and never multiplied.
//          +-----+--------------+-----+
//   bottom |  b  |      b       |  b  |         Or everything is border (border=shared):
//          +-----+--------------+-----+           one variant of the code instead of two.
#pragma once

#include "compiler/inspect/convolution.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// The numbers first, first + 1, ...; from the `split`-th on `skip` more.
struct Coordinates {
  uint32_t first = 0, count = 0, split = 0, skip = 0;
  uint32_t at(uint32_t i) const { return first + i + (i >= split ? skip : 0); }
  /// One run of consecutive numbers.
  bool is_run() const { return skip == 0 || split == 0 || split >= count; }
  bool operator==(const Coordinates&) const = default;
};

/// Output pixels: all of these rows with all of these columns, numbered line by line.
struct PixelSet {
  Coordinates rows, columns;
  /// A line is a column of the image instead of a row.
  bool lines_are_columns = false;
  /// All pixels of a line have the same taps inside.
  bool same_taps = false;

  const Coordinates& line() const { return lines_are_columns ? columns : rows; }
  const Coordinates& along() const { return lines_are_columns ? rows : columns; }
  uint64_t count() const { return uint64_t{rows.count} * columns.count; }
  /// Threads side by side cannot take so many pixels of a line, but only one pixel together.
  bool is_taken_singly(uint32_t pixels) const {
    return !same_taps || !along().is_run() || along().count < pixels;
  }
  bool operator==(const PixelSet&) const = default;
};

/// A partition of the output pixels of an image.
struct OutputPixels {
  /// Empty, or one set.
  std::vector<PixelSet> interior;
  /// As few sets as can be, for threads that each find their own pixel; and the same pixels in sets
  /// whose lines have the same taps inside all along, or else are to be taken pixel by pixel.
  std::vector<PixelSet> border, border_lines;

  uint64_t interior_count() const;
  uint64_t border_count() const;
};
/// With `split`, pixels whose whole window is inside are interior; without, all are border, unless
/// all are interior.
OutputPixels output_pixels(const Convolution& convolution, bool split);

/// Where a tap lies over a set of pixels.
enum class Inside : uint8_t { never, sometimes, always };
/// Filter row (column) r over the image rows (columns) of these output rows (columns).
Inside row_inside(const Convolution& convolution, const Coordinates& rows, uint32_t r);
Inside column_inside(const Convolution& convolution, const Coordinates& columns, uint32_t s);

/// What of each tap must be asked over all of these sets; `possible`: it is inside for some pixel.
struct TapClass {
  bool possible = false;
  bool asks_row = false, asks_column = false;
};
/// Of tap (r, s): element r * S + s.
std::vector<TapClass> tap_classes(const Convolution& convolution,
                                  const std::vector<PixelSet>& sets);

} // namespace sparsertc
