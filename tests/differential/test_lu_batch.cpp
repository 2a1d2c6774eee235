// Sparse LU in batches: the code of a pattern, interpreted as PTX, bit by bit against the same sums
// on the CPU; cuts at every place, replaced pivots, instances that are not finite.
#include "compiler/input/read.h"
#include "compiler/inspect/lu_analysis.h"
#include "compiler/inspect/lu_batch_shares.h"
#include "compiler/inspect/lu_schedule.h"
#include "ir/error.h"
#include "ir/printer.h"
#include "runtime/lu/refine.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/lu_batch.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_patterns.h"
#include "tools/lu_batch.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <string>

namespace sparsertc {
namespace {

using test::Random;
using Batch = std::vector<std::vector<double>>;

struct Scene : test::InterpretedGpu {
  Scene() : InterpretedGpu({kLuBatchFactorKernel, kLuBatchSolveKernel}) {}
};

/// More than a group, and not a whole number of them.
constexpr uint64_t kInstances = 40;

Batch dominant(const Pattern& pattern, Random& random, uint64_t instances = kInstances) {
  Batch batch;
  for (uint64_t s = 0; s < instances; ++s)
    batch.push_back(test::dominant_values(pattern, random));
  return batch;
}

/// Entries of the first row, the first column and the diagonal; or of the last ones.
Pattern arrow(uint32_t size, bool first) {
  const uint32_t tip = first ? 0 : size - 1;
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < size; ++i) {
    entries.emplace_back(i, i);
    entries.emplace_back(tip, i);
    entries.emplace_back(i, tip);
  }
  return test::pattern_of(size, entries);
}

Pattern tridiagonal(uint32_t size) {
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < size; ++i)
    for (uint32_t j = i == 0 ? 0 : i - 1; j < std::min(size, i + 2); ++j)
      entries.emplace_back(i, j);
  return test::pattern_of(size, entries);
}

} // namespace

TEST_CASE("batch: small patterns, scaled and not", "[lu_batch]") {
  Scene scene;
  const uint64_t seed = 11;
  INFO("seed " << seed);
  Random random(seed);
  for (const Pattern& pattern : {test::random_square(random, 30, 3), arrow(12, true),
                                 arrow(25, false), tridiagonal(30), tridiagonal(1)})
    for (const bool scaled : {false, true}) {
      INFO(pattern.rows << " rows, " << pattern.nnz() << " entries, scaled " << scaled);
      const LuTables tables = test::tables_in_order(pattern, scaled ? &random : nullptr);
      test::check_batch(*scene.context, tables, dominant(pattern, random), random);
    }
}

TEST_CASE("batch: hostile shapes", "[lu_batch]") {
  Scene scene;
  Random random(19);
  for (const test::NamedPattern& named : test::hostile_squares(20)) {
    INFO(named.name);
    const LuTables tables = test::tables_in_order(named.pattern);
    test::check_batch(*scene.context, tables, dominant(named.pattern, random, 3), random);
  }
}

TEST_CASE("batch: functions cut anywhere, little remembered", "[lu_batch]") {
  Scene scene;
  Random random(12);
  const Pattern pattern = test::random_square(random, 15, 4);
  const LuTables tables = test::tables_in_order(pattern, &random);
  for (const uint32_t operations : {10u, 17u, 40u})
    for (const uint32_t window : {1u, 3u, 8u}) {
      INFO(operations << " operations, window " << window);
      LuBatchOptions options;
      options.operations_of_function = operations;
      options.window = window;
      options.ahead = window / 2;
      test::check_batch(*scene.context, tables, dominant(pattern, random, 3), random, options);
    }
}

TEST_CASE("batch: the columns shared by warps", "[lu_batch]") {
  Scene scene;
  const uint64_t seed = 27;
  INFO("seed " << seed);
  Random random(seed);
  std::vector<Pattern> patterns = {test::random_square(random, 40, 2), arrow(12, true),
                                   arrow(25, false), test::random_grid(random, 7, 6, 0.3),
                                   tridiagonal(30)};
  for (const test::NamedPattern& named : test::hostile_squares(20))
    patterns.push_back(named.pattern);
  for (const Pattern& pattern : patterns)
    for (const uint32_t warps : {2u, 3u, 8u}) {
      INFO(pattern.rows << " rows, " << pattern.nnz() << " entries, " << warps << " warps");
      const LuTables tables = test::tables_in_order(pattern, &random);
      LuBatchOptions options;
      options.warps = warps;
      options.operations_of_function = warps == 3 ? 30 : 1500;
      test::check_batch(*scene.context, tables, dominant(pattern, random, warps == 2 ? 40 : 3),
                        random, options, warps == 8 ? 0.9 : 0.0);
    }
}

