#include "ir/error.h"
#include "runtime/newton/newton.h"
#include "tests/support/dense_system.h"
#include "tools/newton_lu.h"

#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace sparsertc::testing {
namespace {

using newton::Outcome;
using Vector = std::vector<double>;

using test::DenseSystem;

struct Solved {
  newton::Report report;
  Vector x;
};

/// With factors in float32 where the options say so.
Solved solve(const DenseSystem& system, Vector x, const newton::Options& options = {}) {
  Vector values(system.pattern().nnz());
  system.jacobian(x, values, 0);
  for (double& value : values) // the pattern's pivots, where the start has none
    value = std::isfinite(value) ? value : 1;
  LuAnalysisOptions analysis;
  analysis.matching = Toggle::off;
  const NewtonLu lu = prepare_newton_lu(jacobian_matrix(system.pattern(), values, "J"), analysis);
  lu::Factors<double> factors(lu.tables);
  lu::Factors<float> f32_factors(lu.tables);
  newton::LuSolver solver(factors);
  newton::SingleLuSolver f32_solver(f32_factors);
  Solved solved;
  if (options.f32_jacobian)
    solved.report = newton::solve(system, 0, f32_solver, x, options);
  else
    solved.report = newton::solve(system, 0, solver, x, options);
  solved.x = x;
  return solved;
}

const DenseSystem kCircle(
    2,
    [](const Vector& x, uint64_t) {
      return Vector{x[0] * x[0] + x[1] * x[1] - 5, x[0] * x[1] - 2};
    },
    [](const Vector& x, uint64_t) {
      return Vector{2 * x[0], 2 * x[1], x[1], x[0]};
    });

const DenseSystem kArcTangent(
    1, [](const Vector& x, uint64_t) { return Vector{std::atan(x[0])}; },
    [](const Vector& x, uint64_t) { return Vector{1 / (1 + x[0] * x[0])}; });

newton::Options undamped() {
  newton::Options options;
  options.damping = false;
  return options;
}

} // namespace

TEST_CASE("Newton converges quadratically, and says what it did") {
  const Solved solved = solve(kCircle, {3, 1.5});
  const newton::Report& report = solved.report;
  CHECK(report.outcome == Outcome::converged);
  CHECK(solved.x[0] == Approx(2).epsilon(1e-9));
  CHECK(solved.x[1] == Approx(1).epsilon(1e-9));
  REQUIRE(report.history.size() == report.iterations + 1);
  CHECK(report.step_length == Vector(report.iterations, 1.0));
  CHECK(report.factorizations == report.iterations);
  CHECK(report.history[0] == 6.25); // 9 + 2.25 - 5
  CHECK(report.history.back() <= 1e-8);
  for (size_t i = 2; i < report.history.size(); ++i)
    CHECK(report.history[i] < 0.3 * std::pow(report.history[i - 1], 1.9) + 1e-15);
}

TEST_CASE("Where the start is the solution nothing is factorized") {
  const Solved solved = solve(kCircle, {2, 1});
  CHECK(solved.report.outcome == Outcome::converged);
  CHECK(solved.report.iterations == 0);
  CHECK(solved.report.factorizations == 0);
}

TEST_CASE("No unknowns, no residual") {
  const DenseSystem nothing(
      0, [](const Vector&, uint64_t) { return Vector{}; },
      [](const Vector&, uint64_t) { return Vector{}; });
  CHECK(solve(nothing, {}).report.outcome == Outcome::converged);
}

TEST_CASE("A function that full steps diverge on converges with halved ones") {
  const Solved plain = solve(kArcTangent, {3}, undamped());
  // Far out the arc tangent is flat: steps grow until the derivative is no number any more.
  CHECK(plain.report.outcome != Outcome::converged);
  const Solved damped = solve(kArcTangent, {3});
  CHECK(damped.report.outcome == Outcome::converged);
  CHECK(damped.report.step_length.front() < 1);
  for (size_t i = 1; i < damped.report.history.size(); ++i)
    CHECK(damped.report.history[i] < damped.report.history[i - 1]);
}

