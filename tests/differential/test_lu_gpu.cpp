// Sparse LU as dataflow: the kernels' PTX, interpreted, against the CPU's factorization, bit by bit
// against the same sums in the same order, and again and again with other values.
#include "compiler/lower/lu_dataflow.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <memory>

namespace sparsertc {
namespace {

using test::check_dataflow;
using test::Random;

/// A device on which kernels are interpreted.
struct Scene {
  cuda::FakeCudaDriver fake;
  std::unique_ptr<cuda::Context> context;

  Scene() {
    interpret_launches(fake);
    fake.kernels = {kLuInputKernel, kLuFactorKernel, kLuSolveInputKernel, kLuSolveKernel};
    fake.attributes[cuda::DeviceAttribute::multiprocessor_count] = 1;
    context = std::make_unique<cuda::Context>(std::make_shared<const cuda::Driver>(fake.table()));
  }
};

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

} // namespace sparsertc
