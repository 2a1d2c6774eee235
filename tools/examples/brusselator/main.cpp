// brusselator: what stands around `sparsertc jacobian F.cu --newton` where F.cu is one step of the
// Brusselator. README.md and run.sh show the whole.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "tools/examples/chart.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>
#include <vector>

namespace sparsertc::brusselator {
namespace {

struct Options {
  uint64_t side = 32;
  double dt = 0.1;
  double alpha = 0.002;
  double a = 1, b = 3.4;
  std::string previous;
  std::string output;
  std::vector<std::string> fields;
};

/// u, v of each cell: a smooth disturbance of the rest state (a, b / a).
void write_start(const Options& options) {
  std::vector<double> x;
  for (uint64_t row = 0; row < options.side; ++row)
    for (uint64_t column = 0; column < options.side; ++column) {
      const double across = (static_cast<double>(column) + 0.5) / static_cast<double>(options.side);
      const double along = (static_cast<double>(row) + 0.5) / static_cast<double>(options.side);
      x.push_back(options.a + 0.5 * std::sin(2 * std::numbers::pi * across));
      x.push_back(options.b / options.a + 0.7 * std::cos(2 * std::numbers::pi * along));
    }
  const std::vector<uint64_t> shape = {x.size()};
  write_npy(options.output, shape, StoredType::f64, x);
}

void write_parameters(const Options& options) {
  const DenseTensor previous = read_dense(options.previous);
  if (previous.values.size() != 2 * options.side * options.side)
    throw UserError(Place{options.previous, 0, 0, {}},
                    fmt::format("expected {} numbers, u and v of {} x {} cells",
                                2 * options.side * options.side, options.side, options.side));
  const auto number = [](const char* name, double value) {
    return NamedArray{name, {1}, StoredType::f64, {value}};
  };
  const NamedArray arrays[] = {
      {"side", {1}, StoredType::i64, {static_cast<double>(options.side)}},
      number("dt", options.dt),
      number("alpha", options.alpha),
      number("a", options.a),
      number("b", options.b),
      {"previous", {previous.values.size()}, StoredType::f64, previous.values}};
  write_npz(options.output, arrays);
}

/// u of each given field as a picture, and its mean and extremes over the fields.
void plot(const Options& options) {
  constexpr uint64_t kShown = 6;
  const uint64_t side = options.side;
  std::vector<double> step, low, mean, high;
  std::vector<std::vector<double>> fields;
  for (const std::string& path : options.fields) {
    const DenseTensor field = read_dense(path);
    if (field.values.size() != 2 * side * side)
      throw UserError(Place{path, 0, 0, {}}, fmt::format("expected {} numbers", 2 * side * side));
    std::vector<double> u;
    double sum = 0;
    for (size_t c = 0; c < field.values.size(); c += 2) {
      u.push_back(field.values[c]);
      sum += field.values[c];
    }
    step.push_back(static_cast<double>(fields.size()));
    low.push_back(*std::min_element(u.begin(), u.end()));
    high.push_back(*std::max_element(u.begin(), u.end()));
    mean.push_back(sum / static_cast<double>(u.size()));
    fields.push_back(std::move(u));
  }
  const double least = *std::min_element(low.begin(), low.end());
  const double most = *std::max_element(high.begin(), high.end());
  std::string svg = svg_begin(960, 520, 40, fmt::format("Brusselator, u on {0} x {0} cells", side));
  const uint64_t shown = std::min<uint64_t>(kShown, fields.size());
  for (uint64_t k = 0; k < shown; ++k) {
    const uint64_t which = shown == 1 ? 0 : k * (fields.size() - 1) / (shown - 1);
    std::vector<uint8_t> pixels;
    for (const double u : fields[which]) {
      const double part = (u - least) / std::max(most - least, 1e-300);
      // From blue over white to red.
      const double red = std::min(1.0, 2 * part), blue = std::min(1.0, 2 - 2 * part);
      for (const double channel : {red, std::min(red, blue), blue})
        pixels.push_back(static_cast<uint8_t>(std::lround(255 * channel)));
    }
    const double x = 40 + 150 * static_cast<double>(k);
    svg += svg_image({x, 60, 140, 140}, static_cast<uint32_t>(side), static_cast<uint32_t>(side),
                     pixels);
    svg += svg_text(x + 70, 218, "middle", fmt::format("step {}", which));
  }
  const double margin = 0.05 * (most - least) + 1e-9;
  examples::Chart chart({70, 270, 850, 180}, {"step", 0, step.back(), false},
                        {"u: least, mean, largest", least - margin, most + margin, false});
  chart.add_ranges(step, low, high, "#bbb", 2);
  chart.add_line(step, mean, "#1f4e8c");
  svg += chart.svg() + "</svg>\n";
  write_bytes(options.output, {reinterpret_cast<const uint8_t*>(svg.data()), svg.size()});
}

int run(int argc, char** argv) {
  Options options;
  CLI::App application("The Brusselator in two dimensions, for sparsertc jacobian", "brusselator");
  application.require_subcommand(1);
  CLI::App* const start = application.add_subcommand("start", "Writes a start, .npy");
  CLI::App* const parameters =
      application.add_subcommand("parameters", "Writes the parameters of one step, .npz");
  CLI::App* const picture = application.add_subcommand("plot", "Draws fields as SVG");
  for (CLI::App* command : {start, parameters, picture}) {
    command->add_option("--side", options.side, "Cells along each side")
        ->check(CLI::Range(uint64_t{3}, uint64_t{4096}))
        ->capture_default_str();
    command->add_option("--output", options.output)->required();
  }
  for (CLI::App* command : {start, parameters}) {
    command->add_option("--a", options.a, "Of the reaction")->capture_default_str();
    command->add_option("--b", options.b, "Of the reaction")->capture_default_str();
  }
  parameters->add_option("--previous", options.previous, "Where the step begins, .npy")->required();
  parameters->add_option("--dt", options.dt, "Length of the step")->capture_default_str();
  parameters->add_option("--alpha", options.alpha, "Of diffusion")->capture_default_str();
  picture->add_option("FIELDS", options.fields, "Solutions of the steps, .npy")->required();
  try {
    application.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return application.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (start->parsed())
      write_start(options);
    else if (parameters->parsed())
      write_parameters(options);
    else
      plot(options);
  } catch (const Error& error) {
    fmt::print(stderr, "brusselator: {}\n", error.what());
    return error.exit_code();
  }
  return 0;
}

} // namespace
} // namespace sparsertc::brusselator

int main(int argc, char** argv) {
  return sparsertc::brusselator::run(argc, argv);
}
