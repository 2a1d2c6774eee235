// The equations of AC power flow, and Newton's method on them, on the CPU.
#include "ir/error.h"
#include "runtime/newton/newton.h"
#include "tools/examples/power_flow/host_system.h"
#include "tools/newton_lu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sparsertc::testing {
namespace {

using newton::Outcome;
using power_flow::HostSystem;
using power_flow::Model;
using power_flow::Start;
using Vector = std::vector<double>;

PowerCase small_grid() {
  return read_power_case(std::string(SPARSERTC_TEST_DATA) + "/grid7.m");
}

struct Solved {
  newton::Report report;
  Vector x;
};

Solved solve(const HostSystem& system, const Vector& start, const newton::Options& options,
             uint64_t instance = 0) {
  Vector values(system.pattern().nnz());
  system.jacobian(start, values, instance);
  const NewtonLu lu = prepare_newton_lu(jacobian_matrix(system.pattern(), values, "J"));
  lu::Factors<double> factors(lu.tables);
  lu::Factors<float> f32_factors(lu.tables);
  newton::LuSolver solver(factors);
  newton::SingleLuSolver f32_solver(f32_factors);
  Solved solved{{}, start};
  if (options.f32_jacobian)
    solved.report = newton::solve(system, instance, f32_solver, solved.x, options);
  else
    solved.report = newton::solve(system, instance, solver, solved.x, options);
  return solved;
}

newton::Options undamped() {
  newton::Options options;
  options.damping = false;
  return options;
}

} // namespace

TEST_CASE("The model of a small grid") {
  const Model model = make_model(small_grid(), Start::file);
  CHECK(model.buses() == 6);
  CHECK(model.bus_number == std::vector<uint64_t>{10, 20, 30, 40, 50, 60});
  // Bus 20 holds its voltage; 60 does not, its generator is out of service.
  CHECK(model.pv_buses == 1);
  CHECK(model.angle_bus == std::vector<int64_t>{1, 2, 3, 4, 5});
  CHECK(model.magnitude_bus == std::vector<int64_t>{2, 3, 4, 5});
  REQUIRE(model.remarks.size() == 2);
  CHECK_THAT(model.remarks[0], Catch::Matchers::Contains("1 isolated buses"));
  CHECK_THAT(model.remarks[1], Catch::Matchers::Contains("the first is bus 60"));
  CHECK(model.active[1] == Approx(0.6)); // two generators, less the load
  CHECK(model.branches.size() == 9);     // neither the one out of service nor the isolated bus's
  // A transformer: bus 20 has the tap, bus 40 has not.
  const Model::Branch& transformer = model.branches[3];
  CHECK(transformer.conductance[0] * 1.02 * 1.02 == Approx(transformer.conductance[3]));
  CHECK(transformer.conductance[1] != Approx(transformer.conductance[2])); // it shifts
  // Two parallel lines add up in one place.
  CHECK(model.branches[4].place[1] == model.branches[5].place[1]);
  const Vector x = model.start();
  CHECK(x.size() == 9);
  const Vector voltages = model.voltages(x);
  CHECK(voltages[0] == Approx(5 * 3.14159265358979 / 180));
  CHECK(voltages[6] == 1.02);
}

TEST_CASE("Derivatives by hand agree with central differences") {
  const PowerCase grid = small_grid();
  const Model model = make_model(grid, Start::flat);
  const HostSystem system(model);
  const uint64_t n = system.unknowns();
  Vector x = model.start();
  for (size_t i = 0; i < n; ++i)
    x[i] += 0.02 * static_cast<double>(i % 5) - 0.03;
  Vector values(system.pattern().nnz());
  system.jacobian(x, values);
  Vector dense(n * n, 0);
  for (uint32_t i = 0; i < n; ++i)
    for (uint64_t p = system.pattern().row_offset[i]; p < system.pattern().row_offset[i + 1]; ++p)
      dense[i * n + system.pattern().column_index[p]] = values[p];
  for (size_t j = 0; j < n; ++j) {
    constexpr double kStep = 1e-6;
    Vector ahead = x, behind = x, f_ahead(n), f_behind(n);
    ahead[j] += kStep;
    behind[j] -= kStep;
    system.residual(ahead, f_ahead);
    system.residual(behind, f_behind);
    for (size_t i = 0; i < n; ++i) {
      CAPTURE(i, j);
      CHECK(dense[i * n + j] ==
            Approx((f_ahead[i] - f_behind[i]) / (2 * kStep)).epsilon(1e-7).margin(1e-7));
    }
  }
}

TEST_CASE("A small grid's power flow: power is balanced at every bus") {
  const Model model = make_model(small_grid(), Start::flat);
  const Solved solved = solve(HostSystem(model), model.start(), {});
  CHECK(solved.report.outcome == Outcome::converged);
  CHECK(solved.report.iterations <= 5);
  const Vector voltages = model.voltages(solved.x);
  for (size_t k = 0; k < model.buses(); ++k) {
    CHECK(voltages[model.buses() + k] > 0.9);
    CHECK(voltages[model.buses() + k] < 1.1);
  }
}

