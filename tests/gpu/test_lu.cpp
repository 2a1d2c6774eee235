// Sparse LU on the GPU: the shapes that break solvers, captured and replayed, with what was in
// memory before, and with pivots that are replaced.
#include "runtime/driver/graph.h"
#include "tests/gpu/gpu_spmm.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/lu_refine.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <complex>
#include <limits>

using namespace sparsertc;
using test::Random;

namespace {

constexpr uint32_t kThreads = 128;

const cuda::Context* gpu() {
  return Machine::get().gpu_or_skip("diff_lu_gpu");
}

std::span<const uint8_t> bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(double)};
}
std::span<uint8_t> bytes_of(std::vector<double>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(double)};
}

} // namespace

TEST_CASE("lu: small patterns", "[sanitize]") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(6);
  const Pattern pattern = test::random_square(random, 30, 3);
  test::check_dataflow<double>(*context, pattern, random, true, 64);
  test::check_dataflow<float>(*context, pattern, random, false, 64);
  test::check_dataflow<double>(*context, pattern, random, true, 64, 128);
  test::check_dataflow<std::complex<float>>(*context, pattern, random, true, 64);
  test::check_dataflow<std::complex<double>>(*context, pattern, random, true, 64);
  test::check_dataflow<std::complex<double>>(*context, pattern, random, true, 64, 128);
}

TEST_CASE("lu: hostile shapes") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(5);
  for (const test::NamedPattern& named : test::hostile_squares(100'000)) {
    INFO(named.name);
    test::check_dataflow<double>(*context, named.pattern, random, false, kThreads);
    test::check_dataflow<float>(*context, named.pattern, random, true, kThreads);
  }
}

TEST_CASE("lu: grids and random patterns") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  const uint64_t seed = 11;
  INFO("seed " << seed);
  Random random(seed);
  test::check_dataflow<double>(*context, test::random_grid(random, 40, 30, 0.2), random, true,
                               kThreads);
  test::check_dataflow<double>(*context, test::random_square(random, 400, 3), random, true, 64);
  test::check_dataflow<float>(*context, test::random_square(random, 400, 3), random, true, 256);
}

TEST_CASE("lu: complex numbers") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  const uint64_t seed = 13;
  INFO("seed " << seed);
  Random random(seed);
  for (const test::NamedPattern& named : test::hostile_squares(3000)) {
    INFO(named.name);
    test::check_dataflow<std::complex<float>>(*context, named.pattern, random, true, kThreads);
    test::check_dataflow<std::complex<double>>(*context, named.pattern, random, false, kThreads);
    test::check_dataflow<std::complex<float>>(*context, named.pattern, random, false, 64, 512);
    test::check_dataflow<std::complex<double>>(*context, named.pattern, random, true, 64, 1024);
  }
  const Pattern grid = test::random_grid(random, 40, 30, 0.2);
  test::check_dataflow<std::complex<float>>(*context, grid, random, true, kThreads);
  test::check_dataflow<std::complex<double>>(*context, grid, random, true, 256);
}

TEST_CASE("lu: one block solves") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  const uint64_t seed = 12;
  INFO("seed " << seed);
  Random random(seed);
  for (const test::NamedPattern& named : test::hostile_squares(3000)) {
    INFO(named.name);
    test::check_dataflow<double>(*context, named.pattern, random, false, kThreads, 512);
    test::check_dataflow<float>(*context, named.pattern, random, true, kThreads, 256);
  }
  // More shared memory than a kernel can declare.
  test::check_dataflow<double>(*context, test::random_grid(random, 10, 700, 0.2), random, true,
                               kThreads, 1024);
}

TEST_CASE("lu: refinement of small systems", "[sanitize]") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(16);
  const Pattern pattern = test::random_square(random, 40, 3);
  test::check_refinement<double, double>(*context, pattern, random, true, 64);
  test::check_refinement<std::complex<float>, std::complex<double>>(*context, pattern, random, true,
                                                                    64, 128);
}

