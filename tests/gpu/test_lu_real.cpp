// Every matrix below SPARSERTC_DATA/lu on the GPU: factors, solves and reports.
#include "tests/gpu/gpu_spmm.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/real_matrices.h"
#include "tools/lu_gpu.h"

#include <catch2/catch.hpp>

#include <complex>
#include <vector>

using namespace sparsertc;

namespace {

constexpr uint32_t kThreads = 128;

/// The dataflow's factors in the order that the analysis chose.
template <class T>
void check_factors(const cuda::Context& context, const Matrix& a, TaskPool& pool) {
  const std::vector<T> values = test::values_of<T>(a);
  LuAnalysisOptions options;
  options.pool = &pool;
  const LuAnalysis analysis = analyse_lu(a, options);
  const LuTables tables = make_lu_tables(
      a.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale},
      &pool);
  test::LuOnDevice<T> device(context, tables, kThreads, 1);
  const lu::FactorStatus status = device.refactor(values);
  CHECK(status.outcome == lu::FactorOutcome::ok);
  const std::vector<T> factors = device.values();
  uint64_t replaced = 0;
  CHECK(test::factor_error<T>(tables, factors, values, replaced) <= 1);
  CHECK(replaced <= status.perturbed);
  device.refactor(values);
  CHECK(test::same_bits(device.values(), factors));
}

} // namespace

TEST_CASE("lu: every real matrix") {
  const cuda::Context* const gpu = Machine::get().gpu_or_skip();
  if (gpu == nullptr)
    return;
  TaskPool pool;
  LuSolverOptions options;
  options.pool = options.analysis.pool = &pool;
  options.make_gpu_backend = [](const LuTables& tables, const Pattern& pattern,
                                LuPrecision precision, bool complex, TaskPool* with) {
    return make_gpu_backend(tables, pattern, precision, complex, with);
  };
  test::for_real_matrices(UINT32_MAX, 50, 8, [&](const test::RealMatrix& real) {
    const Matrix& a = real.matrix;
    if (!real.singular.empty()) {
      test::check_singular(real, options);
      return;
    }
    if (a.imaginary.empty())
      check_factors<double>(*gpu, a, pool);
    else
      check_factors<std::complex<double>>(*gpu, a, pool);
    test::check_solves(real, options);
  });
}
