// Iterative refinement by the GPU's kernels, interpreted, against the host's.
#include "compiler/lower/lu_dataflow.h"
#include "compiler/lower/lu_refine.h"
#include "ir/error.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/lu_refine.h"

#include <catch2/catch.hpp>

#include <complex>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc {
namespace {

using test::check_refinement;
using test::Random;
using C64 = std::complex<float>;
using C128 = std::complex<double>;

struct Scene : test::InterpretedGpu {
  Scene()
      : InterpretedGpu({kLuInputKernel, kLuFactorKernel, kLuSolveInputKernel, kLuSolveKernel,
                        kLuBlockInputKernel, kLuBlockSolveKernel, kLuRefineBegin, kLuRefineUpdate,
                        kLuRefineResidual, kLuRefineDecide, kLuRefineEnd}) {}
};

constexpr uint32_t kOneWarp = 32;

} // namespace

TEST_CASE("refinement: hostile shapes", "[lu_refine]") {
  Scene scene;
  Random random(5);
  for (const test::NamedPattern& named : test::hostile_squares(40)) {
    INFO(named.name);
    check_refinement<double, double>(*scene.context, named.pattern, random, false, kOneWarp);
  }
}

TEST_CASE("refinement: every type of factors and solution", "[lu_refine]") {
  Scene scene;
  const uint64_t seed = 31;
  INFO("seed " << seed);
  Random random(seed);
  const Pattern pattern = test::random_square(random, 40, 3);
  check_refinement<double, double>(*scene.context, pattern, random, true, kOneWarp, 64);
  check_refinement<float, double>(*scene.context, pattern, random, true, kOneWarp);
  check_refinement<float, float>(*scene.context, pattern, random, true, kOneWarp, 64);
  check_refinement<C128, C128>(*scene.context, pattern, random, true, kOneWarp);
  check_refinement<C64, C128>(*scene.context, pattern, random, true, kOneWarp, 64);
  check_refinement<C64, C64>(*scene.context, pattern, random, false, kOneWarp);
}

TEST_CASE("refinement: more rows than threads take at once", "[lu_refine]") {
  Scene scene;
  Random random(6);
  const Pattern pattern = test::random_square(random, 2100, 1);
  const LuTables tables = test::tables_in_order(pattern);
  const std::vector<double> a = test::dominant_values(pattern, random);
  test::RefineOnDevice<double, double> device(*scene.context, tables, kOneWarp);
  device.refactor(a);
  std::vector<double> b(tables.size);
  for (double& value : b)
    value = random.symmetric();
  lu::RefineOptions options;
  options.maximum_steps = 1;
  const std::vector<double> x = device.solve(a, b, 1, true, options);
  const lu::MatrixView<double> view{tables.size, pattern.row_offset, pattern.column_index, a};
  CHECK(device.results(1)[0].backward_error < 1e-15);
  CHECK(device.results(1)[0].residual < 1e-15);
  CHECK(lu::relative_residual<double>(view, b, x, true) < 1e-15);
}

TEST_CASE("refinement: none asked for", "[lu_refine]") {
  Scene scene;
  Random random(7);
  const Pattern pattern = test::random_square(random, 20, 3);
  const LuTables tables = test::tables_in_order(pattern);
  const std::vector<double> a = test::dominant_values(pattern, random);
  test::RefineOnDevice<float, double> device(*scene.context, tables, kOneWarp);
  device.refactor(a);
  const std::vector<double> b(tables.size, 1.0);
  lu::RefineOptions options;
  options.maximum_steps = 0;
  const std::vector<double> x = device.solve(a, b, 1, false, options);
  CHECK(device.results(1)[0].steps == 0);
  const double once = device.results(1)[0].backward_error;
  CHECK(once > 1e-10); // factors in single precision
  CHECK(once < 1e-5);
  device.solve(a, b, 1, false);
  CHECK(device.results(1)[0].steps > 0);
  CHECK(device.results(1)[0].backward_error < 1e-14);
  // What is small enough ends it.
  options.maximum_steps = 5;
  options.target = 1e-3;
  CHECK(test::same_bits(device.solve(a, b, 1, false, options), x));
}

TEST_CASE("refinement: numbers that are not finite", "[lu_refine]") {
  Scene scene;
  Random random(8);
  const Pattern pattern = test::random_square(random, 12, 3);
  const LuTables tables = test::tables_in_order(pattern);
  const std::vector<double> a = test::dominant_values(pattern, random);
  test::RefineOnDevice<double, double> device(*scene.context, tables, kOneWarp);
  device.refactor(a);
  // Of two right-hand sides one harms the other in nothing.
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    std::vector<double> b(2 * tables.size, 1.0);
    b[3] = bad;
    const std::vector<double> x = device.solve(a, b, 2, false);
    const std::vector<lu::RefineResult> results = device.results(2);
    CHECK(std::isinf(results[0].backward_error));
    CHECK(std::isnan(results[0].residual));
    CHECK(results[1].backward_error < 1e-15);
    CHECK(x[0] == 0); // there is no solution to give
  }
}

TEST_CASE("refinement: what is refused", "[lu_refine]") {
  Scene scene;
  Random random(9);
  const Pattern pattern = test::random_square(random, 6, 2);
  const LuTables tables = test::tables_in_order(pattern);
  const std::vector<double> a = test::dominant_values(pattern, random);
  test::RefineOnDevice<double, double> device(*scene.context, tables, kOneWarp);
  device.refactor(a);
  CHECK_THROWS_WITH(device.enqueue(4, false, {}), Catch::Contains("4 right-hand sides"));
}

TEST_CASE("refinement: a driver that fails at any call", "[lu_refine]") {
  Scene scene;
  Random random(10);
  const Pattern pattern = test::random_square(random, 5, 2);
  const LuTables tables = test::tables_in_order(pattern);
  const std::vector<double> a = test::dominant_values(pattern, random);
  const std::vector<double> b(tables.size, 1.0);
  lu::RefineOptions options;
  options.maximum_steps = 1;
  const auto solve = [&] {
    test::RefineOnDevice<double, double> device(*scene.context, tables, kOneWarp);
    device.refactor(a);
    const std::vector<double> x = device.solve(a, b, 1, false, options);
    device.results(1);
    return x;
  };
  const auto before = scene.fake.alive();
  const std::vector<double> x = solve();
  uint64_t failures = 0;
  for (uint64_t call = 1;; ++call) {
    scene.fake.fail_call(call);
    try {
      const std::vector<double> again = solve();
      CHECK(test::same_bits(again, x)); // what failed, if anything, was only to give back
      break;
    } catch (const RuntimeError& error) {
      ++failures;
      INFO(error.what());
      CHECK(std::string(error.what()).find("CUDA_ERROR_UNKNOWN") != std::string::npos);
      CHECK(scene.fake.alive() == before);
    }
  }
  scene.fake.fail_call(0);
  CHECK(failures > 50);
  CHECK(test::same_bits(solve(), x));
}

} // namespace sparsertc
