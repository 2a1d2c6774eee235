#include "compiler/inspect/convolution.h"

#include "ir/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace sparsertc {
namespace {

/// Coordinates with padding, strides and dilations stay far inside 32 bits.
constexpr uint32_t kMostWord = 1u << 24;
/// Taps are tested as bits, one for each row and column of the filter.
constexpr uint32_t kMostFilter = 256;

constexpr std::string_view kKnownWords =
    "N, H, W, C, R, S, pad, pad_top, pad_bottom, pad_left, pad_right, stride, dilation, groups, "
    "taps=crs|rsc";

[[noreturn]] void fail(std::string_view item, const std::string& why) {
  throw UsageError(fmt::format("--conv: '{}': {}", item, why),
                   fmt::format("known words: {}", kKnownWords));
}

uint32_t parse_value(std::string_view item, std::string_view value, uint32_t least) {
  uint32_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc() || end != value.data() + value.size() || parsed < least ||
      parsed > kMostWord)
    fail(item, fmt::format("expected a whole number from {} to {}", least, kMostWord));
  return parsed;
}

struct NumberWord {
  std::string_view word;
  /// The second is null for words with one value; a pair is HEIGHTxWIDTH.
  uint32_t Convolution::*first;
  uint32_t Convolution::*second;
  uint32_t least;
};
constexpr NumberWord kNumbers[] = {
    {"H", &Convolution::height, nullptr, 1},
    {"W", &Convolution::width, nullptr, 1},
    {"C", &Convolution::channels, nullptr, 1},
    {"R", &Convolution::filter_height, nullptr, 1},
    {"S", &Convolution::filter_width, nullptr, 1},
    {"stride", &Convolution::stride_h, &Convolution::stride_w, 1},
    {"dilation", &Convolution::dilation_h, &Convolution::dilation_w, 1},
    {"groups", &Convolution::groups, nullptr, 1},
    {"pad_top", &Convolution::pad_top, nullptr, 0},
    {"pad_bottom", &Convolution::pad_bottom, nullptr, 0},
    {"pad_left", &Convolution::pad_left, nullptr, 0},
    {"pad_right", &Convolution::pad_right, nullptr, 0},
};

/// "2" or "2x3".
std::pair<uint32_t, uint32_t> parse_pair(std::string_view item, std::string_view value,
                                         uint32_t least) {
  const size_t cross = value.find('x');
  if (cross == std::string_view::npos) {
    const uint32_t both = parse_value(item, value, least);
    return {both, both};
  }
  return {parse_value(item, value.substr(0, cross), least),
          parse_value(item, value.substr(cross + 1), least)};
}

void parse_item(std::string_view item, ConvolutionWords& words) {
  const size_t equals = item.find('=');
  if (equals == std::string_view::npos)
    fail(item, "expected word=value");
  const std::string_view word = item.substr(0, equals), value = item.substr(equals + 1);
  Convolution& convolution = words.convolution;
  if (word == "N") {
    words.images_given = true;
    if (value != "dynamic")
      words.images = parse_value(item, value, 0);
    return;
  }
  if (word == "taps") {
    if (value != "crs" && value != "rsc")
      fail(item, "expected crs or rsc");
    convolution.taps = value == "crs" ? TapOrder::crs : TapOrder::rsc;
    return;
  }
  if (word == "pad") {
    const auto [h, w] = parse_pair(item, value, 0);
    convolution.pad_top = convolution.pad_bottom = h;
    convolution.pad_left = convolution.pad_right = w;
    return;
  }
  for (const NumberWord& number : kNumbers) {
    if (word != number.word)
      continue;
    if (number.second == nullptr) {
      convolution.*number.first = parse_value(item, value, number.least);
    } else {
      std::tie(convolution.*number.first, convolution.*number.second) =
          parse_pair(item, value, number.least);
    }
    return;
  }
  fail(item, "unknown word");
}

Place place_of(const Matrix& matrix) {
  return Place{matrix.name, 0, 0, {}};
}