TEST_CASE("batch: shares are independent within a stage", "[lu_batch]") {
  const uint64_t seed = 28;
  INFO("seed " << seed);
  Random random(seed);
  std::vector<Pattern> patterns = {test::random_square(random, 60, 2), arrow(25, false),
                                   test::random_grid(random, 12, 11, 0.3), tridiagonal(30)};
  for (const test::NamedPattern& named : test::hostile_squares(20))
    patterns.push_back(named.pattern);
  for (const Pattern& pattern : patterns)
    for (const uint32_t warps : {1u, 2u, 4u, 8u}) {
      INFO(pattern.rows << " rows, " << pattern.nnz() << " entries, " << warps << " warps");
      const LuTables tables = test::tables_in_order(pattern);
      const std::vector<uint64_t> weight = lu_batch_factor_weights(tables);
      const LuBatchShares shares = share_lu_batch(tables, weight, warps);
      uint64_t all = 0;
      for (const uint64_t one : weight)
        all += one;
      CHECK(shares.longest(weight) <= all);
      // Where each column is: once.
      std::vector<std::pair<size_t, size_t>> place(tables.size, {SIZE_MAX, SIZE_MAX});
      for (size_t stage = 0; stage < shares.stages.size(); ++stage)
        for (size_t warp = 0; warp < shares.stages[stage].size(); ++warp)
          for (size_t k = 0; k < shares.stages[stage][warp].size(); ++k) {
            const uint32_t column = shares.stages[stage][warp][k];
            CHECK((k == 0 || shares.stages[stage][warp][k - 1] < column));
            CHECK(place[column].first == SIZE_MAX);
            place[column] = {stage, warp};
          }
      for (uint32_t i = 0; i < tables.size; ++i)
        for (uint64_t p = tables.row_offset[i]; p < tables.row_offset[i + 1]; ++p) {
          const uint32_t j = tables.column_index[p], first = std::min(i, j),
                         second = std::max(i, j);
          REQUIRE(place[first].first <= place[second].first);
          if (place[first].first == place[second].first)
            REQUIRE(place[first].second == place[second].second);
        }
    }
  // An arrow's columns are independent of each other but for the last one: four warps share them.
  const LuTables tables = test::tables_in_order(arrow(400, false));
  const std::vector<uint64_t> weight = lu_batch_factor_weights(tables);
  CHECK(2 * share_lu_batch(tables, weight, 4).longest(weight) <
        share_lu_batch(tables, weight, 1).longest(weight) + 2 * weight.back());
}

/// As T, rounded.
template <class T>
std::vector<std::vector<T>> rounded(const Batch& batch) {
  std::vector<std::vector<T>> result;
  for (const std::vector<double>& one : batch)
    result.emplace_back(one.begin(), one.end());
  return result;
}

TEST_CASE("batch: in single precision", "[lu_batch]") {
  Scene scene;
  Random random(23);
  for (const Pattern& pattern :
       {test::random_square(random, 30, 3), arrow(12, true), tridiagonal(1)}) {
    const LuTables tables = test::tables_in_order(pattern, &random);
    test::check_batch(*scene.context, tables, rounded<float>(dominant(pattern, random, 5)), random);
    LuBatchOptions looped;
    looped.most_multiply_adds = 0;
    test::check_batch(*scene.context, tables, rounded<float>(dominant(pattern, random, 5)), random,
                      looped, 0.9);
    LuBatchOptions wide;
    wide.wide_vectors = true;
    wide.warps = 2;
    looped.wide_vectors = true;
    for (const LuBatchOptions& options : {wide, looped})
      test::check_batch(*scene.context, tables, rounded<float>(dominant(pattern, random, 40)),
                        random, options);
  }
  // What is not scaled and fits into f32 comes to f64 as it is.
  const Pattern pattern = tridiagonal(20);
  LuBatchOptions wide;
  wide.wide_vectors = true;
  test::check_batch(*scene.context, test::tables_in_order(pattern),
                    rounded<float>(dominant(pattern, random, 3)), random, wide);
}