TEST_CASE("Growth without bound is divergence") {
  // x^(1/3): a step goes from x to -2 x.
  const DenseSystem root(
      1, [](const Vector& x, uint64_t) { return Vector{std::cbrt(x[0])}; },
      [](const Vector& x, uint64_t) { return Vector{std::pow(std::abs(x[0]), -2.0 / 3) / 3}; });
  newton::Options options = undamped();
  options.maximum_iterations = 100;
  const newton::Report report = solve(root, {1}, options).report;
  CHECK(report.outcome == Outcome::diverged);
  CHECK(report.history.back() > 1e6);
  CHECK(report.history[1] == Approx(std::cbrt(2)));
  options.maximum_iterations = 5; // not yet beyond the ratio, but more than at the start
  const newton::Report early = solve(root, {1}, options).report;
  CHECK(early.outcome == Outcome::diverged);
  CHECK(early.iterations == 5);
}

TEST_CASE("Without a root the damped method stalls") {
  const DenseSystem none(
      1, [](const Vector& x, uint64_t) { return Vector{x[0] * x[0] + 1}; },
      [](const Vector& x, uint64_t) { return Vector{2 * x[0]}; });
  const newton::Report report = solve(none, {3}).report;
  CHECK(report.outcome == Outcome::stalled);
  CHECK(report.history.back() >= 1);
  CHECK(report.history.back() < 1.2);
}

TEST_CASE("Progress that is not enough is the iteration limit") {
  newton::Options options;
  options.maximum_iterations = 2;
  const newton::Report report = solve(kCircle, {3, 1.5}, options).report;
  CHECK(report.outcome == Outcome::iteration_limit);
  CHECK(report.iterations == 2);
  options.maximum_iterations = 0;
  CHECK(solve(kCircle, {3, 1.5}, options).report.outcome == Outcome::iteration_limit);
}

TEST_CASE("A Jacobian that is singular at the iterate") {
  const DenseSystem square(
      2,
      [](const Vector& x, uint64_t) {
        return Vector{x[0] * x[0] - 1, x[1] * x[1] - 1};
      },
      [](const Vector& x, uint64_t) {
        return Vector{2 * x[0], 0, 0, 2 * x[1]};
      });
  const newton::Report zero = solve(square, {1.5, 0}).report;
  CHECK(zero.outcome == Outcome::singular);
  CHECK(zero.factor.column == 1);
  CHECK(zero.iterations == 0);
  // Rows that depend on one another: a pivot is replaced, and the step leads nowhere.
  const DenseSystem dependent(
      2,
      [](const Vector& x, uint64_t) {
        return Vector{x[0] + x[1] - 1, x[0] + x[1] - 3};
      },
      [](const Vector&, uint64_t) {
        return Vector{1, 1, 1, 1};
      });
  const newton::Report rows = solve(dependent, {0, 0}).report;
  CHECK(rows.outcome == Outcome::singular);
  CHECK(rows.factor.perturbed > 0);
}

TEST_CASE("NaN and infinity are reported, and damping steps around them") {
  const DenseSystem logarithm(
      1, [](const Vector& x, uint64_t) { return Vector{std::log(x[0])}; },
      [](const Vector& x, uint64_t) { return Vector{1 / x[0]}; });
  CHECK(solve(logarithm, {-1}).report.outcome == Outcome::not_finite);
  CHECK(solve(logarithm, {20}, undamped()).report.outcome == Outcome::not_finite);
  const Solved damped = solve(logarithm, {20});
  CHECK(damped.report.outcome == Outcome::converged);
  CHECK(damped.x[0] == Approx(1));
  const DenseSystem no_derivative(
      1, [](const Vector& x, uint64_t) { return Vector{x[0] - 1}; },
      [](const Vector&, uint64_t) { return Vector{std::numeric_limits<double>::quiet_NaN()}; });
  CHECK(solve(no_derivative, {0}).report.outcome == Outcome::not_finite);
}

