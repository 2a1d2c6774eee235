#include "tools/examples/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace sparsertc::examples {
namespace {

double fraction(const Chart::Axis& axis, double value) {
  if (axis.logarithmic)
    return (std::log(value) - std::log(axis.low)) / (std::log(axis.high) - std::log(axis.low));
  return (value - axis.low) / (axis.high - axis.low);
}

/// Round numbers inside of the axis: powers of ten, or multiples of 1, 2 or 5 times one.
std::vector<double> ticks(const Chart::Axis& axis) {
  std::vector<double> values;
  if (axis.logarithmic) {
    const int first = static_cast<int>(std::ceil(std::log10(axis.low) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(axis.high) + 1e-9));
    const int step = std::max(1, (last - first) / 6);
    for (int power = first; power <= last; power += step)
      values.push_back(std::pow(10.0, power));
    return values;
  }
  const double span = axis.high - axis.low;
  double step = std::pow(10.0, std::floor(std::log10(span)));
  for (const double part : {0.1, 0.2, 0.5, 1.0})
    if (span / (step * part) <= 8) {
      step *= part;
      break;
    }
  for (double k = std::ceil(axis.low / step - 1e-9); k * step <= axis.high + 1e-9 * span; ++k)
    values.push_back(k * step + 0.0); // no -0
  return values;
}

} // namespace

Chart::Chart(const Panel& panel, Axis x, Axis y)
    : panel_(panel), x_(std::move(x)), y_(std::move(y)) {
  for (Axis* axis : {&x_, &y_})
    if (!(axis->high > axis->low)) // one number alone
      axis->high = axis->low + (axis->logarithmic ? axis->low : 1);
}

double Chart::place_x(double value) const {
  return panel_.x + panel_.width * fraction(x_, value);
}
double Chart::place_y(double value) const {
  return panel_.y + panel_.height * (1 - fraction(y_, value));
}

void Chart::add_points(std::span<const double> x, std::span<const double> y,
                       const std::string& colour, double radius) {
  // Lines of no length with round ends: dots, in one path.
  std::string path;
  for (size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(y[i]) && y[i] >= y_.low && y[i] <= y_.high)
      path += fmt::format("M{:.1f} {:.1f}h0", place_x(x[i]), place_y(y[i]));
  content_ += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"{:g}\" "
                          "stroke-linecap=\"round\" fill=\"none\"/>\n",
                          path, colour, 2 * radius);
}

void Chart::add_ranges(std::span<const double> x, std::span<const double> low,
                       std::span<const double> high, const std::string& colour, double width) {
  std::string path;
  for (size_t i = 0; i < x.size(); ++i)
    path += fmt::format("M{:.1f} {:.1f}V{:.1f}", place_x(x[i]),
                        place_y(std::clamp(low[i], y_.low, y_.high)),
                        place_y(std::clamp(high[i], y_.low, y_.high)));
  content_ += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"{:g}\" fill=\"none\"/>\n",
                          path, colour, width);
}

void Chart::add_line(std::span<const double> x, std::span<const double> y,
                     const std::string& colour) {
  std::string path;
  for (size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(y[i]) && y[i] >= y_.low && y[i] <= y_.high)
      path +=
          fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", place_x(x[i]), place_y(y[i]));
  content_ += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"1.5\" fill=\"none\"/>\n",
                          path, colour);
}

std::string Chart::svg() const {
  std::string text;
  for (const double value : ticks(x_))
    text += fmt::format("<path d=\"M{0:.1f} {1:.1f}v{2:.1f}\" stroke=\"#ddd\"/>\n", place_x(value),
                        panel_.y, panel_.height) +
            svg_text(place_x(value), panel_.y + panel_.height + 16, "middle",
                     fmt::format("{:g}", value));
  for (const double value : ticks(y_))
    text += fmt::format("<path d=\"M{0:.1f} {1:.1f}h{2:.1f}\" stroke=\"#ddd\"/>\n", panel_.x,
                        place_y(value), panel_.width) +
            svg_text(panel_.x - 6, place_y(value) + 4, "end", fmt::format("{:g}", value));
  text += content_;
  text += fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"none\" "
                      "stroke=\"black\"/>\n",
                      panel_.x, panel_.y, panel_.width, panel_.height);
  text += svg_text(panel_.x + panel_.width / 2, panel_.y + panel_.height + 34, "middle", x_.label);
  text += svg_text(panel_.x, panel_.y - 8, "start", y_.label);
  return text;
}

} // namespace sparsertc::examples
