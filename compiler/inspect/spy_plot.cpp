#include "compiler/inspect/spy_plot.h"

#include "compiler/inspect/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace sparsertc {
namespace {

constexpr uint32_t kMostCells = 600; ///< along each side
constexpr double kPanel = 480;       ///< the longer side of a panel, in user units
constexpr double kShortestSide = 24;
constexpr double kMargin = 70;
constexpr double kGap = 90;
/// Colours of neighbouring tiles (they repeat).
constexpr std::array<const char*, 6> kTileColours = {"#4477aa", "#ee6677", "#228833",
                                                     "#ccbb44", "#66ccee", "#aa3377"};

/// The pattern binned into cells, with the row at place p of the picture being `row_at[p]`.
std::string draw_cells(const Pattern& pattern, const std::vector<uint32_t>& row_at,
                       const Panel& panel) {
  const uint32_t rows = static_cast<uint32_t>(row_at.size());
  const uint32_t width = std::min(pattern.columns, kMostCells);
  const uint32_t height = std::min(rows, kMostCells);
  if (width == 0 || height == 0)
    return {};
  std::vector<uint32_t> entries(size_t{width} * height, 0);
  for (uint32_t place = 0; place < rows; ++place) {
    const uint64_t y = uint64_t{place} * height / rows;
    for (uint32_t column : pattern.row(row_at[place]))
      ++entries[y * width + uint64_t{column} * width / pattern.columns];
  }
  // Shade by the share of the fullest cell, in square root so that thin cells stay visible.
  const uint32_t fullest = *std::max_element(entries.begin(), entries.end());
  std::vector<uint8_t> grey(entries.size(), 255);
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i] != 0)
      grey[i] = static_cast<uint8_t>(
          std::lround(200.0 - 200.0 * std::sqrt(static_cast<double>(entries[i]) / fullest)));
  return svg_image(panel, width, height, grey);
}

/// Coloured bars beside a panel: place p belongs to tile `tile_at[p]`. Places that share a line of
/// the picture are drawn as the first of them.
std::string draw_marks(const std::vector<uint32_t>& tile_at, const Panel& panel) {
  const uint32_t rows = static_cast<uint32_t>(tile_at.size());
  const uint32_t lines = std::min(rows, kMostCells);
  std::array<std::string, kTileColours.size()> paths;
  uint32_t begin = 0;
  const auto tile_of_line = [&](uint32_t line) {
    return tile_at[static_cast<size_t>(uint64_t{line} * rows / lines)];
  };
  for (uint32_t line = 1; line <= lines; ++line) {
    if (line < lines && tile_of_line(line) == tile_of_line(begin))
      continue;
    paths[tile_of_line(begin) % paths.size()] +=
        fmt::format("M{:.2f} {:.2f}v{:.2f}", panel.x - 7, panel.y + panel.height * begin / lines,
                    panel.height * (line - begin) / lines);
    begin = line;
  }
  std::string svg;
  for (size_t i = 0; i < paths.size(); ++i)
    if (!paths[i].empty())
      svg += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"8\"/>\n", paths[i],
                         kTileColours[i]);
  return svg;
}

/// Tiles as bands over a panel in tile order.
std::string draw_bands(const SpmmSchedule& schedule, const Panel& panel) {
  std::string svg;
  for (uint32_t tile = 0; tile < schedule.tile_count(); ++tile) {
    const uint32_t begin = schedule.tile_begin[tile];
    const uint32_t rows = schedule.tile_begin[tile + 1] - begin;
    svg +=
        fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
                    "fill=\"{}\" fill-opacity=\"0.25\"/>\n",
                    panel.x, panel.y + panel.height * begin / schedule.rows, panel.width,
                    panel.height * rows / schedule.rows, kTileColours[tile % kTileColours.size()]);
  }
  return svg;
}

std::string draw_legend(double x, double y, const SpmmSchedule& schedule) {
  std::string svg = fmt::format("<defs><linearGradient id=\"density\">"
                                "<stop offset=\"0\" stop-color=\"#c8c8c8\"/>"
                                "<stop offset=\"1\" stop-color=\"#000\"/></linearGradient></defs>\n"
                                "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"60\" height=\"10\" "
                                "fill=\"url(#density)\"/>\n",
                                x, y - 9);
  svg += svg_text(x + 66, y, "start", "a cell with few to many entries");
  for (size_t i = 0; i < kTileColours.size(); ++i)
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n",
                       x + 10.0 * static_cast<double>(i), y + 11, kTileColours[i]);
  svg += svg_text(x + 66, y + 20, "start",
                  fmt::format("tiles of rows ({}; the colours repeat): {}", schedule.tile_count(),
                              to_string(schedule.tile)));
  return svg;
}

} // namespace

std::string spy_plot_svg(const Pattern& pattern, const SpmmSchedule& schedule,
                         const std::string& title) {
  const double longest = std::max({1.0, double(pattern.rows), double(pattern.columns)});
  const double width = std::max(kShortestSide, kPanel * pattern.columns / longest);
  const double height = std::max(kShortestSide, kPanel * pattern.rows / longest);
  const Panel left = {kMargin, 70, width, height};
  const Panel right = {kMargin + width + kGap, 70, width, height};
  const double total_width = std::max(right.x + width + 30, 760.0);
  const double total_height = left.y + height + 90;

  std::vector<uint32_t> own_order(pattern.rows);
  std::vector<uint32_t> tile_at_own(pattern.rows), tile_at_tiles(pattern.rows);
  for (uint32_t row = 0; row < pattern.rows; ++row)
    own_order[row] = row;
  const bool has_tiles = schedule.row_order.size() == pattern.rows;
  for (uint32_t tile = 0; has_tiles && tile < schedule.tile_count(); ++tile)
    for (uint32_t i = schedule.tile_begin[tile]; i < schedule.tile_begin[tile + 1]; ++i) {
      tile_at_own[schedule.row_order[i]] = tile;
      tile_at_tiles[i] = tile;
    }

  std::string svg = svg_begin(total_width, total_height, kMargin, title);
  svg += draw_cells(pattern, own_order, left);
  if (has_tiles && pattern.rows != 0) {
    svg += draw_marks(tile_at_own, left);
    svg += draw_cells(pattern, schedule.row_order, right);
    svg += draw_bands(schedule, right);
    svg += draw_marks(tile_at_tiles, right);
    svg += svg_matrix_frame(right, "rows in tile order", pattern.rows, pattern.columns, "place");
  }
  svg += svg_matrix_frame(left, "the matrix", pattern.rows, pattern.columns, "row");
  svg += draw_legend(kMargin, left.y + height + 48, schedule);
  svg += "</svg>\n";
  return svg;
}

} // namespace sparsertc