TEST_CASE("An old Jacobian costs iterations and saves factorizations") {
  newton::Options chord;
  chord.refactor_every = 4;
  const newton::Report often = solve(kCircle, {2.2, 1.1}).report;
  const newton::Report seldom = solve(kCircle, {2.2, 1.1}, chord).report;
  CHECK(seldom.outcome == Outcome::converged);
  CHECK(seldom.iterations > often.iterations);
  CHECK(seldom.factorizations == (seldom.iterations + 3) / 4);
  // Where the old one leads uphill there is a new one before the method gives up: from 0 to 1,
  // where the slope has the other sign, and to the minimum at the root of 2/3.
  const DenseSystem cubic(
      1, [](const Vector& x, uint64_t) { return Vector{x[0] * x[0] * x[0] - 2 * x[0] + 2}; },
      [](const Vector& x, uint64_t) { return Vector{3 * x[0] * x[0] - 2}; });
  chord.refactor_every = 1000;
  const newton::Report uphill = solve(cubic, {0}, chord).report;
  CHECK(uphill.outcome == Outcome::stalled);
  CHECK(uphill.factorizations > 1);
}

TEST_CASE("With the Jacobian and its factors in float32 the residual is as small in the end") {
  newton::Options single;
  single.f32_jacobian = true;
  const Solved exact = solve(kCircle, {3, 1.5}), found = solve(kCircle, {3, 1.5}, single);
  CHECK(found.report.outcome == Outcome::converged);
  CHECK(found.report.iterations <= exact.report.iterations + 1);
  CHECK(found.report.history.back() <= 1e-8);
  CHECK(found.x[0] == Approx(2).epsilon(1e-9));
  CHECK(found.x != exact.x); // they are not the same steps
  // Linear: one step where it is exact, then a factor of some 1e-7 a step.
  const DenseSystem linear(
      1, [](const Vector& x, uint64_t) { return Vector{3.3 * x[0] - 1e6}; },
      [](const Vector&, uint64_t) { return Vector{3.3}; });
  CHECK(solve(linear, {0}).report.iterations == 1);
  const newton::Report steps = solve(linear, {0}, single).report;
  CHECK(steps.outcome == Outcome::converged);
  CHECK(steps.iterations > 1);
  CHECK(steps.iterations <= 3);
}

TEST_CASE("What float32 cannot factorize is said") {
  newton::Options single;
  single.f32_jacobian = true;
  // The rows differ by what float32 can hardly tell: a pivot is replaced, and steps are too short.
  const DenseSystem close(
      2,
      [](const Vector& x, uint64_t) {
        return Vector{x[0] + x[1] - 1, x[0] + (1 + 1e-7) * x[1] - 2};
      },
      [](const Vector&, uint64_t) {
        return Vector{1, 1, 1, 1 + 1e-7};
      });
  newton::Options exact;
  exact.tolerance = single.tolerance = 1e-4;
  CHECK(solve(close, {0, 0}, exact).report.outcome == Outcome::converged);
  const newton::Report slow = solve(close, {0, 0}, single).report;
  CHECK(slow.outcome == Outcome::iteration_limit);
  CHECK(slow.factor.perturbed == 1);
  // A slope that float32 does not have.
  const DenseSystem steep(
      1, [](const Vector& x, uint64_t) { return Vector{1e40 * (x[0] - 1)}; },
      [](const Vector&, uint64_t) { return Vector{1e40}; });
  CHECK(solve(steep, {0}, exact).report.outcome == Outcome::converged);
  CHECK(solve(steep, {0}, single).report.outcome == Outcome::not_finite);
}

} // namespace sparsertc::testing