/// Takes R, S and the channels of a group from the filters' shape, or checks them against it.
void settle_filters(const Matrix& filters, Convolution& convolution) {
  const std::vector<uint64_t>& shape = filters.source_shape;
  const bool crs = convolution.taps == TapOrder::crs;
  if (shape.size() == 4) {
    const uint64_t height = shape[crs ? 2 : 1], width = shape[crs ? 3 : 2];
    const auto settle = [&](uint32_t& given, uint64_t found, const char* word) {
      if (given != 0 && given != found)
        throw UserError(place_of(filters),
                        fmt::format("the filters have the shape [{}], so {} is {}, not {}",
                                    fmt::join(shape, ", "), word, found, given),
                        "leave R and S out, or say taps=rsc where the channels come last");
      given = static_cast<uint32_t>(std::min<uint64_t>(found, kMostWord));
    };
    settle(convolution.filter_height, height, "R");
    settle(convolution.filter_width, width, "S");
  } else if (!shape.empty()) {
    throw UserError(place_of(filters),
                    fmt::format("filters of the shape [{}] are not those of a two-dimensional "
                                "convolution",
                                fmt::join(shape, ", ")),
                    "expected [OC, IC / groups, R, S], or a matrix with R= and S= in --conv");
  }
  if (convolution.filter_height == 0 || convolution.filter_width == 0)
    throw UserError(place_of(filters),
                    fmt::format("the filters are a {} x {} matrix, which does not say how high and "
                                "wide they are",
                                filters.pattern.rows, filters.pattern.columns),
                    "give R= and S= in --conv");
  if (convolution.filter_height > kMostFilter || convolution.filter_width > kMostFilter)
    throw UserError(place_of(filters),
                    fmt::format("filters of {} x {} taps are too large", convolution.filter_height,
                                convolution.filter_width),
                    fmt::format("at most {} x {}", kMostFilter, kMostFilter));
}

/// Checks rows and columns of the filters and finds the number of channels.
void settle_channels(const Matrix& filters, Convolution& convolution) {
  const Pattern& pattern = filters.pattern;
  const uint32_t taps = convolution.filter_height * convolution.filter_width;
  if (pattern.columns % taps != 0)
    throw UserError(place_of(filters),
                    fmt::format("{} weights a filter are no multiple of R*S = {}*{}",
                                pattern.columns, convolution.filter_height,
                                convolution.filter_width),
                    "the flattened filters have IC/groups * R * S columns; correct R= and S=");
  if (pattern.rows % convolution.groups != 0)
    throw UserError(
        place_of(filters),
        fmt::format("groups={} does not divide the {} filters", convolution.groups, pattern.rows),
        "every group has the same number of filters");
  const uint64_t channels = uint64_t{pattern.columns / taps} * convolution.groups;
  if (convolution.channels != 0 && convolution.channels != channels)
    throw UserError(place_of(filters),
                    fmt::format("{} weights a filter of {} x {} taps in {} groups need an input of "
                                "{} channels, not C={}",
                                pattern.columns, convolution.filter_height,
                                convolution.filter_width, convolution.groups, channels,
                                convolution.channels),
                    "leave C out, or correct groups, R and S");
  if (channels * taps > kMaximumDimension)
    throw UserError(place_of(filters),
                    fmt::format("{} channels of {} taps are too many", channels, taps),
                    fmt::format("IC * R * S is at most {}", kMaximumDimension));
  convolution.channels = static_cast<uint32_t>(channels);
}

} // namespace

bool Convolution::is_pointwise() const {
  return filter_height == 1 && filter_width == 1 && stride_h == 1 && stride_w == 1 &&
         pad_top == 0 && pad_bottom == 0 && pad_left == 0 && pad_right == 0;
}

Tap tap_of(const Convolution& convolution, uint32_t k) {
  const uint32_t taps = convolution.filter_height * convolution.filter_width;
  return {k / taps, k % taps / convolution.filter_width, k % convolution.filter_width};
}

