// Small charts for the examples, as SVG.
#pragma once

#include "compiler/inspect/svg.h"

#include <span>
#include <string>

namespace sparsertc::examples {

/// A frame with axes from `low` to `high`; everything is drawn in the axes' numbers.
class Chart {
public:
  struct Axis {
    std::string label;
    double low = 0;
    double high = 1;
    bool logarithmic =
        false; ///< then low and high are above 0, and values below `low` are not drawn
  };
  Chart(const Panel& panel, Axis x, Axis y);

  /// A dot for each pair.
  void add_points(std::span<const double> x, std::span<const double> y, const std::string& colour,
                  double radius);
  /// An upright line from low to high for each x.
  void add_ranges(std::span<const double> x, std::span<const double> low,
                  std::span<const double> high, const std::string& colour, double width);
  /// Neighbours joined.
  void add_line(std::span<const double> x, std::span<const double> y, const std::string& colour);

  /// The frame, its numbers and labels, and what has been added, to be put between svg_begin() and
  /// "</svg>\n".
  std::string svg() const;

private:
  double place_x(double value) const;
  double place_y(double value) const;

  Panel panel_;
  Axis x_, y_;
  std::string content_;
};

} // namespace sparsertc::examples