TEST_CASE("batch: by tables, the bits of straight-line code", "[lu_batch]") {
  Scene scene;
  const uint64_t seed = 24;
  INFO("seed " << seed);
  Random random(seed);
  LuBatchOptions looped;
  looped.most_multiply_adds = 0;
  for (const test::NamedPattern& named : test::hostile_squares(20)) {
    INFO(named.name);
    const LuTables tables = test::tables_in_order(named.pattern);
    if (multiply_adds(tables) > 0)
      test::check_batch(*scene.context, tables, dominant(named.pattern, random, 3), random, looped);
  }
  for (const Pattern& pattern : {test::random_square(random, 40, 4), arrow(25, false)})
    for (const double threshold : {0.0, 0.99}) {
      const LuTables tables = test::tables_in_order(pattern, &random);
      test::check_batch(*scene.context, tables, dominant(pattern, random), random, looped,
                        threshold);
    }
  // A column of which nothing is given, and an instance that is not finite.
  const Pattern pattern = tridiagonal(10);
  const LuTables tables = test::tables_in_order(pattern);
  Batch values = dominant(pattern, random, 3);
  values[1][4] = std::numeric_limits<double>::quiet_NaN();
  test::check_batch(*scene.context, tables, values, random, looped);
}

/// Complex, with diagonals that dominate.
template <class T>
std::vector<std::vector<T>> complex_dominant(const Pattern& pattern, Random& random,
                                             uint64_t instances) {
  std::vector<std::vector<T>> batch;
  for (uint64_t s = 0; s < instances; ++s) {
    batch.emplace_back();
    for (const std::complex<double> value :
         test::dominant_values<std::complex<double>>(pattern, random))
      batch.back().push_back(lu::to_scalar<T>(value));
  }
  return batch;
}

TEST_CASE("batch: complex, by tables", "[lu_batch]") {
  using C64 = std::complex<float>;
  using C128 = std::complex<double>;
  Scene scene;
  Random random(25);
  for (const Pattern& pattern :
       {test::random_square(random, 25, 3), arrow(12, true), arrow(12, false), tridiagonal(1)}) {
    const LuTables tables = test::tables_in_order(pattern, &random);
    for (const double threshold : {0.0, 0.9}) {
      test::check_batch(*scene.context, tables, complex_dominant<C128>(pattern, random, 35), random,
                        {}, threshold);
      test::check_batch(*scene.context, tables, complex_dominant<C64>(pattern, random, 3), random,
                        {}, threshold);
    }
  }
  const Pattern pattern = tridiagonal(10);
  std::vector<std::vector<C128>> values = complex_dominant<C128>(pattern, random, 3);
  values[1][4] = {1, std::numeric_limits<double>::quiet_NaN()};
  test::check_batch(*scene.context, test::tables_in_order(pattern), values, random);
}

TEST_CASE("batch: pivots that are replaced", "[lu_batch]") {
  Scene scene;
  Random random(13);
  const Pattern pattern = test::random_square(random, 20, 3);
  const LuTables tables = test::tables_in_order(pattern);
  Batch values = dominant(pattern, random, 5);
  uint32_t replaced = 0;
  for (size_t s = 0; s < values.size(); ++s)
    for (uint32_t j = 0; j < pattern.rows; ++j)
      for (uint64_t p = pattern.row_offset[j]; p < pattern.row_offset[j + 1]; ++p)
        if (pattern.column_index[p] == j && (j + s) % 3 == 0)
          values[s][p] *= j % 2 == 0 ? 1e-12 : -1e-12;
  for (const std::vector<double>& one : values)
    replaced += test::solve_in_order(tables, one, std::vector<double>(20, 1.0), 0.01).replaced;
  REQUIRE(replaced > 10);
  test::check_batch(*scene.context, tables, values, random, {}, 0.01);
}

