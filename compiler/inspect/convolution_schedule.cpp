#include "compiler/inspect/convolution_schedule.h"

#include "compiler/inspect/staged_region.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsertc {
namespace {

constexpr uint64_t kWarp = 32;
/// Estimates for streamed code and for threads of several columns: what a warp of border code takes
/// beside one of interior code, and that fetching a variant of the code once is as dear as one warp
/// that runs it. (Of unrolled code for one column a thread the former is less, the latter far more:
/// README.md.)
constexpr double kBorderCost = 1.25;
/// Loads under one question about a tap, in a tile of kTypicalRows rows: enough that waiting for
/// the first of them weighs little.
constexpr double kLoadsPerQuestion = 64;
constexpr int kTypicalRows = 32;
constexpr uint32_t kLeastChannels = 8;

uint64_t ceil_div(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

/// Offsets inside an image and strides from image to image are signed 32-bit numbers of bytes.
void settle_leading(uint64_t& leading, uint64_t least, uint64_t lines, uint32_t element,
                    const char* name, const char* step) {
  if (leading == 0)
    leading = std::max<uint64_t>(least, 1);
  if (leading < least)
    throw UsageError(fmt::format("{} is {} but must be at least {}, from one {} to the next", name,
                                 leading, least, step));
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  if (leading > kMost / element || leading * element > kMost / std::max<uint64_t>(lines, 1))
    throw UsageError(fmt::format("{} of {} elements makes an image of over 2 GiB", name, leading),
                     "convolve a part of the channels, or of the image, at a time");
}

double cost(uint64_t pixels, double of_warp) {
  return pixels == 0 ? 0.0 : of_warp * (static_cast<double>(ceil_div(pixels, kWarp)) + 1);
}

PixelSet all_pixels(uint32_t rows, uint32_t columns) {
  return {{0, rows, rows, 0}, {0, columns, columns, 0}, false, false};
}

uint32_t choose_border_channels(const Pattern& pattern, const Convolution& convolution) {
  if (pattern.nnz() == 0)
    return std::max(1u, convolution.channels);
  const double density =
      static_cast<double>(pattern.nnz()) / (static_cast<double>(pattern.rows) * pattern.columns);
  const double used = 1 - std::pow(1 - density, kTypicalRows);
  const double wanted = kLoadsPerQuestion / std::max(used, 1e-9);
  uint32_t channels = kLeastChannels;
  while (channels < wanted && channels < convolution.channels)
    channels *= 2;
  return std::min(channels, convolution.channels);
}

/// Blocks of a set on the host: parts of its lines, or single pixels where a block is longer.
uint64_t host_blocks(const PixelSet& set, uint32_t columns_per_block) {
  return set.is_taken_singly(columns_per_block)
             ? set.count()
             : set.line().count * ceil_div(set.along().count, columns_per_block);
}

} // namespace

void settle_convolution(SpmmSchedule& schedule) {
  SpmmProblem& problem = schedule.problem;
  check_convolution(*problem.convolution);
  const Convolution convolution = without_rows_of_pixels(*problem.convolution);
  const bool nchw = problem.layout == Layout::row_major;
  const uint64_t in = convolution.in_pixels(), out = convolution.out_pixels();
  const uint32_t element = element_bytes(problem.type);
  const char* step = nchw ? "image" : "pixel";
  settle_leading(problem.ldb, convolution.channels * (nchw ? in : 1), nchw ? 1 : in, element, "ldb",
                 step);
  settle_leading(problem.ldc, schedule.rows * (nchw ? out : 1), nchw ? 1 : out, element, "ldc",
                 step);
  if (problem.columns && *problem.columns * out > kMaximumDimension)
    throw UsageError(
        fmt::format("--conv: {} images of {} output pixels are too many", *problem.columns, out),
        fmt::format("at most {} output pixels; convolve some images at a time", kMaximumDimension));
  schedule.request = problem;
  const bool is_product = convolution.is_pointwise() && (!nchw || problem.columns == 1u);
  if (!is_product) {
    problem.convolution = convolution;
    return;
  }
  problem.convolution.reset();
  schedule.columns_per_n = static_cast<uint32_t>(out);
  if (problem.columns)
    problem.columns = static_cast<uint32_t>(*problem.columns * out);
  if (nchw)
    problem.ldb = problem.ldc = out;
}

std::vector<TapClass> border_taps(const SpmmSchedule& schedule) {
  return tap_classes(*schedule.problem.convolution, schedule.pixels.border);
}

bool has_interior_and_border(const Convolution& convolution) {
  const OutputPixels parted = output_pixels(convolution, true);
  return !parted.interior.empty() && !parted.border.empty();
}

bool interior_pays(const SpmmSchedule& schedule) {
  const Convolution& convolution = *schedule.problem.convolution;
  const uint64_t images = std::max(1u, schedule.problem.columns.value_or(1));
  const OutputPixels parted = output_pixels(convolution, true);
  return cost(parted.interior_count() * images, 1) +
             cost(parted.border_count() * images, kBorderCost) <=
         cost(convolution.out_pixels() * images, kBorderCost);
}

void plan_border(const Pattern& pattern, BorderCode border, SpmmSchedule& schedule) {
  if (!schedule.problem.convolution)
    return;
  const Convolution& convolution = *schedule.problem.convolution;
  if (stages_images(schedule)) { // what lies outside is staged as zeros
    schedule.pixels.interior = {all_pixels(convolution.out_height(), convolution.out_width())};
    return;
  }
  schedule.pixels = output_pixels(convolution, border == BorderCode::own);
  schedule.border_channels = choose_border_channels(pattern, convolution);
  if (has_interior_and_border(convolution))
    schedule.tile.border = border;
}

CodeSize unrolled_size(const Pattern& pattern, const SpmmSchedule& schedule, uint32_t vec) {
  CodeSize size;
  const bool is_product = !schedule.problem.convolution;
  if (is_product || !schedule.pixels.interior.empty())
    size = {pattern.nnz() * vec, uint64_t{pattern.rows} * vec};
  if (is_product || schedule.pixels.border.empty())
    return size;
  const std::vector<TapClass> taps = border_taps(schedule);
  for (uint32_t column : pattern.column_index)
    size.multiply_adds += taps[column % taps.size()].possible ? 1 : 0;
  size.stores += pattern.rows;
  return size;
}

uint32_t host_line_length(const SpmmSchedule& schedule) {
  uint64_t most = 0;
  uint32_t length = 1;
  for (const auto* sets : {&schedule.pixels.interior, &schedule.pixels.border_lines})
    for (const PixelSet& set : *sets)
      if (!set.is_taken_singly(1) && set.count() > most) {
        most = set.count();
        length = set.along().count;
      }
  return length;
}

SpmmSchedule variant_of(const SpmmSchedule& schedule, const BlockRange& range) {
  SpmmSchedule variant = schedule;
  variant.asks_taps = range.border;
  if (range.border) { // each of a thread's pixels has taps of its own
    variant.tile.vec = 1;
    variant.neighbouring_columns = false;
  }
  if (schedule.problem.convolution && !stages_images(schedule)) {
    const std::optional<uint32_t>& images = schedule.problem.columns;
    variant.guarded = !schedule.target.is_host &&
                      (!images || *images * range.grid.items % range.grid.items_per_block != 0);
  }
  return variant;
}

void add_ranges(SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  schedule.ranges.clear();
  if (!problem.convolution) {
    schedule.ranges.push_back({{schedule.columns_per_n, schedule.columns_per_block()}, false, {}});
    schedule.guarded = !problem.columns || *problem.columns % schedule.columns_per_block() != 0;
    return;
  }
  if (stages_images(schedule)) {
    if (staging_piece_bytes(schedule) == 0)
      return; // refused later
    const Convolution& convolution = *problem.convolution;
    const uint32_t line = staged_region(schedule).line;
    const PixelSet positions = all_pixels(convolution.out_height(), line);
    schedule.ranges.push_back(
        {{positions.count(), schedule.columns_per_block()}, false, {positions}});
    schedule.guarded = line != convolution.out_width() || !problem.columns ||
                       *problem.columns * positions.count() % schedule.columns_per_block() != 0;
    return;
  }
  const OutputPixels& pixels = schedule.pixels;
  const uint32_t of_border = schedule.threads_x;
  const auto add = [&](const std::vector<PixelSet>& sets, bool border, uint32_t per_block) {
    uint64_t count = 0;
    for (const PixelSet& set : sets)
      count += set.count();
    if (count != 0)
      schedule.ranges.push_back({{count, per_block}, border, sets});
  };
  if (!schedule.target.is_host) {
    add(pixels.interior, false, schedule.columns_per_block());
    add(pixels.border, true, of_border);
  } else {
    for (const PixelSet& set : pixels.interior)
      schedule.ranges.push_back(
          {{host_blocks(set, schedule.columns_per_block()), 1}, false, {set}});
    for (const PixelSet& set : pixels.border_lines)
      schedule.ranges.push_back({{host_blocks(set, of_border), 1}, true, {set}});
  }
  schedule.guarded = variant_of(schedule, schedule.ranges.front()).guarded;
}

} // namespace sparsertc
