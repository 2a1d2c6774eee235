// Sparse LU in batches on the GPU, bit by bit against the same sums on the CPU.
#include "tests/gpu/gpu_spmm.h"
#include "tests/support/lu_batch.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <complex>
#include <vector>

using namespace sparsertc;
using test::Random;

TEST_CASE("lu: a batch of small matrices", "[sanitize]") {
  const cuda::Context* const context = Machine::get().gpu_or_skip("diff_lu_batch");
  if (context == nullptr)
    return;
  Random random(8);
  const Pattern pattern = test::random_square(random, 30, 3);
  const LuTables tables = test::tables_in_order(pattern, &random);
  std::vector<std::vector<double>> values;
  for (int s = 0; s < 75; ++s)
    values.push_back(test::dominant_values(pattern, random));
  test::check_batch(*context, tables, values, random);
  LuBatchOptions cut;
  cut.operations_of_function = 100;
  cut.window = 8;
  test::check_batch(*context, tables, values, random, cut, 0.9);
  LuBatchOptions looped;
  looped.most_multiply_adds = 0;
  test::check_batch(*context, tables, values, random, looped);
  std::vector<std::vector<std::complex<double>>> complex;
  std::vector<std::vector<std::complex<float>>> complex_single;
  for (int s = 0; s < 75; ++s) {
    complex.push_back(test::dominant_values<std::complex<double>>(pattern, random));
    complex_single.emplace_back();
    for (const std::complex<double> value : complex.back())
      complex_single.back().push_back(lu::to_scalar<std::complex<float>>(value));
  }
  test::check_batch(*context, tables, complex, random);
  test::check_batch(*context, tables, complex, random, {}, 0.9);
  test::check_batch(*context, tables, complex_single, random);
  std::vector<std::vector<float>> single;
  for (const std::vector<double>& one : values)
    single.emplace_back(one.begin(), one.end());
  test::check_batch(*context, tables, single, random);
  test::check_batch(*context, tables, single, random, looped, 0.9);
}
