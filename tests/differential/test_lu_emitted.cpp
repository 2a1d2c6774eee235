// Sparse LU by kernels that are made for the pattern: their PTX, interpreted, against L*U and the
// CPU's factorization, and bit by bit against the same sums in the same order; straight-line code
// alone, loops alone, and both.
#include "compiler/input/read.h"
#include "compiler/inspect/lu_analysis.h"
#include "compiler/inspect/lu_schedule.h"
#include "compiler/lower/lu_emitted.h"
#include "ir/error.h"
#include "ir/printer.h"
#include "runtime/lu/factors.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_emitted.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <set>

namespace sparsertc {
namespace {

using Catch::Contains;
using test::Random;
using C64 = std::complex<float>;
using C128 = std::complex<double>;

struct Scene : test::InterpretedGpu {
  Scene() : InterpretedGpu({}) {}
  void know(const LuEmitted& plan) {
    fake.kernels = {kLuEmittedNotes};
    for (const std::string& name : test::kernel_names(plan))
      fake.kernels.insert(name);
  }
};

LuEmittedOptions all_unrolled() {
  LuEmittedOptions options;
  options.least_lanes = 0;
  return options;
}
LuEmittedOptions none_unrolled() {
  LuEmittedOptions options;
  options.most_multiply_adds = 0;
  return options;
}

/// Every slot is computed once, in a level after all that it reads.
void check_plan(const LuTables& t, const LuEmitted& plan) {
  constexpr uint32_t kNever = UINT32_MAX;
  std::vector<uint32_t> level_of(t.nnz(), kNever);
  uint64_t products = 0, unrolled = 0;
  for (uint32_t l = 0; l < plan.levels.size(); ++l) {
    const LuEmittedLevel& level = plan.levels[l];
    products += level.multiply_adds;
    unrolled += level.unrolled;
    const auto is_before = [&](uint64_t slot) {
      return level_of[slot] != kNever && level_of[slot] < l;
    };
    std::vector<uint64_t> done;
    for (uint32_t c = plan.strip_offset[level.first_strip]; c < plan.strip_offset[level.end_strip];
         ++c) {
      const uint32_t j = plan.strip_column[c];
      for (uint64_t slot = t.column_offset[j]; slot < t.column_offset[j + 1]; ++slot) {
        done.push_back(slot);
        const uint32_t k = t.row_index[slot];
        if (k < j && t.diagonal[k] + 1 < t.column_offset[k + 1])
          for (uint64_t left = t.diagonal[k]; left < t.column_offset[k + 1]; ++left)
            REQUIRE(is_before(left));
      }
    }
    for (uint32_t number = level.first_task; number < level.end_task; ++number) {
      const LuEmittedTask& task = plan.task[number];
      done.push_back(task.slot);
      for (uint32_t p = task.first; p < task.first + task.count; ++p) {
        REQUIRE(is_before(plan.left[p]));
        REQUIRE(is_before(plan.right[p]));
        REQUIRE(is_before(plan.pivot[p]));
      }
    }
    for (const uint64_t slot : done) {
      REQUIRE(level_of[slot] == kNever);
      level_of[slot] = l;
    }
  }
  REQUIRE(std::count(level_of.begin(), level_of.end(), kNever) == 0);
  CHECK(products == multiply_adds(t));
  CHECK(unrolled + plan.left.size() == products);
  uint32_t level = 0;
  for (const LuEmittedLaunch& launch : plan.launches) {
    CHECK(launch.first_level == level);
    CHECK((launch.end_level == launch.first_level + 1 || launch.blocks == 1));
    level = launch.end_level;
  }
  CHECK(level == plan.levels.size());
}

template <class T>
void check(Scene& scene, const Pattern& pattern, Random& random, bool scaled,
           LuEmittedOptions options) {
  using V = lu::Wide<T>;
  options.number_bytes = sizeof(T);
  const LuTables tables = test::tables_in_order(pattern, scaled ? &random : nullptr);
  const LuEmitted plan = make_lu_emitted(tables, options);
  check_plan(tables, plan);
  scene.know(plan);
  test::StrategyOnDevice<T> factors(*scene.context, tables,
                                    test::make_emitted<T>(*scene.context, tables, plan, "sm_80"));
  lu::Factors<T> on_cpu(tables);
  for (int round = 0; round < 2; ++round) {
    const std::vector<V> a = test::dominant_values<V>(pattern, random);
    const double threshold = std::sqrt(double{lu::unit_roundoff<T>()});
    factors.refactor(a, threshold);
    const lu::FactorStatus expected = on_cpu.refactor_rounded(a);
    const LuStatusRecord status = factors.status();
    CHECK(factors.is_ready_again());
    CHECK((status.zero_column != INT64_MAX) == (expected.outcome == lu::FactorOutcome::singular));
    CHECK((status.perturbed > 0) == (expected.perturbed > 0));
    if (expected.outcome != lu::FactorOutcome::ok || expected.perturbed > 0)
      continue;
    CHECK(status.nonfinite_column == INT64_MAX);
    const std::vector<T> v = factors.values();
    CHECK(test::product_error(tables, v, a) <= 1);
    CHECK(test::same_bits(v, test::factor_by_plan<T>(tables, plan, a)));
    if (tables.size > 0)
      CHECK(std::bit_cast<double>(status.largest) / std::bit_cast<double>(status.largest_input) ==
            Approx(expected.growth).epsilon(1e-4));
    for (const double quotient : factors.quotient())
      CHECK(quotient > 0);
  }
}

} // namespace

TEST_CASE("emitted: hostile shapes, straight-line code and loops", "[lu_emitted]") {
  Scene scene;
  Random random(test::test_seed(20261301));
  for (const test::NamedPattern& named : test::hostile_squares(40))
    for (const LuEmittedOptions& options : {all_unrolled(), none_unrolled(), LuEmittedOptions()}) {
      INFO(named.name << ", budget " << options.most_multiply_adds << ", lanes "
                      << options.least_lanes);
      check<double>(scene, named.pattern, random, false, options);
      check<float>(scene, named.pattern, random, true, options);
    }
}

TEST_CASE("emitted: random patterns and grids", "[lu_emitted]") {
  Scene scene;
  Random random(test::test_seed(20261302));
  for (const LuEmittedOptions& options : {all_unrolled(), none_unrolled(), LuEmittedOptions()}) {
    check<double>(scene, test::random_square(random, 60, 3), random, true, options);
    check<float>(scene, test::random_grid(random, 9, 8, 0.2), random, false, options);
  }
  // Columns of several chunks of 32 rows.
  check<double>(scene, test::random_square(random, 90, 6), random, false, all_unrolled());
}

TEST_CASE("emitted: complex numbers of both precisions", "[lu_emitted]") {
  Scene scene;
  Random random(test::test_seed(20261303));
  for (const test::NamedPattern& named : test::hostile_squares(12)) {
    INFO(named.name);
    check<C128>(scene, named.pattern, random, false, all_unrolled());
    check<C64>(scene, named.pattern, random, true, LuEmittedOptions());
  }
  check<C64>(scene, test::random_square(random, 40, 3), random, true, all_unrolled());
  check<C128>(scene, test::random_square(random, 40, 3), random, true, LuEmittedOptions());
}

TEST_CASE("emitted: what is unrolled is a matter of the budget", "[lu_emitted]") {
  Random random(test::test_seed(20261304));
  const LuTables tables = test::tables_in_order(test::random_grid(random, 12, 12, 0.2));
  const auto unrolled = [&](const LuEmittedOptions& options) {
    const LuEmitted plan = make_lu_emitted(tables, options);
    uint64_t sum = 0;
    for (const LuEmittedLevel& level : plan.levels)
      sum += level.unrolled;
    return sum;
  };
  LuEmittedOptions options = all_unrolled();
  CHECK(unrolled(options) == multiply_adds(tables));
  options.most_multiply_adds = multiply_adds(tables) / 3;
  CHECK(unrolled(options) <= options.most_multiply_adds);
  CHECK(unrolled(options) > options.most_multiply_adds / 2);
  options.most_steps = 3; // nothing but the shortest columns
  CHECK(unrolled(options) < options.most_multiply_adds / 2);
  CHECK(unrolled(options) > 0);
  CHECK(unrolled(none_unrolled()) == 0);
}

TEST_CASE("emitted: the code is the pattern's, and the same each time", "[lu_emitted]") {
  // Column 2 takes column 0, which has row 4, and column 1, which has row 3.
  const Pattern pattern =
      test::pattern_of(5, {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {4, 0}, {3, 1}, {0, 2}, {1, 2}});
  const LuTables tables = test::tables_in_order(pattern);
  const LuEmitted plan = make_lu_emitted(tables, all_unrolled());
  const ir::Module module = make_lu_emitted_kernels(tables, plan, {});
  const std::string text = ir::print(module);
  CHECK(text == ir::print(make_lu_emitted_kernels(tables, plan, {})));
  // %9 is the values' address plus 8 bytes a lane; %7 has the lane's bit. v(4,0) is in slot 1 and
  // for lane 4, v(3,1) in slot 3 for lane 3; their pivots are in slots 0 and 2, column 2 from slot
  // 4 on.
  CHECK_THAT(text, Contains(R"(
    %11 = load.device.f64.readonly %10 + 32  !0,2
  }  !0,2
  %14 = load.device.f64 %values + 0  !0,2
  %15 = const.f64 0  !0,2
  %16 = and.i32 %7, 16  !0,2
  %17 = cmp.ne.i32 %16, 0  !0,2
  if %17 {  !0,2
    %15 = load.device.f64 %9 - 24  !0,2
  }  !0,2
  %18 = load.device.f64 %values + 16  !1,2
  %19 = const.f64 0  !1,2
  %20 = and.i32 %7, 8  !1,2
  %21 = cmp.ne.i32 %20, 0  !1,2
  if %21 {  !1,2
    %19 = load.device.f64 %9 + 0  !1,2
  }  !1,2
)"));
  CHECK_THAT(text, Contains("%11 = fma.f64 %15, %35, %11  !0,2") &&
                       Contains("%11 = fma.f64 %19, %49, %11  !1,2"));
}

TEST_CASE("emitted: tiny pivots keep their sign, zeros and overflow are told", "[lu_emitted]") {
  Scene scene;
  const Pattern pattern =
      test::pattern_of(3, {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {2, 1}, {2, 2}});
  const LuTables tables = test::tables_in_order(pattern);
  constexpr double kThreshold = 1e-8;
  for (const LuEmittedOptions& options : {all_unrolled(), none_unrolled()}) {
    const LuEmitted plan = make_lu_emitted(tables, options);
    scene.know(plan);
    test::StrategyOnDevice<double> factors(
        *scene.context, tables, test::make_emitted<double>(*scene.context, tables, plan, "sm_80"));
    factors.refactor({-1e-30, 0, 1, 1e-30, 0, 1, 2}, kThreshold);
    LuStatusRecord status = factors.status();
    CHECK(status.perturbed == 2);
    CHECK(status.perturbed_column == 0);
    CHECK(status.zero_column == INT64_MAX);
    CHECK(factors.values()[tables.diagonal[0]] == -1 / kThreshold);
    CHECK(factors.values()[tables.diagonal[1]] == 1 / kThreshold);
    CHECK(factors.values()[tables.diagonal[2]] == 0.5);
    CHECK(factors.quotient() == std::vector<double>{1e-30, 1e-30, 1});
    factors.refactor({0, 1, 0, 1, 1, 1, 2}, kThreshold);
    CHECK(factors.status().zero_column == 0);
    factors.refactor({1, 0, 1, std::numeric_limits<double>::infinity(), 1, 1, 2}, kThreshold);
    status = factors.status();
    CHECK(status.nonfinite_column == 1);
    CHECK(status.zero_column == INT64_MAX);
    factors.refactor({1, 0, 1, 1, 0, 1, 1}, kThreshold);
    CHECK(factors.status().nonfinite_column == INT64_MAX); // nothing is left
  }
}

TEST_CASE("emitted: whichever call of the driver fails, all is given back", "[lu_emitted]") {
  Random random(test::test_seed(20261305));
  const Pattern pattern = test::random_square(random, 12, 2);
  const LuTables tables = test::tables_in_order(pattern);
  const LuEmitted plan = make_lu_emitted(tables);
  const std::vector<double> a = test::dominant_values(pattern, random);
  uint64_t failures = 0;
  for (uint64_t number = 1;; ++number) {
    Scene scene;
    scene.know(plan);
    const auto alive = scene.fake.alive();
    scene.fake.fail_call(number, cuda::Result::CUDA_ERROR_ILLEGAL_ADDRESS);
    std::string message;
    try {
      test::StrategyOnDevice<double> factors(
          *scene.context, tables,
          test::make_emitted<double>(*scene.context, tables, plan, "sm_80"));
      factors.refactor(a);
    } catch (const RuntimeError& error) {
      message = error.what();
    }
    const std::string failed = scene.fake.failed_call();
    if (failed.empty())
      break;
    ++failures;
    INFO("call " << number << ", " << failed << ": " << message);
    if (failed == "cuMemFree" || failed == "cuStreamDestroy" || failed == "cuModuleUnload") {
      CHECK(message.empty());
    } else {
      CHECK_THAT(message, Contains(failed + " failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
      CHECK(scene.fake.alive() == alive);
    }
  }
  CHECK(failures > 20);
}

} // namespace sparsertc
