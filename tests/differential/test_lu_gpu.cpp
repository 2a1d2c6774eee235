// Sparse LU as dataflow: the kernels' PTX, interpreted, against the CPU's factorization, bit by bit
// against the same sums in the same order, and again and again with other values.
#include "compiler/input/read.h"
#include "compiler/inspect/lu_analysis.h"
#include "compiler/lower/lu_dataflow.h"
#include "ir/error.h"
#include "runtime/lu/refine.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

using test::check_dataflow;
using test::Random;
using C64 = std::complex<float>;
using C128 = std::complex<double>;

struct Scene : test::InterpretedGpu {
  Scene()
      : InterpretedGpu({kLuInputKernel, kLuFactorKernel, kLuSolveInputKernel, kLuSolveKernel,
                        kLuBlockInputKernel, kLuBlockSolveKernel}) {}
};

/// For an even n, without fill.
Pattern blocks_of_two(uint32_t n) {
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < n; ++i) {
    entries.push_back({i, i});
    entries.push_back({i, i ^ 1});
  }
  return test::pattern_of(n, entries);
}

/// A block of one warp does all tasks in order and never waits.
constexpr uint32_t kOneWarp = 32;

} // namespace

TEST_CASE("dataflow: hostile shapes", "[lu_gpu]") {
  Scene scene;
  Random random(5);
  for (const test::NamedPattern& named : test::hostile_squares(20)) {
    INFO(named.name);
    check_dataflow<double>(*scene.context, named.pattern, random, false, kOneWarp);
  }
}

TEST_CASE("dataflow: random patterns, both precisions, scaled", "[lu_gpu]") {
  Scene scene;
  const uint64_t seed = 20;
  INFO("seed " << seed);
  Random random(seed);
  const Pattern pattern = test::random_square(random, 40, 3);
  check_dataflow<double>(*scene.context, pattern, random, true, kOneWarp);
  check_dataflow<float>(*scene.context, pattern, random, true, kOneWarp);
  check_dataflow<float>(*scene.context, test::random_grid(random, 6, 7, 0.2), random, false,
                        kOneWarp);
}

TEST_CASE("dataflow: warps that wait for each other", "[lu_gpu]") {
  Scene scene;
  Random random(7);
  check_dataflow<double>(*scene.context, test::random_square(random, 10, 3), random, true, 64);
}

TEST_CASE("block solve: hostile shapes", "[lu_gpu]") {
  Scene scene;
  Random random(5);
  for (const test::NamedPattern& named : test::hostile_squares(40)) {
    INFO(named.name);
    check_dataflow<double>(*scene.context, named.pattern, random, false, kOneWarp, 64);
  }
}

TEST_CASE("block solve: random patterns, both precisions, scaled", "[lu_gpu]") {
  Scene scene;
  const uint64_t seed = 21;
  INFO("seed " << seed);
  Random random(seed);
  check_dataflow<double>(*scene.context, test::random_square(random, 60, 3), random, true, kOneWarp,
                         128);
  check_dataflow<float>(*scene.context, test::random_square(random, 40, 3), random, true, kOneWarp,
                        kOneWarp);
  check_dataflow<double>(*scene.context, test::random_grid(random, 8, 9, 0.2), random, false,
                         kOneWarp, 64);
}

TEST_CASE("dataflow and block solve: complex numbers of both precisions", "[lu_gpu]") {
  Scene scene;
  const uint64_t seed = 22;
  INFO("seed " << seed);
  Random random(seed);
  for (const test::NamedPattern& named : test::hostile_squares(12)) {
    INFO(named.name);
    check_dataflow<C128>(*scene.context, named.pattern, random, false, kOneWarp);
    check_dataflow<C64>(*scene.context, named.pattern, random, true, kOneWarp, 64);
  }
  const Pattern pattern = test::random_square(random, 40, 3);
  check_dataflow<C64>(*scene.context, pattern, random, true, kOneWarp);
  check_dataflow<C128>(*scene.context, pattern, random, true, kOneWarp, 64);
  check_dataflow<C128>(*scene.context, test::random_square(random, 10, 3), random, true, 64);
}

TEST_CASE("dataflow: tiny complex pivots keep their phase", "[lu_gpu]") {
  Scene scene;
  const Pattern pattern = test::pattern_of(3, {{0, 0}, {1, 0}, {1, 1}, {2, 1}, {2, 2}});
  const LuTables tables = test::tables_in_order(pattern);
  // Squares of the second pivot's parts would vanish; the third is 0.
  const std::vector<std::complex<double>> a = {{-3e-30, 4e-30}, 1, {0, 1e-300}, {0, 2}, 0};
  test::LuOnDevice<C128> device(*scene.context, tables, kOneWarp, 1);
  const lu::FactorStatus status = device.refactor(a, {0.5});
  lu::Factors<C128> on_cpu(tables);
  const lu::FactorStatus expected = on_cpu.refactor(a, {0.5});
  CHECK(status.perturbed == 2);
  CHECK(expected.perturbed == 2);
  CHECK(status.outcome == lu::FactorOutcome::singular);
  CHECK(status.column == 2);
  const std::vector<C128> values = device.values();
  for (const uint32_t j : {0u, 1u}) {
    const C128 ours = values[tables.diagonal[j]], theirs = on_cpu.values()[tables.diagonal[j]];
    INFO(j << ": " << ours << " and " << theirs);
    CHECK(std::abs(ours - theirs) <= 1e-15 * std::abs(theirs));
  }
}

