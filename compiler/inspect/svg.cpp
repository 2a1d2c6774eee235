#include "compiler/inspect/svg.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <zlib.h>

namespace sparsertc {
namespace {

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

/// 8 bits a channel, row by row; grey or red, green and blue.
std::string encode_png(uint32_t width, uint32_t height, std::span<const uint8_t> pixels) {
  const size_t line = pixels.size() / height;
  const char colour_type = line == width ? 0 : 2;
  std::string header;
  append_big_endian(header, width);
  append_big_endian(header, height);
  header += {8, colour_type, 0, 0, 0};

  std::string lines;
  for (uint32_t y = 0; y < height; ++y) {
    lines += '\0'; // no filter
    lines.append(reinterpret_cast<const char*>(pixels.data()) + y * line, line);
  }
  uLongf size = compressBound(static_cast<uLong>(lines.size()));
  std::string compressed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(compressed.data()), &size,
                reinterpret_cast<const Bytef*>(lines.data()), static_cast<uLong>(lines.size()),
                Z_BEST_COMPRESSION) != Z_OK)
    throw InternalError("zlib does not compress a picture");
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

} // namespace

std::string svg_escape(const std::string& text) {
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

std::string svg_text(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     svg_escape(text));
}

std::string svg_begin(double width, double height, double title_x, const std::string& title) {
  std::string svg = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height);
  svg += fmt::format("<text x=\"{:.2f}\" y=\"26\" font-size=\"15\">{}</text>\n", title_x,
                     svg_escape(title));
  return svg;
}

std::string svg_image(const Panel& panel, uint32_t width, uint32_t height,
                      std::span<const uint8_t> pixels) {
  return fmt::format("<image x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
                     "preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" "
                     "href=\"data:image/png;base64,{}\"/>\n",
                     panel.x, panel.y, panel.width, panel.height,
                     encode_base64(encode_png(width, height, pixels)));
}

std::string svg_matrix_frame(const Panel& panel, const std::string& caption, uint32_t rows,
                             uint32_t columns, const std::string& row_axis) {
  std::string svg = fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"none\" "
      "stroke=\"#333\"/>\n",
      panel.x, panel.y, panel.width, panel.height);
  const double bottom = panel.y + panel.height + 16;
  svg += svg_text(panel.x + panel.width / 2, panel.y - 10, "middle", caption);
  svg += svg_text(panel.x, bottom, "start", "0");
  svg += svg_text(panel.x + panel.width / 2, bottom, "middle", "column");
  svg += svg_text(panel.x + panel.width, bottom, "end", std::to_string(columns));
  svg += svg_text(panel.x - 16, panel.y + 10, "end", "0");
  svg += svg_text(panel.x - 16, panel.y + panel.height / 2 + 4, "end", row_axis);
  svg += svg_text(panel.x - 16, panel.y + panel.height, "end", std::to_string(rows));
  return svg;
}

} // namespace sparsertc