TEST_CASE("batch: an instance that is not finite harms no other", "[lu_batch]") {
  Scene scene;
  Random random(14);
  const Pattern pattern = tridiagonal(10);
  const LuTables tables = test::tables_in_order(pattern);
  Batch values = dominant(pattern, random, 6);
  values[1][4] = std::numeric_limits<double>::quiet_NaN();
  values[2][0] = std::numeric_limits<double>::infinity();
  for (uint32_t p = 0; p < pattern.nnz(); ++p) // a column of zeros
    if (pattern.column_index[p] == 0)
      values[4][p] = 0;
  const Batch b(6, std::vector<double>(10, 1.0));
  test::LuBatchOnDevice device(*scene.context, tables, 6);
  const Batch x = device.solve(values, b);
  const std::vector<lu::BatchStatus> status = device.status();
  const double threshold = std::sqrt(std::numeric_limits<double>::epsilon() / 2);
  for (const size_t s : {size_t{0}, size_t{3}, size_t{5}}) {
    CHECK(status[s].finite);
    const std::vector<double> expected = test::solve_in_order(tables, values[s], b[s], threshold).x;
    CHECK(test::same_bits(x[s], expected));
  }
  for (const size_t s : {size_t{1}, size_t{2}, size_t{4}})
    CHECK_FALSE(status[s].finite);
  // The same memory again: what was wrong is forgotten.
  values = dominant(pattern, random, 6);
  device.solve(values, b);
  for (const lu::BatchStatus& one : device.status())
    CHECK(one.finite);
}

TEST_CASE("batch: what is refused", "[lu_batch]") {
  Scene scene;
  Random random(15);
  const Pattern pattern = test::random_square(random, 10, 3);
  const LuTables tables = test::tables_in_order(pattern);
  LuBatchOptions options;
  options.most_multiply_adds = multiply_adds(tables) - 1;
  CHECK_FALSE(is_unrolled(tables, options));
  CHECK_THROWS_WITH(make_lu_batch(tables, options), Catch::Contains("multiply-adds"));
  CHECK_THROWS_AS(test::LuBatchOnDevice(*scene.context, tables, 0), UserError);
  const test::LuBatchOnDevice device(*scene.context, tables, 2);
  const cuda::Stream stream(*scene.context);
  CHECK_THROWS_WITH(device.batch().solve(4096, 4096 + 8, stream), Catch::Contains("overlap"));
}

TEST_CASE("batch: the code of a 3 x 3 matrix", "[lu_batch]") {
  // x . x
  // . x x   entry (2,2) takes one product, those above it none
  // . x x
  const Pattern pattern = test::pattern_of(3, {{0, 0}, {0, 2}, {1, 1}, {1, 2}, {2, 1}, {2, 2}});
  const ir::Module module = make_lu_batch(test::tables_in_order(pattern));
  REQUIRE(module.functions.size() == 5); // one forward, one backward
  const std::string text = ir::print(module);
  const auto count = [&](const std::string& word) {
    size_t found = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
      ++found;
    return found;
  };
  CHECK(count("div.f64") == 3);
  CHECK(count("call @lu_batch_factor_0") == 1);
  CHECK(count("call @lu_batch_solve_0") == 1);
  CHECK(count("call @lu_batch_solve_1") == 1);
  // Slots: (0,0), (1,1), (2,1), (0,2), (1,2), (2,2), 256 bytes apart. What has just been computed
  // is not loaded: all operands of this factorization are in registers.
  for (int slot = 0; slot < 6; ++slot)
    CHECK(count("store.device.f64 %factors + " + std::to_string(slot * 256) + ",") == 1);
  const std::string factor = text.substr(0, text.find("kernel @"));
  CHECK(factor.find("load.device.f64 %factors") == std::string::npos);
}

