// Sparse LU from end to end, on real matrices and on shapes that break solvers, beside KLU where it
// is.
#include "compiler/inspect/lu_schedule.h"
#include "ir/error.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/real_matrices.h"
#include "tools/lu_solver.h"

#include <algorithm>
#include <complex>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace sparsertc {
namespace {

using test::ones;
using test::Random;
using test::residual_of;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

/// The factorization by the gather's tasks, one after the other.
template <class T>
std::vector<T> run_gather(const LuTables& t, const LuGather& gather, const std::vector<T>& values) {
  std::vector<T> v(t.nnz(), T(0));
  std::vector<bool> is_pivot(t.nnz(), false);
  for (uint32_t j = 0; j < t.size; ++j) {
    is_pivot[t.diagonal[j]] = true;
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p)
      v[t.input_slot[p]] = t.input_scale.empty() ? values[t.input_source[p]]
                                                 : values[t.input_source[p]] * t.input_scale[p];
  }
  for (uint64_t task = 0; task < gather.tasks(); ++task) {
    T& own = v[gather.task_slot[task]];
    for (uint64_t p = gather.pair_offset[task]; p < gather.pair_offset[task + 1]; ++p)
      own = lu::minus_product(own, v[gather.pair_left[p]],
                              lu::times(v[gather.pair_right[p]], v[gather.pair_pivot[p]]));
    if (is_pivot[gather.task_slot[task]])
      own = lu::reciprocal(own);
  }
  return v;
}

template <class T>
void check_factors(const Matrix& a, TaskPool& pool) {
  const std::vector<T> values = test::values_of<T>(a);
  const LuAnalysis analysis = analyse_lu(a);
  const LuTables tables = make_lu_tables(
      a.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale});
  lu::Factors<T> factors(tables), others(tables, &pool);
  const lu::FactorStatus status = factors.refactor(values);
  CHECK(status.outcome == lu::FactorOutcome::ok);
  uint64_t replaced = 0;
  CHECK(test::factor_error<T>(tables, factors.values(), values, replaced) <= 1);
  CHECK(replaced <= status.perturbed);
  others.refactor(values);
  CHECK(std::equal(factors.values().begin(), factors.values().end(), others.values().begin()));
  if (status.perturbed > 0)
    return;
  const std::optional<LuGather> gather = make_lu_gather(tables, uint64_t{1} << 28, &pool);
  REQUIRE(gather.has_value());
  const std::vector<T> gathered = run_gather(tables, *gather, values);
  CHECK(std::equal(gathered.begin(), gathered.end(), factors.values().begin()));
}

void check_real(uint32_t largest) {
  TaskPool pool(2);
  LuSolverOptions options;
  options.pool = options.analysis.pool = &pool;
  test::for_real_matrices(largest, 30, 8, [&](const test::RealMatrix& real) {
    const Matrix& a = real.matrix;
    if (!real.singular.empty()) {
      test::check_singular(real, options);
      return;
    }
    if (a.imaginary.empty())
      check_factors<double>(a, pool);
    else
      check_factors<std::complex<double>>(a, pool);
    test::check_solves(real, options);
  });
}

} // namespace

TEST_CASE("Real matrices are factorized and solved, the singular ones reported") {
  check_real(2000);
}

TEST_CASE("All real matrices are factorized and solved, the singular ones reported", "[.all]") {
  check_real(UINT32_MAX);
}

namespace {

/// Values for a pattern: drawn from [-1, 1), the diagonal larger by `diagonal`.
Matrix matrix_of(Random& random, const Pattern& pattern, double diagonal) {
  Matrix a;
  a.name = "a.mtx";
  a.stored = StoredType::f64;
  a.pattern = pattern;
  for (uint32_t i = 0; i < pattern.rows; ++i)
    for (const uint32_t j : pattern.row(i))
      a.values.push_back(random.symmetric() + (i == j ? diagonal : 0));
  return a;
}

} // namespace

TEST_CASE("Hostile shapes are solved or reported") {
  Random random(test::test_seed(20261201));
  for (const test::NamedPattern& shape : test::hostile_squares(2000)) {
    INFO(shape.name);
    const Matrix a = matrix_of(random, shape.pattern, 3);
    const LuVectors b = multiply(a, ones(a.pattern.rows), false);
    LuSystemReport report;
    if (shape.name == "empty row and column" || shape.name == "n = 1, empty") {
      CHECK_THROWS_WITH(LuSolver(a, {}), Catch::Contains("singular"));
      continue;
    }
    for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::mixed, LuPrecision::f32}) {
      LuSolverOptions options;
      options.precision = precision;
      LuSolver solver(a, options);
      const LuVectors x = solver.solve(a, b, report);
      CHECK(x.real.size() == a.pattern.rows);
      CHECK(report.residual <= (precision == LuPrecision::f32 ? 1e-6 : 4 * kEpsilon));
    }
  }
}

