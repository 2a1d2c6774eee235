// power_flow: what stands before and behind `sparsertc jacobian F.cu --newton` where F.cu is the
// power flow of a MATPOWER case. README.md shows both.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "tools/examples/chart.h"
#include "tools/examples/power_flow/power_flow.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numbers>
#include <string>
#include <vector>

namespace sparsertc::power_flow {
namespace {

struct Options {
  std::string grid;
  std::string start = "file";
  std::string output;
  std::string start_output;
  uint64_t loads = 0;
  double spread = 0.1;
  uint64_t seed = 1;
  bool outages = false;
  uint64_t instances = 0;
  std::string solution;
};

Model read_model(const Options& options, const PowerCase& grid) {
  const Model model = make_model(grid, options.start == "flat" ? Start::flat : Start::file);
  for (const std::string& remark : model.remarks)
    fmt::print(stderr, "power_flow: {}: {}\n", grid.name, remark);
  return model;
}

void write_parameters(const Options& options) {
  const PowerCase grid = read_power_case(options.grid);
  const Model model = read_model(options, grid);
  Scenarios scenarios;
  if (options.loads > 0)
    scenarios = make_load_scenarios(grid, model, options.loads, options.spread, options.seed);
  else if (options.outages)
    scenarios = make_outages(model, options.instances);
  const std::vector<NamedArray> arrays = parameter_arrays(model, scenarios);
  write_npz(options.output, arrays);
  const std::vector<double> x0 = model.start();
  const std::vector<uint64_t> shape = {x0.size()};
  write_npy(options.start_output, shape, StoredType::f64, x0);
  fmt::print("{} buses ({} PV, {} PQ), {} branches, {} unknowns\n", model.buses(), model.pv_buses,
             model.magnitude_bus.size(), model.branches.size(), model.unknowns());
  if (scenarios.instances > 0)
    fmt::print("{} instances; --varying {}\n", scenarios.instances,
               scenarios.active.empty() ? "admittance phase own_conductance own_susceptance"
                                        : "active reactive");
}

void plot(const Options& options) {
  const PowerCase grid = read_power_case(options.grid);
  const Model model = read_model(options, grid);
  const DenseTensor solution = read_dense(options.solution);
  const uint64_t n = model.unknowns();
  if (solution.shape.empty() || solution.shape[0] != n)
    throw UserError(Place{options.solution, 0, 0, {}},
                    fmt::format("expected {} unknowns of this grid", n),
                    "sparsertc jacobian --solution writes them");
  const uint64_t instances = solution.values.size() / n, buses = model.buses();
  // Of every bus, the least, the middle and the largest voltage over the instances.
  std::vector<double> low[2], middle[2], high[2], number(buses);
  std::vector<std::vector<double>> all(2 * buses);
  for (uint64_t s = 0; s < instances; ++s) {
    std::vector<double> x(n);
    for (uint64_t i = 0; i < n; ++i)
      x[i] = solution.values[i * instances + s];
    const std::vector<double> voltages = model.voltages(x);
    for (uint64_t k = 0; k < 2 * buses; ++k)
      all[k].push_back(k < buses ? voltages[k] * 180 / std::numbers::pi : voltages[k]);
  }
  for (uint64_t k = 0; k < 2 * buses; ++k) {
    std::sort(all[k].begin(), all[k].end());
    low[k / buses].push_back(all[k].front());
    middle[k / buses].push_back(all[k][instances / 2]);
    high[k / buses].push_back(all[k].back());
    number[k % buses] = static_cast<double>(k % buses + 1);
  }
  const auto chart = [&](int which, const Panel& panel, const std::string& label) {
    const auto [least, ignored] = std::minmax_element(low[which].begin(), low[which].end());
    const double most = *std::max_element(high[which].begin(), high[which].end());
    const double margin = (most - *least) * 0.05 + 1e-9;
    examples::Chart result(panel, {"bus, in the order of the file", 0, number.back() + 1, false},
                           {label, *least - margin, most + margin, false});
    if (instances > 1)
      result.add_ranges(number, low[which], high[which], "#7aa6d8", buses > 400 ? 1 : 3);
    result.add_points(number, middle[which], "#1f4e8c", buses > 1000 ? 0.8 : 2);
    return result.svg();
  };
  std::string svg =
      svg_begin(960, 620, 70,
                fmt::format("{}: {}", grid.name.substr(grid.name.rfind('/') + 1),
                            instances == 1 ? "voltages"
                                           : fmt::format("voltages of {} instances", instances)));
  svg += chart(1, {70, 60, 860, 210}, "magnitude, p.u.");
  svg += chart(0, {70, 340, 860, 210}, "angle, degrees");
  svg += "</svg>\n";
  write_bytes(options.output, {reinterpret_cast<const uint8_t*>(svg.data()), svg.size()});
}

int run(int argc, char** argv) {
  Options options;
  CLI::App application("AC power flow of MATPOWER cases, for sparsertc jacobian", "power_flow");
  application.require_subcommand(1);
  CLI::App* const parameters = application.add_subcommand(
      "parameters", "Writes the parameters of F.cu and the start of the unknowns");
  CLI::App* const picture =
      application.add_subcommand("plot", "Draws the voltages of a solution as SVG");
  for (CLI::App* command : {parameters, picture}) {
    command->add_option("CASE", options.grid, "A MATPOWER case, .m or .m.gz")->required();
    command
        ->add_option(
            "--start", options.start,
            "file: voltages as the case has them; flat: magnitude 1, the reference's angle")
        ->check(CLI::IsMember({"file", "flat"}))
        ->capture_default_str();
    command->add_option("--output", options.output, "parameters: .npz; plot: .svg")->required();
  }
  parameters->add_option("--x0", options.start_output, "The start, .npy")->required();
  CLI::Option* const loads = parameters->add_option(
      "--loads", options.loads, "A batch: so many instances, each load times a random factor");
  loads->check(CLI::Range(uint64_t{1}, uint64_t{1} << 31));
  parameters->add_option("--spread", options.spread, "The factor is from 1 - SPREAD to 1 + SPREAD")
      ->capture_default_str();
  parameters->add_option("--seed", options.seed, "Of the factors")->capture_default_str();
  CLI::Option* const outages = parameters->add_flag(
      "--outages", options.outages, "A batch: each branch out that does not cut off a bus");
  parameters->add_option("--instances", options.instances,
                         "Of --outages: so many, in turn again where there are fewer");
  loads->excludes(outages);
  picture->add_option("--solution", options.solution, "What sparsertc jacobian --solution wrote")
      ->required();
  try {
    application.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return application.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (parameters->parsed())
      write_parameters(options);
    else
      plot(options);
  } catch (const Error& error) {
    fmt::print(stderr, "power_flow: {}\n", error.what());
    return error.exit_code();
  }
  return 0;
}

} // namespace
} // namespace sparsertc::power_flow

int main(int argc, char** argv) {
  return sparsertc::power_flow::run(argc, argv);
}