ConvolutionWords parse_convolution(std::string_view text) {
  ConvolutionWords words;
  std::vector<std::string_view> given;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::string_view word = item.substr(0, item.find('='));
    parse_item(item, words);
    const bool side = word.substr(0, 4) == "pad_";
    for (std::string_view before : given)
      if (before == word || (side && before == "pad") || (word == "pad" && before[0] == 'p'))
        fail(item, fmt::format("the padding or word '{}' is given twice", before));
    given.push_back(word);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  if (words.convolution.height == 0 || words.convolution.width == 0)
    throw UsageError("--conv: the image's height H and width W are needed",
                     "for example --conv=N=1,H=28,W=28,pad=1");
  return words;
}

std::string to_string(const Convolution& c) {
  return fmt::format("H={},W={},C={},R={},S={},stride={}x{},dilation={}x{},groups={},pad_top={},"
                     "pad_bottom={},pad_left={},pad_right={}{}",
                     c.height, c.width, c.channels, c.filter_height, c.filter_width, c.stride_h,
                     c.stride_w, c.dilation_h, c.dilation_w, c.groups, c.pad_top, c.pad_bottom,
                     c.pad_left, c.pad_right, c.taps == TapOrder::rsc ? ",taps=rsc" : "");
}

Matrix filters_as_matrix(Matrix filters, Convolution& convolution) {
  settle_filters(filters, convolution);
  settle_channels(filters, convolution);
  const uint32_t taps = convolution.filter_height * convolution.filter_width;
  const Pattern& flat = filters.pattern;
  const uint32_t group_channels = flat.columns / taps;
  if (convolution.groups == 1 && (convolution.taps == TapOrder::crs || taps == 1))
    return filters;

  Matrix matrix = filters;
  Pattern& pattern = matrix.pattern;
  pattern.columns = convolution.channels * taps;
  const uint32_t group_rows = std::max(1u, flat.rows / convolution.groups);
  std::vector<std::pair<uint32_t, uint64_t>> entries; // column, place in `filters`
  for (uint32_t row = 0; row < flat.rows; ++row) {
    entries.clear();
    const uint32_t first = row / group_rows * group_channels * taps;
    for (uint64_t i = flat.row_offset[row]; i < flat.row_offset[row + 1]; ++i) {
      uint32_t column = flat.column_index[i];
      if (convolution.taps == TapOrder::rsc)
        column = column % group_channels * taps + column / group_channels;
      entries.emplace_back(first + column, i);
    }
    std::sort(entries.begin(), entries.end());
    for (size_t i = 0; i < entries.size(); ++i) {
      const uint64_t to = flat.row_offset[row] + i;
      pattern.column_index[to] = entries[i].first;
      if (!filters.values.empty())
        matrix.values[to] = filters.values[entries[i].second];
      if (!filters.imaginary.empty())
        matrix.imaginary[to] = filters.imaginary[entries[i].second];
    }
  }
  return matrix;
}

void check_convolution(const Convolution& c) {
  if (c.height + c.pad_top + c.pad_bottom < c.window_height() ||
      c.width + c.pad_left + c.pad_right < c.window_width())
    throw UsageError(
        fmt::format("--conv: a window of {} x {} (filter {} x {}, dilation {} x {}) is larger than "
                    "the padded image of {} x {}",
                    c.window_height(), c.window_width(), c.filter_height, c.filter_width,
                    c.dilation_h, c.dilation_w, c.height + c.pad_top + c.pad_bottom,
                    c.width + c.pad_left + c.pad_right),
        "there is no output; pad more, dilate less, or correct H and W");
  if (c.in_pixels() > kMaximumDimension || c.out_pixels() > kMaximumDimension)
    throw UsageError(
        fmt::format("--conv: images of {} x {} pixels are too large", c.height, c.width),
        fmt::format("at most {} pixels", kMaximumDimension));
}

Convolution without_rows_of_pixels(const Convolution& convolution) {
  Convolution flat = convolution;
  if (convolution.is_pointwise()) {
    flat.height = 1;
    flat.width = static_cast<uint32_t>(convolution.in_pixels());
  }
  return flat;
}

} // namespace sparsertc
