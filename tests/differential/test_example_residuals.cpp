// The residuals of tools/examples, compiled by the host's compiler, against the same equations and
// derivatives by hand.
#include "ir/error.h"
#include "runtime/newton/newton.h"
#include "tests/support/named_parameters.h"
#include "tools/examples/power_flow/host_system.h"
#include "tools/jacobian_input.h"
#include "tools/jacobian_system.h"
#include "tools/newton_lu.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc {
namespace {

using power_flow::HostSystem;
using power_flow::Model;
using power_flow::Scenarios;
using power_flow::Start;
using Vector = std::vector<double>;

std::string example(const std::string& path) {
  return std::string(SPARSERTC_SOURCE_DIR) + "/tools/examples/" + path;
}

/// Null, said aloud, where there is no compiler.
std::unique_ptr<jacobian::HostSystem> compiled(const JacobianRequest& request) {
  JacobianFacts facts;
  try {
    return make_host_system(request, facts);
  } catch (const RuntimeError& error) {
    WARN("SKIPPED: " << error.what());
    return nullptr;
  }
}

void check_close(const Vector& own, const Vector& expected) {
  REQUIRE(own.size() == expected.size());
  double largest = 1, apart = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    apart = std::max(apart, std::abs(own[i] - expected[i]));
  }
  CHECK(apart <= 1e-13 * largest);
}

void check_power_flow(const Model& model, const Scenarios& scenarios) {
  JacobianRequest request;
  request.source = read_residual(example("power_flow/F.cu"));
  request.instances = std::max<uint64_t>(scenarios.instances, 1);
  request.parameters =
      test::named_parameters(parameter_arrays(model, scenarios), request.instances);
  request.x0 = model.start();
  const auto system = compiled(request);
  if (system == nullptr)
    return;
  const HostSystem by_hand(model, scenarios.instances > 0 ? &scenarios : nullptr);
  CHECK(system->pattern() == by_hand.pattern());
  Vector x = model.start();
  for (size_t i = 0; i < x.size(); ++i)
    x[i] += 0.03 * static_cast<double>(i % 7) - 0.1;
  for (uint64_t s = 0; s < request.instances; ++s) {
    CAPTURE(s);
    Vector own(x.size()), expected(x.size());
    system->residual(x, own, s);
    by_hand.residual(x, expected, s);
    check_close(own, expected);
    own.resize(by_hand.pattern().nnz());
    expected.resize(own.size());
    system->jacobian(x, own, s);
    by_hand.jacobian(x, expected, s);
    check_close(own, expected);
  }
}

} // namespace

TEST_CASE("Power flow's F.cu: pattern, residual and Jacobian, single and in batches") {
  const PowerCase grid = read_power_case(std::string(SPARSERTC_TEST_DATA) + "/grid7.m");
  const Model model = make_model(grid, Start::file);
  check_power_flow(model, {});
  check_power_flow(model, make_load_scenarios(grid, model, 3, 0.4, 9));
  check_power_flow(model, power_flow::make_outages(model, 0));
}

TEST_CASE("The Brusselator's F.cu: a step from the rest state rests, another one converges") {
  constexpr uint64_t kSide = 5;
  const double a = 1, b = 3.4, dt = 0.1;
  Vector rest;
  for (uint64_t cell = 0; cell < kSide * kSide; ++cell)
    rest.insert(rest.end(), {a, b / a});
  Vector disturbed = rest;
  for (size_t i = 0; i < disturbed.size(); ++i)
    disturbed[i] += 0.1 * std::sin(static_cast<double>(i));
  const auto number = [](const char* name, double value) {
    return NamedArray{name, {1}, StoredType::f64, {value}};
  };
  for (const Vector& previous : {rest, disturbed}) {
    JacobianRequest request;
    request.source = read_residual(example("brusselator/F.cu"));
    request.parameters =
        test::named_parameters({{"side", {1}, StoredType::i64, {static_cast<double>(kSide)}},
                                number("dt", dt),
                                number("alpha", 0.002),
                                number("a", a),
                                number("b", b),
                                {"previous", {previous.size()}, StoredType::f64, previous}},
                               1);
    request.x0 = previous;
    const auto system = compiled(request);
    if (system == nullptr)
      return;
    CHECK(system->pattern().nnz() == 6 * previous.size());
    Vector values(system->pattern().nnz()), x = previous;
    system->jacobian(x, values);
    const NewtonLu lu = prepare_newton_lu(jacobian_matrix(system->pattern(), values, "J"));
    lu::Factors<double> factors(lu.tables);
    newton::LuSolver solver(factors);
    const newton::Report report = newton::solve(*system, 0, solver, x, {});
    CHECK(report.outcome == newton::Outcome::converged);
    if (previous == rest)
      CHECK(report.iterations == 0);
    // Diffusion moves nothing out: the sums change by the reactions' alone.
    double change = 0, reactions = 0;
    for (size_t c = 0; c < x.size(); c += 2) {
      change += x[c] + x[c + 1] - previous[c] - previous[c + 1];
      reactions += dt * (a - x[c]);
    }
    CHECK(std::abs(change - reactions) < 1e-6);
  }
}

} // namespace sparsertc
