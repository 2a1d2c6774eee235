// The parts that pictures of matrices are made of, as SVG text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace sparsertc {

/// A rectangle of the picture, in user units.
struct Panel {
  double x, y, width, height;
};

/// Text that may stand in SVG; control characters become question marks.
std::string svg_escape(const std::string& text);

/// A line of text; `anchor` is "start", "middle" or "end".
std::string svg_text(double x, double y, const std::string& anchor, const std::string& text);

/// The beginning of a document of this size with a title on a white ground; "</svg>\n" ends it.
std::string svg_begin(double width, double height, double title_x, const std::string& title);

/// Pixels, row by row, stretched over the panel: `width` x `height` of them, of one byte (grey) or
/// of three (red, green, blue). One rectangle a pixel would make megabytes of SVG; embedded as PNG
/// (ISO/IEC 15948) they are kilobytes.
std::string svg_image(const Panel& panel, uint32_t width, uint32_t height,
                      std::span<const uint8_t> pixels);

/// The panel's border with the numbers of rows and columns along it.
std::string svg_matrix_frame(const Panel& panel, const std::string& caption, uint32_t rows,
                             uint32_t columns, const std::string& row_axis);

} // namespace sparsertc
