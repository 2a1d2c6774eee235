#include "compiler/inspect/output_pixels.h"

#include <algorithm>

namespace sparsertc {
namespace {

/// Outputs along one axis whose window is inside, as a run [begin, end).
struct Run {
  uint32_t begin = 0, end = 0;
  uint32_t count() const { return end - begin; }
};

Run interior_run(uint32_t size, uint32_t window, uint32_t stride, uint32_t pad, uint32_t outputs) {
  const uint32_t begin = std::min((pad + stride - 1) / stride, outputs);
  if (size + pad < window)
    return {begin, begin};
  const uint32_t end = std::min((size + pad - window) / stride + 1, outputs);
  return {begin, std::max(begin, end)};
}

Coordinates inside_of(Run run) {
  return {run.begin, run.count(), run.count(), 0};
}
/// What a run leaves of all outputs.
Coordinates outside_of(Run run, uint32_t outputs) {
  return {0, outputs - run.count(), run.begin, run.count()};
}

void add(std::vector<PixelSet>& sets, Coordinates rows, Coordinates columns, bool lines_are_columns,
         bool same_taps) {
  const PixelSet set = {rows, columns, lines_are_columns, same_taps};
  if (set.count() != 0)
    sets.push_back(set);
}

Inside inside(const Coordinates& outputs, uint32_t stride, uint32_t pad, uint32_t offset,
              uint32_t size) {
  bool some = false, all = true;
  for (uint32_t i = 0; i < outputs.count; ++i) {
    const int64_t at = int64_t{outputs.at(i)} * stride + offset - pad;
    const bool is_inside = at >= 0 && at < size;
    some = some || is_inside;
    all = all && is_inside;
  }
  return all ? Inside::always : some ? Inside::sometimes : Inside::never;
}

uint64_t count(const std::vector<PixelSet>& sets) {
  uint64_t sum = 0;
  for (const PixelSet& set : sets)
    sum += set.count();
  return sum;
}

} // namespace

uint64_t OutputPixels::interior_count() const {
  return count(interior);
}
uint64_t OutputPixels::border_count() const {
  return count(border);
}

OutputPixels output_pixels(const Convolution& c, bool split) {
  const uint32_t height = c.out_height(), width = c.out_width();
  const Run rows = interior_run(c.height, c.window_height(), c.stride_h, c.pad_top, height);
  const Run columns = interior_run(c.width, c.window_width(), c.stride_w, c.pad_left, width);
  const bool all_inside = rows.count() == height && columns.count() == width;
  OutputPixels pixels;
  const Run all_rows = {0, height}, all_columns = {0, width};
  if (split || all_inside)
    add(pixels.interior, inside_of(rows), inside_of(columns), false, true);
  else
    add(pixels.border_lines, inside_of(rows), inside_of(columns), false, true);
  if (pixels.interior.empty()) {
    add(pixels.border, inside_of(all_rows), inside_of(all_columns), false, false);
  } else {
    add(pixels.border, outside_of(rows, height), inside_of(all_columns), false, false);
    add(pixels.border, inside_of(rows), outside_of(columns, width), true, true);
  }
  add(pixels.border_lines, outside_of(rows, height), inside_of(columns), false, true);
  add(pixels.border_lines, inside_of(rows), outside_of(columns, width), true, true);
  add(pixels.border_lines, outside_of(rows, height), outside_of(columns, width), false, false);
  return pixels;
}

Inside row_inside(const Convolution& c, const Coordinates& rows, uint32_t r) {
  return inside(rows, c.stride_h, c.pad_top, r * c.dilation_h, c.height);
}
Inside column_inside(const Convolution& c, const Coordinates& columns, uint32_t s) {
  return inside(columns, c.stride_w, c.pad_left, s * c.dilation_w, c.width);
}

std::vector<TapClass> tap_classes(const Convolution& c, const std::vector<PixelSet>& sets) {
  std::vector<TapClass> classes(size_t{c.filter_height} * c.filter_width);
  for (const PixelSet& set : sets) {
    std::vector<Inside> columns;
    for (uint32_t s = 0; s < c.filter_width; ++s)
      columns.push_back(column_inside(c, set.columns, s));
    for (uint32_t r = 0; r < c.filter_height; ++r) {
      const Inside row = row_inside(c, set.rows, r);
      for (uint32_t s = 0; s < c.filter_width; ++s) {
        TapClass& tap = classes[size_t{r} * c.filter_width + s];
        tap.possible = tap.possible || (row != Inside::never && columns[s] != Inside::never);
        tap.asks_row = tap.asks_row || row != Inside::always;
        tap.asks_column = tap.asks_column || columns[s] != Inside::always;
      }
    }
  }
  return classes;
}

} // namespace sparsertc