TEST_CASE("batch: the road of the command", "[lu_batch]") {
  // Newer than the driver, so that PTX is loaded, which can be interpreted.
  struct NeverAsked : Assembler {
    std::string identity() const override { return "newest 99.0"; }
    Assembled assemble(const AssembleRequest&) const override {
      throw InternalError("the assembler was asked");
    }
  };
  Scene scene;
  Random random(17);
  Matrix a;
  a.pattern = test::random_square(random, 12, 3);
  a.values = test::dominant_values(a.pattern, random);
  const LuTables tables = test::tables_in_order(a.pattern, &random);
  LuBatchRequest request;
  request.instances = 70;
  TaskPool pool(2);
  const LuBatchReport gpu = run_gpu_batch(*scene.context, NeverAsked(), a, tables, request, pool);
  const LuBatchReport cpu = run_cpu_batch(a, tables, request, pool);
  CHECK(gpu.checked == 64);
  CHECK(cpu.checked == 64);
  for (const LuBatchReport& report : {gpu, cpu}) {
    INFO(report.device);
    CHECK(report.residual > 0);
    CHECK(report.residual < 1e-14);
    CHECK(report.not_finite == 0);
    CHECK(report.replaced == 0);
  }
  CHECK(gpu.strategy == "unrolled");
  LuBatchRequest by_tables = request;
  by_tables.code.most_multiply_adds = 0;
  by_tables.code.type = ir::Scalar::f32;
  const LuBatchReport looped =
      run_gpu_batch(*scene.context, NeverAsked(), a, tables, by_tables, pool);
  CHECK(looped.strategy == "looped");
  CHECK(looped.not_finite == 0);
  CHECK(looped.residual < 1e-6);
  CHECK(looped.residual > 1e-10); // in single precision
  Matrix complex = a;
  for (uint64_t p = 0; p < a.pattern.nnz(); ++p)
    complex.imaginary.push_back(0.5 * random.symmetric());
  const LuBatchReport pairs =
      run_gpu_batch(*scene.context, NeverAsked(), complex, tables, request, pool);
  CHECK(pairs.strategy == "looped");
  CHECK(pairs.not_finite == 0);
  CHECK(pairs.residual < 1e-13);
  CHECK(pairs.residual == run_cpu_batch(complex, tables, request, pool).residual);
  request.factor.pivot_threshold = 0.999;
  const LuBatchReport replaced =
      run_gpu_batch(*scene.context, NeverAsked(), a, tables, request, pool);
  CHECK(replaced.replaced == run_cpu_batch(a, tables, request, pool).replaced);
}

TEST_CASE("batch: a driver that fails at any call", "[lu_batch]") {
  Scene scene;
  Random random(18);
  const Pattern pattern = tridiagonal(5);
  const LuTables tables = test::tables_in_order(pattern);
  const Batch values = dominant(pattern, random, 3), b(3, std::vector<double>(5, 1.0));
  const auto solve = [&] {
    test::LuBatchOnDevice device(*scene.context, tables, 3);
    const Batch x = device.solve(values, b);
    device.status();
    return x;
  };
  const auto before = scene.fake.alive();
  const Batch x = solve();
  uint64_t failures = 0;
  for (uint64_t call = 1;; ++call) {
    scene.fake.fail_call(call);
    try {
      const Batch again = solve();
      CHECK(again == x); // what failed, if anything, was only to give something back
      break;
    } catch (const RuntimeError& error) {
      ++failures;
      INFO(error.what());
      CHECK(std::string(error.what()).find("CUDA_ERROR_UNKNOWN") != std::string::npos);
      CHECK(scene.fake.alive() == before);
    }
  }
  scene.fake.fail_call(0);
  CHECK(failures > 15);
  CHECK(solve() == x);
}

TEST_CASE("batch: a power grid", "[lu_batch]") {
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA is not set");
    return;
  }
  Scene scene;
  Random random(16);
  const Matrix a = read_matrix(std::string(folder) + "/lu/pf_118_it0.mtx.gz");
  const LuAnalysis analysis = analyse_lu(a);
  const LuTables tables = make_lu_tables(
      a.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale});
  Batch values(kInstances, a.values);
  for (std::vector<double>& one : values)
    for (double& value : one)
      value *= 1 + 0.1 * random.symmetric();
  for (const uint32_t warps : {1u, 4u}) {
    LuBatchOptions options;
    options.warps = warps;
    test::check_batch(*scene.context, tables, values, random, options);
  }

  const Batch b(kInstances, std::vector<double>(tables.size, 1.0));
  test::LuBatchOnDevice device(*scene.context, tables, kInstances);
  const Batch x = device.solve(values, b);
  for (uint64_t s = 0; s < kInstances; ++s) {
    const lu::MatrixView<double> view{tables.size, a.pattern.row_offset, a.pattern.column_index,
                                      values[s]};
    CHECK(lu::relative_residual<double>(view, b[s], x[s], false) <= 1e-12);
  }
}

} // namespace sparsertc
