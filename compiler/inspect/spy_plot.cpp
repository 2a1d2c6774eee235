#include "compiler/inspect/spy_plot.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
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

std::string escape(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20)
      escaped += '?';
    else
      escaped += c;
  }
  return escaped;
}

// ---- the cells as an embedded picture (PNG, ISO/IEC 15948) -------------------------------------
// One rectangle a cell would make megabytes of SVG; a grey picture of them compresses to kilobytes.

void append_big_endian(std::string& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes += static_cast<char>(value >> shift);
}

void append_chunk(std::string& png, const std::string& type, const std::string& content) {
  append_big_endian(png, static_cast<uint32_t>(content.size()));
  const std::string body = type + content;
  png += body;
  append_big_endian(png, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(body.data()),
                                                     static_cast<uInt>(body.size()))));
}

/// 8-bit grey, row by row.
std::string encode_png(uint32_t width, uint32_t height, std::span<const uint8_t> grey) {
  std::string header;
  append_big_endian(header, width);
  append_big_endian(header, height);
  header += std::string("\x08\x00\x00\x00\x00", 5);

  std::string lines;
  for (uint32_t y = 0; y < height; ++y) {
    lines += '\0'; // no filter
    lines.append(reinterpret_cast<const char*>(grey.data()) + size_t{y} * width, width);
  }
  uLongf size = compressBound(static_cast<uLong>(lines.size()));
  std::string compressed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(compressed.data()), &size,
                reinterpret_cast<const Bytef*>(lines.data()), static_cast<uLong>(lines.size()),
                Z_BEST_COMPRESSION) != Z_OK)
    throw InternalError("zlib does not compress the spy plot");
  compressed.resize(size);

  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", compressed);
  append_chunk(png, "IEND", {});
  return png;
}

std::string encode_base64(const std::string& bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : digits[group >> (18 - 6 * j) & 63];
  }
  return text;
}

// ---- panels ----

struct Panel {
  double x, y, width, height;
};

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
  return fmt::format("<image x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
                     "preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" "
                     "href=\"data:image/png;base64,{}\"/>\n",
                     panel.x, panel.y, panel.width, panel.height,
                     encode_base64(encode_png(width, height, grey)));
}

std::string draw_text(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escape(text));
}

std::string draw_frame(const Panel& panel, const std::string& caption, uint32_t rows,
                       uint32_t columns, const std::string& row_axis) {
  std::string svg = fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"none\" "
      "stroke=\"#333\"/>\n",
      panel.x, panel.y, panel.width, panel.height);
  const double bottom = panel.y + panel.height + 16;
  svg += draw_text(panel.x + panel.width / 2, panel.y - 10, "middle", caption);
  svg += draw_text(panel.x, bottom, "start", "0");
  svg += draw_text(panel.x + panel.width / 2, bottom, "middle", "column");
  svg += draw_text(panel.x + panel.width, bottom, "end", std::to_string(columns));
  svg += draw_text(panel.x - 16, panel.y + 10, "end", "0");
  svg += draw_text(panel.x - 16, panel.y + panel.height / 2 + 4, "end", row_axis);
  svg += draw_text(panel.x - 16, panel.y + panel.height, "end", std::to_string(rows));
  return svg;
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
  svg += draw_text(x + 66, y, "start", "a cell with few to many entries");
  for (size_t i = 0; i < kTileColours.size(); ++i)
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n",
                       x + 10.0 * static_cast<double>(i), y + 11, kTileColours[i]);
  svg += draw_text(x + 66, y + 20, "start",
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

  std::string svg = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      total_width, total_height);
  svg += fmt::format("<text x=\"{:.2f}\" y=\"26\" font-size=\"15\">{}</text>\n", kMargin,
                     escape(title));
  svg += draw_cells(pattern, own_order, left);
  if (has_tiles && pattern.rows != 0) {
    svg += draw_marks(tile_at_own, left);
    svg += draw_cells(pattern, schedule.row_order, right);
    svg += draw_bands(schedule, right);
    svg += draw_marks(tile_at_tiles, right);
    svg += draw_frame(right, "rows in tile order", pattern.rows, pattern.columns, "place");
  }
  svg += draw_frame(left, "the matrix", pattern.rows, pattern.columns, "row");
  svg += draw_legend(kMargin, left.y + height + 48, schedule);
  svg += "</svg>\n";
  return svg;
}

} // namespace sparsertc