TEST_CASE("Scenarios of a small grid") {
  const PowerCase grid = small_grid();
  const Model model = make_model(grid, Start::file);
  const auto loads = make_load_scenarios(grid, model, 8, 0.2, 3);
  CHECK(loads.active == make_load_scenarios(grid, model, 8, 0.2, 3).active);
  CHECK(loads.active != make_load_scenarios(grid, model, 8, 0.2, 4).active);
  REQUIRE(loads.active.size() == 8 * 6);
  const HostSystem varied(model, &loads);
  Vector first, last;
  for (uint64_t s = 0; s < 8; ++s) {
    const Solved solved = solve(varied, model.start(), {}, s);
    CHECK(solved.report.outcome == Outcome::converged);
    (s == 0 ? first : last) = solved.x;
    for (size_t k = 0; k < 6; ++k)
      CHECK(std::abs(loads.active[s * 6 + k] - model.active[k]) <= 0.2 * 0.6 + 1e-12);
  }
  CHECK(first != last);

  const auto outages = make_outages(model, 0);
  // All branches in service but none whose outage cuts a bus off; each out once.
  CHECK(outages.outage == std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  const HostSystem cut(model, &outages);
  Vector values(cut.pattern().nnz());
  for (uint64_t s = 0; s < outages.instances; ++s)
    CHECK(solve(cut, model.start(), {}, s).report.outcome == Outcome::converged);
  CHECK(make_outages(model, 20).outage[10] == 2);
}

TEST_CASE("Grids that are none") {
  PowerCase grid = small_grid();
  grid.buses[0].type = BusType::pq;
  const Model moved = make_model(grid, Start::file);
  CHECK_THAT(moved.remarks.back(), Catch::Matchers::Contains("the first PV bus, 20, is the"));
  grid.buses[1].type = BusType::pq;
  CHECK_THROWS_WITH(make_model(grid, Start::file),
                    Catch::Matchers::Contains("no bus is the reference (type 3), and none"));
  grid = small_grid();
  for (PowerBranch& branch : grid.branches)
    if (branch.from == 4 || branch.to == 4)
      branch.in_service = false;
  CHECK_THROWS_WITH(make_model(grid, Start::file),
                    Catch::Matchers::Contains("grid7.m:20:1: error: no branch in service joins "
                                              "bus 50"));
}

TEST_CASE("Histories of the data's cases") {
  const char* const data = std::getenv("SPARSERTC_DATA");
  if (data == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA names no folder with power/newton_histories.jsonl");
    return;
  }
  std::ifstream histories(fmt::format("{}/power/newton_histories.jsonl", data));
  REQUIRE(histories);
  size_t compared = 0;
  for (std::string line; std::getline(histories, line);) {
    const auto known = nlohmann::json::parse(line);
    const std::string path =
        fmt::format("{}/power/{}.m.gz", data, known["case"].get<std::string>());
    if (!std::ifstream(path))
      continue;
    CAPTURE(path);
    const PowerCase grid = read_power_case(path);
    const Model model = make_model(grid, Start::file);
    const HostSystem system(model);
    CHECK(system.unknowns() == known["N"]);
    CHECK(system.pattern().nnz() == known["nnz"]);
    CHECK(model.pv_buses == known["npv"]);
    CHECK(model.magnitude_bus.size() == known["npq"]);
    const newton::Report report = solve(system, model.start(), undamped()).report;
    const auto& history = known["hist"];
    ++compared;
    if (known["case"] == "pglib_opf_case300_ieee") { // chaotic: the first steps agree
      CHECK(report.outcome == Outcome::diverged);
      for (size_t i = 0; i < 3; ++i)
        CHECK(fmt::format("{:.3e}", report.history[i]) == history[i]);
      continue;
    }
    CHECK(report.outcome == Outcome::converged);
    REQUIRE(report.history.size() == history.size());
    for (size_t i = 0; i < history.size(); ++i)
      if (report.history[i] > 1e-8) // below is what rounding leaves
        CHECK(fmt::format("{:.3e}", report.history[i]) == history[i]);
    // With factors in float32: as small in the end, after one more step at most.
    newton::Options single = undamped();
    single.f32_jacobian = true;
    const newton::Report rough = solve(system, model.start(), single).report;
    CHECK(rough.outcome == Outcome::converged);
    CHECK(rough.history.back() <= 1e-8);
    CHECK(rough.iterations <= report.iterations + 1);
  }
  CHECK(compared == 16);
}

TEST_CASE("From a flat start: what diverges, and what damping makes of it") {
  const char* const data = std::getenv("SPARSERTC_DATA");
  if (data == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA names no folder with power/*.m.gz");
    return;
  }
  const auto run = [&](const char* name, const newton::Options& options) {
    const Model model =
        make_model(read_power_case(fmt::format("{}/power/{}.m.gz", data, name)), Start::flat);
    return solve(HostSystem(model), model.start(), options).report;
  };
  for (const char* name : {"case13659pegase", "case_ACTIVSg10k"})
    CHECK(run(name, undamped()).outcome == Outcome::diverged);
  const newton::Report saved = run("case13659pegase", {});
  CHECK(saved.outcome == Outcome::converged);
  CHECK(saved.iterations == 6);
  const newton::Report stuck = run("case_ACTIVSg10k", {});
  CHECK(stuck.outcome == Outcome::stalled);
  CHECK(stuck.history.back() == Approx(19).epsilon(0.02));
}

} // namespace sparsertc::testing