TEST_CASE("dataflow: infinite and NaN parts of complex numbers are told", "[lu_gpu]") {
  Scene scene;
  const Pattern pattern = test::pattern_of(2, {{0, 0}, {1, 0}, {1, 1}});
  const LuTables tables = test::tables_in_order(pattern);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::complex<double> bad :
       {std::complex<double>(0, infinity), std::complex<double>(std::nan(""), 1),
        std::complex<double>(1, -std::nan(""))}) {
    INFO(bad);
    const auto check = [&]<class T>() {
      test::LuOnDevice<T> device(*scene.context, tables, kOneWarp, 1);
      const lu::FactorStatus status = device.refactor({1, bad, 1});
      CHECK(status.outcome == lu::FactorOutcome::not_finite);
      CHECK(status.column == 0);
      CHECK(device.refactor({1, {0, 1}, 1}).outcome == lu::FactorOutcome::ok);
    };
    check.operator()<C64>();
    check.operator()<C128>();
  }
}

TEST_CASE("block solve: more shared memory than a kernel can declare", "[lu_gpu]") {
  Scene scene;
  Random random(5);
  check_dataflow<double>(*scene.context, blocks_of_two(6200), random, false, kOneWarp, 512);
}

TEST_CASE("dataflow: real matrices", "[lu_gpu]") {
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA is not set");
    return;
  }
  struct Case {
    const char* name;
    uint32_t threads;
    uint32_t block_threads;
  };
  Scene scene;
  for (const Case& test : {Case{"pf_118_it0", 128, 0}, Case{"add32", kOneWarp, 128},
                           Case{"west0479", kOneWarp, 256}, Case{"fs_183_6", kOneWarp, 0}}) {
    INFO(test.name);
    const Matrix a = read_matrix(std::string(folder) + "/lu/" + test.name + ".mtx.gz");
    const LuAnalysis analysis = analyse_lu(a);
    const LuTables tables = make_lu_tables(
        a.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale});
    test::LuOnDevice<double> device(*scene.context, tables, test.threads, 1, test.block_threads);
    const lu::FactorStatus status = device.refactor(a.values);
    lu::Factors<double> on_cpu(tables);
    const lu::FactorStatus expected = on_cpu.refactor(a.values);
    CHECK(status.outcome == lu::FactorOutcome::ok);
    CHECK(status.perturbed == expected.perturbed);
    CHECK(status.weakest_column == expected.weakest_column);
    CHECK(status.growth == Approx(expected.growth));
    REQUIRE(status.perturbed == 0);
    CHECK(test::same_bits(device.values(),
                          test::factor_in_order<double>(tables, device.flow(), a.values)));
    const lu::MatrixView<double> view{tables.size, a.pattern.row_offset, a.pattern.column_index,
                                      a.values};
    const std::vector<double> b(tables.size, 1.0);
    for (const bool transposed : {false, true}) {
      const std::vector<double> x = device.solve(b, 1, transposed);
      CHECK(lu::relative_residual<double>(view, b, x, transposed) <= 1e-12);
    }
  }
}

TEST_CASE("dataflow: a driver that fails at any call", "[lu_gpu]") {
  // Solved by dataflow, or by one block that asks for more shared memory than is free to all.
  const bool one_block = GENERATE(false, true);
  Scene scene;
  Random random(9);
  const Pattern pattern = one_block ? blocks_of_two(6200) : test::random_square(random, 6, 3);
  const LuTables tables = test::tables_in_order(pattern);
  const std::vector<double> a = test::dominant_values(pattern, random);
  const std::vector<double> b(tables.size, 1.0);
  const auto solve = [&] {
    test::LuOnDevice<double> device(*scene.context, tables, kOneWarp, 1, one_block ? 64 : 0);
    device.refactor(a);
    return device.solve(b, 1, false);
  };
  const auto before = scene.fake.alive();
  const std::vector<double> x = solve();
  uint64_t failures = 0;
  for (uint64_t call = 1;; ++call) {
    scene.fake.fail_call(call);
    try {
      const std::vector<double> again = solve();
      if (scene.fake.failed_call().empty())
        break;
      // Only what gives back may fail in silence.
      INFO(scene.fake.failed_call());
      CHECK((scene.fake.failed_call() == "cuMemFree" ||
             scene.fake.failed_call() == "cuModuleUnload" ||
             scene.fake.failed_call() == "cuStreamDestroy"));
      CHECK(test::same_bits(again, x));
      break;
    } catch (const RuntimeError& error) {
      ++failures;
      INFO(error.what());
      CHECK(std::string(error.what()).find("CUDA_ERROR_UNKNOWN") != std::string::npos);
      CHECK(scene.fake.alive() == before);
    }
  }
  scene.fake.fail_call(0);
  CHECK(failures > 30);
  CHECK(test::same_bits(solve(), x));
}

TEST_CASE("dataflow: blocks that do not fit are refused", "[lu_gpu]") {
  Scene scene;
  Random random(9);
  const Pattern pattern = test::random_square(random, 6, 3);
  const LuTables tables = test::tables_in_order(pattern);
  test::LuOnDevice<double> device(*scene.context, tables, kOneWarp, 1);
  scene.fake.fail_every("cuLaunchCooperativeKernel",
                        cuda::Result::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CHECK_THROWS_WITH(device.refactor(test::dominant_values(pattern, random)),
                    Catch::Contains("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"));
}

} // namespace sparsertc
