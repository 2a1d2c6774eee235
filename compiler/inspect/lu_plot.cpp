#include "compiler/inspect/lu_plot.h"

#include "compiler/inspect/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace sparsertc {
namespace {

constexpr uint32_t kMostCells = 600; ///< along each side
constexpr double kPanel = 480;
constexpr double kMargin = 70;
constexpr double kGap = 90;
constexpr double kTop = 70;
/// The share of white in cells that hold nothing but fill.
constexpr double kPale = 0.6;

using Colour = std::array<double, 3>;
/// From the first level to the last.
constexpr std::array<Colour, 5> kRamp = {
    {{48, 48, 110}, {38, 112, 165}, {42, 157, 143}, {233, 168, 32}, {200, 54, 29}}};

Colour colour_of(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * (kRamp.size() - 1);
  const size_t stop = std::min(static_cast<size_t>(place), kRamp.size() - 2);
  const double within = place - static_cast<double>(stop);
  Colour colour;
  for (size_t c = 0; c < 3; ++c)
    colour[c] = kRamp[stop][c] * (1 - within) + kRamp[stop + 1][c] * within;
  return colour;
}

std::string hexadecimal(const Colour& colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", std::lround(colour[0]), std::lround(colour[1]),
                     std::lround(colour[2]));
}

std::vector<uint32_t> level_of_columns(const LuLevels& levels, uint32_t size) {
  std::vector<uint32_t> level(size, 0);
  for (uint64_t l = 0; l < levels.count(); ++l)
    for (uint64_t k = levels.offset[l]; k < levels.offset[l + 1]; ++k)
      level[levels.member[k]] = static_cast<uint32_t>(l);
  return level;
}

std::string draw_cells(const LuPattern& rows, const Pattern& placed, const LuLevels& levels,
                       const Panel& panel) {
  const uint32_t size = rows.rows.rows;
  const uint32_t side = std::min(size, kMostCells);
  if (side == 0)
    return {};
  const auto cell = [&](uint32_t index) { return uint64_t{index} * side / size; };
  const std::vector<uint32_t> level = level_of_columns(levels, size);
  std::vector<uint64_t> sum(size_t{side} * side, 0);
  std::vector<uint32_t> entries(sum.size(), 0);
  std::vector<bool> original(sum.size(), false);
  for (uint32_t i = 0; i < size; ++i) {
    const uint64_t line = cell(i) * side;
    for (uint32_t j : rows.rows.row(i)) {
      sum[line + cell(j)] += level[j];
      ++entries[line + cell(j)];
    }
    for (uint32_t j : placed.row(i))
      original[line + cell(j)] = true;
  }
  const double last = std::max<double>(1, static_cast<double>(levels.count()) - 1);
  std::vector<uint8_t> pixels(3 * sum.size(), 255);
  for (size_t k = 0; k < sum.size(); ++k) {
    if (entries[k] == 0)
      continue;
    const Colour colour = colour_of(static_cast<double>(sum[k]) / entries[k] / last);
    const double white = original[k] ? 0 : kPale;
    for (size_t c = 0; c < 3; ++c)
      pixels[3 * k + c] = static_cast<uint8_t>(std::lround(255 * white + colour[c] * (1 - white)));
  }
  return svg_image(panel, side, side, pixels);
}

/// Bars from the bottom up; each stands for one level or for several.
std::string draw_widths(const LuLevels& levels, const Panel& panel) {
  const uint64_t count = levels.count();
  const uint64_t bars = std::min<uint64_t>(count, kMostCells);
  uint64_t widest = 1;
  for (uint64_t l = 0; l < count; ++l)
    widest = std::max(widest, levels.offset[l + 1] - levels.offset[l]);
  // One column shows as a tenth of a decade.
  const auto height_of = [&](double width) {
    return panel.height * (std::log10(width) + 0.1) / (std::log10(double(widest)) + 0.1);
  };
  std::string svg;
  for (uint64_t decade = 1; decade <= widest; decade *= 10) {
    const double y = panel.y + panel.height - height_of(static_cast<double>(decade));
    svg += fmt::format("<path d=\"M{:.2f} {:.2f}h{:.2f}\" stroke=\"#ddd\"/>\n", panel.x, y,
                       panel.width);
    svg += svg_text(panel.x - 6, y + 4, "end", std::to_string(decade));
  }
  for (uint64_t bar = 0; bar < bars; ++bar) {
    const uint64_t first = bar * count / bars, last = (bar + 1) * count / bars;
    const double width = static_cast<double>(levels.offset[last] - levels.offset[first]) /
                         static_cast<double>(last - first);
    const double height = height_of(width);
    const double share =
        static_cast<double>(first) / std::max<double>(1, static_cast<double>(count) - 1);
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
                       "fill=\"{}\"/>\n",
                       panel.x + panel.width * static_cast<double>(bar) / static_cast<double>(bars),
                       panel.y + panel.height - height, panel.width / static_cast<double>(bars),
                       height, hexadecimal(colour_of(share)));
  }
  svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
                     "fill=\"none\" stroke=\"#333\"/>\n",
                     panel.x, panel.y, panel.width, panel.height);
  const double bottom = panel.y + panel.height + 16;
  svg += svg_text(panel.x + panel.width / 2, panel.y - 10, "middle", "columns of each level");
  svg += svg_text(panel.x, bottom, "start", "0");
  svg += svg_text(panel.x + panel.width / 2, bottom, "middle", "level");
  svg += svg_text(panel.x + panel.width, bottom, "end", std::to_string(count));
  return svg;
}

std::string draw_legend(double x, double y) {
  std::string svg = "<defs><linearGradient id=\"levels\">";
  for (size_t i = 0; i < kRamp.size(); ++i)
    svg += fmt::format("<stop offset=\"{:.2f}\" stop-color=\"{}\"/>",
                       static_cast<double>(i) / (kRamp.size() - 1), hexadecimal(kRamp[i]));
  svg += fmt::format("</linearGradient></defs>\n<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"60\" "
                     "height=\"10\" fill=\"url(#levels)\"/>\n",
                     x, y - 9);
  return svg + svg_text(x + 66, y, "start", "the first level to the last; fill is paler");
}

} // namespace

std::string lu_plot_svg(const LuPattern& rows, const Pattern& placed, const LuLevels& levels,
                        const std::string& title) {
  const uint32_t size = rows.rows.rows;
  const Panel left = {kMargin, kTop, kPanel, kPanel};
  const Panel right = {kMargin + kPanel + kGap, kTop, kPanel, kPanel};
  std::string svg = svg_begin(right.x + kPanel + 30, kTop + kPanel + 60, kMargin, title);
  svg += draw_cells(rows, placed, levels, left);
  svg += svg_matrix_frame(left, "L + U, permuted", size, size, "row");
  svg += draw_widths(levels, right);
  svg += draw_legend(kMargin, kTop + kPanel + 40);
  svg += "</svg>\n";
  return svg;
}

} // namespace sparsertc