TEST_CASE("Pivots that were chosen for other values are found stale") {
  Random random(test::test_seed(20261201));
  const Pattern pattern = test::random_square(random, 60, 4);
  const Matrix first = matrix_of(random, pattern, 20);
  // The same pattern with nothing on the diagonal to speak of.
  Matrix second = first;
  for (uint32_t i = 0; i < pattern.rows; ++i)
    for (uint64_t p = pattern.row_offset[i]; p < pattern.row_offset[i + 1]; ++p)
      if (pattern.column_index[p] == i)
        second.values[p] = 1e-13 * random.symmetric();
  second.name = "second.mtx";
  const LuVectors b = multiply(second, ones(60), false);
  LuSystemReport report;
  const auto solver_for = [&](OnStale on_stale) {
    LuSolverOptions options;
    options.on_stale = on_stale;
    auto solver = std::make_unique<LuSolver>(first, options);
    report = {};
    solver->solve(first, multiply(first, ones(60), false), report);
    CHECK(report.stale.empty());
    CHECK_FALSE(report.repivoted);
    report = {};
    return solver;
  };
  {
    const auto solver = solver_for(OnStale::repivot);
    const LuVectors x = solver->solve(second, b, report);
    CHECK_FALSE(report.stale.empty());
    CHECK(report.repivoted);
    CHECK(report.residual <= 60 * kEpsilon);
    CHECK(residual_of(second, b, x, false) <= 60 * kEpsilon);
    // And it goes on with the new pivots.
    report = {};
    solver->solve(second, b, report);
    CHECK(report.stale.empty());
  }
  CHECK_THROWS_WITH(solver_for(OnStale::error)->solve(second, b, report),
                    Catch::Contains("STALE") && Catch::Contains("second.mtx"));
  // A warning, and a solution only if it is one.
  try {
    solver_for(OnStale::warn)->solve(second, b, report);
    CHECK(report.residual <= 1e-12);
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains("singular") || Catch::Contains("unconverged"));
  }
  CHECK_FALSE(report.stale.empty());
  CHECK_FALSE(report.repivoted);
}

TEST_CASE("Matrices of another pattern are refused with the first difference") {
  Random random(test::test_seed(20261201));
  const Matrix first = matrix_of(random, test::pattern_of(3, {{0, 0}, {1, 1}, {1, 2}, {2, 2}}), 3);
  LuSolver solver(first, {});
  LuSystemReport report;
  const auto refusal = [&](const Pattern& pattern) {
    try {
      solver.solve(matrix_of(random, pattern, 3), ones(pattern.rows), report);
      return std::string();
    } catch (const UserError& error) {
      return std::string(error.what());
    }
  };
  CHECK_THAT(refusal(test::pattern_of(3, {{0, 0}, {1, 1}, {2, 2}})),
             Catch::Contains("row 1, column 2 (counted from 0) is no entry"));
  CHECK_THAT(refusal(test::pattern_of(3, {{0, 0}, {1, 0}, {1, 1}, {1, 2}, {2, 2}})),
             Catch::Contains("row 1, column 0 (counted from 0) is an entry"));
  CHECK_THAT(refusal(test::pattern_of(2, {{0, 0}, {1, 1}})), Catch::Contains("2 x 2"));
}

TEST_CASE("A strong diagonal that fails is matched after all") {
  // Every diagonal entry is as large as any other, and elimination grows by 2 a step.
  constexpr uint32_t n = 70;
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = 0; j <= i; ++j)
      entries.emplace_back(i, j);
    entries.emplace_back(i, n - 1);
  }
  Matrix a;
  a.name = "wilkinson.mtx";
  a.pattern = test::pattern_of(n, entries);
  for (uint32_t i = 0; i < n; ++i)
    for (const uint32_t j : a.pattern.row(i))
      a.values.push_back(j < i && j != n - 1 ? -1 : 1);
  LuSolver solver(a, {});
  LuSystemReport report;
  const LuVectors b = multiply(a, ones(n), false);
  const LuVectors x = solver.solve(a, b, report);
  CHECK(residual_of(a, b, x, false) <= n * kEpsilon);
}

} // namespace sparsertc
