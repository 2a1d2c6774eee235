// A two-dimensional convolution as a sparse product: the geometry that the user gives, and the
// filters as a matrix A of OC x IC*R*S whose column (c * R + r) * S + s stands for tap (r, s) of
// input channel c. B is virtual: the element of row k and of an output pixel is the image's element
// under that tap, if the tap is inside.
#pragma once

#include "compiler/input/matrix.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// In which order a filter's weights follow one another: channel, row, column, or row, column,
/// channel.
enum class TapOrder : uint8_t { crs, rsc };

struct Convolution {
  uint32_t height = 0, width = 0; ///< of the input image, without padding
  uint32_t channels = 0;          ///< IC, of the whole input; 0: follows from the filters
  /// R and S; 0: the filters' own shape says.
  uint32_t filter_height = 0, filter_width = 0;
  uint32_t stride_h = 1, stride_w = 1;
  uint32_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  uint32_t dilation_h = 1, dilation_w = 1;
  /// Output channel oc reads the IC / groups input channels of group oc / (OC / groups).
  uint32_t groups = 1;
  /// Of the filters as they are read; the matrix A is always crs.
  TapOrder taps = TapOrder::crs;

  uint32_t window_height() const { return (filter_height - 1) * dilation_h + 1; }
  uint32_t window_width() const { return (filter_width - 1) * dilation_w + 1; }
  uint32_t out_height() const {
    return (height + pad_top + pad_bottom - window_height()) / stride_h + 1;
  }
  uint32_t out_width() const {
    return (width + pad_left + pad_right - window_width()) / stride_w + 1;
  }
  uint64_t in_pixels() const { return uint64_t{height} * width; }
  uint64_t out_pixels() const { return uint64_t{out_height()} * out_width(); }
  /// Every output pixel has one tap, the input pixel of the same number.
  bool is_pointwise() const;

  bool operator==(const Convolution&) const = default;
};

/// Input channel, filter row and filter column of a row of B.
struct Tap {
  uint32_t channel, row, column;
};
Tap tap_of(const Convolution& convolution, uint32_t k);

/// The words of `--conv=N=1,H=28,W=28,pad=1x2,...`.
struct ConvolutionWords {
  Convolution convolution;
  /// N, the number of images; nothing where it is "dynamic" or not given.
  std::optional<uint32_t> images;
  bool images_given = false;
};
/// Parses the words; throws UsageError naming the word and the known ones.
ConvolutionWords parse_convolution(std::string_view text);
/// "H=28,W=28,C=64,R=3,S=3,..." in a fixed order, without N; taps only where they are rsc. Parses
/// back.
std::string to_string(const Convolution& convolution);

/// The filters as the matrix A, and `convolution` with what follows from them. Filters have the
/// shape [OC, IC / groups, R, S] (taps=rsc: [OC, R, S, IC / groups]), or are flattened to
/// OC x IC/groups*R*S, with R and S given. Throws UserError where shape and geometry disagree.
Matrix filters_as_matrix(Matrix filters, Convolution& convolution);

/// Throws UsageError where a complete geometry has no output or is too large to be addressed.
void check_convolution(const Convolution& convolution);

/// One long row of pixels instead of an image, where no tap looks sideways.
Convolution without_rows_of_pixels(const Convolution& convolution);

} // namespace sparsertc