TEST_CASE("lu: refinement") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  const uint64_t seed = 14;
  INFO("seed " << seed);
  Random random(seed);
  for (const test::NamedPattern& named : test::hostile_squares(3000)) {
    INFO(named.name);
    test::check_refinement<double, double>(*context, named.pattern, random, false, kThreads);
    test::check_refinement<float, double>(*context, named.pattern, random, true, kThreads, 512);
  }
  const Pattern grid = test::random_grid(random, 70, 50, 0.2);
  test::check_refinement<float, float>(*context, grid, random, true, kThreads);
  test::check_refinement<double, double>(*context, grid, random, true, kThreads, 1024);
  test::check_refinement<std::complex<float>, std::complex<float>>(*context, grid, random, true,
                                                                   kThreads);
  test::check_refinement<std::complex<double>, std::complex<double>>(*context, grid, random, true,
                                                                     kThreads);
}

TEST_CASE("lu: refinement captured and replayed") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(15);
  const Pattern pattern = test::random_grid(random, 20, 20, 0.2);
  const LuTables tables = test::tables_in_order(pattern);
  const std::vector<double> a = test::dominant_values(pattern, random);
  std::vector<double> b(tables.size);
  for (double& value : b)
    value = random.symmetric();
  test::RefineOnDevice<float, double> device(*context, tables, kThreads);
  device.refactor(a);
  const std::vector<double> x = device.solve(a, b, 1, false);
  const cuda::Graph graph(*context, device.factors().stream(),
                          [&] { device.enqueue(1, false, {}); });
  device.factors().vectors().upload(bytes_of(b), device.factors().stream());
  graph.launch();
  std::vector<double> again(tables.size);
  device.factors().vectors().download(bytes_of(again), device.factors().stream());
  CHECK(test::same_bits(again, x));
  CHECK(device.results(1)[0].steps > 0);
}

TEST_CASE("lu: captured, replayed with new values, whatever was in memory") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(3);
  const Pattern pattern = test::random_grid(random, 20, 20, 0.2);
  const LuTables tables = test::tables_in_order(pattern);
  test::LuOnDevice<double> device(*context, tables, kThreads, 1);
  std::vector<double> b(tables.size);
  for (double& value : b)
    value = random.symmetric();

  device.refactor(test::dominant_values(pattern, random)); // loads the code
  device.solve(b, 1, false);
  const cuda::Graph graph(*context, device.stream(), [&] {
    device.plan().refactor(device.workspace(), device.matrix().address(), device.stream());
    device.plan().solve(device.workspace(), device.vectors().address(), device.vectors().address(),
                        1, false, device.stream());
  });
  for (const uint8_t poison : {0x00, 0xFF, 0x7F}) {
    const std::vector<double> a = test::dominant_values(pattern, random);
    device.refactor(a);
    const std::vector<double> values = device.values();
    const std::vector<double> x = device.solve(b, 1, false);

    device.workspace().values().fill(poison, device.stream());
    device.matrix().upload(bytes_of(a), device.stream());
    device.vectors().upload(bytes_of(b), device.stream());
    graph.launch();
    std::vector<double> again(tables.size);
    device.vectors().download(bytes_of(again), device.stream());
    CHECK(test::same_bits(again, x));
    CHECK(test::same_bits(device.values(), values));
  }
}

TEST_CASE("lu: tiny pivots keep their sign, zeros and overflow are told") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  // The diagonal has tiny entries of both signs.
  const Pattern pattern = test::pattern_of(3, {{0, 0}, {1, 0}, {1, 1}, {2, 1}, {2, 2}});
  const LuTables tables = test::tables_in_order(pattern);
  test::LuOnDevice<double> device(*context, tables, kThreads, 1);
  const auto status = device.refactor({-1e-30, 1, 1e-30, 1, 2});
  CHECK(status.outcome == lu::FactorOutcome::ok);
  CHECK(status.perturbed == 2);
  CHECK(status.perturbed_row == 0);
  const std::vector<double> values = device.values();
  CHECK(values[tables.diagonal[0]] < 0);
  CHECK(values[tables.diagonal[1]] > 0);
  lu::Factors<double> on_cpu(tables);
  on_cpu.refactor(std::vector<double>{-1e-30, 1, 1e-30, 1, 2});
  CHECK(test::same_bits(values, {on_cpu.values().begin(), on_cpu.values().end()}));

  CHECK(device.refactor({0, 0, 1, 1, 2}).outcome == lu::FactorOutcome::singular);
  const auto overflow = device.refactor({1, 1, std::numeric_limits<double>::infinity(), 1, 2});
  CHECK(overflow.outcome == lu::FactorOutcome::not_finite);
  CHECK(overflow.column == 1);
  CHECK(device.refactor({1, 1, 1, 1, 2}).outcome == lu::FactorOutcome::ok); // nothing is left
}
