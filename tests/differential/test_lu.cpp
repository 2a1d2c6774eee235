// Sparse LU from end to end, on real matrices and on shapes that break solvers, beside KLU where it
// is.
#include "compiler/input/permute.h"
#include "compiler/input/read.h"
#include "compiler/inspect/lu_schedule.h"
#include "ir/error.h"
#include "runtime/lu/refine.h"
#include "tests/support/klu_reference.h"
#include "tests/support/lu_patterns.h"
#include "tools/lu_solver.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>

#include <catch2/catch.hpp>

namespace sparsertc {
namespace {

namespace fs = std::filesystem;
using test::Random;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

std::string lu_folder() {
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder != nullptr && fs::is_directory(std::string(folder) + "/lu"))
    return std::string(folder) + "/lu";
  WARN("SKIPPED: SPARSERTC_DATA names no folder with lu in it");
  return {};
}

/// The word before the first dot of a file's name.
std::string name_of(const fs::path& path) {
  const std::string name = path.filename();
  return name.substr(0, name.find('.'));
}

/// Why a matrix of data/lu has no solution. Those without values in their file get ones.
const std::map<std::string, std::string> kSingular = {
    {"GD99_cc", "structural rank 64 of 105"}, {"mbeacxc", "structural rank 448 of 492"},
    {"curtis54", "pivots were replaced"},     {"gent113", "pivots were replaced"},
    {"jgl011", "pivots were replaced"},       {"neumann", "pivots were replaced"},
    {"rajat01", "pivots were replaced"},      {"rgg010", "pivots were replaced"},
    {"will199", "pivots were replaced"},      {"will57", "pivots were replaced"},
};

LuVectors ones(uint64_t n) {
  LuVectors x;
  x.real.assign(n, 1);
  return x;
}

double residual_of(const Matrix& a, const LuVectors& b, const LuVectors& x, bool transposed) {
  using C = std::complex<double>;
  const auto packed = [](const std::vector<double>& real, const std::vector<double>& imaginary) {
    std::vector<C> result(real.size());
    for (size_t i = 0; i < real.size(); ++i)
      result[i] = {real[i], imaginary.empty() ? 0.0 : imaginary[i]};
    return result;
  };
  const std::vector<C> values = packed(a.values, a.imaginary);
  const lu::MatrixView<C> view{a.pattern.rows, a.pattern.row_offset, a.pattern.column_index,
                               values};
  return lu::relative_residual<C>(view, packed(b.real, b.imaginary), packed(x.real, x.imaginary),
                                  transposed);
}

double klu_residual(const Matrix& a, const LuVectors& b) {
  const std::unique_ptr<test::KluReference> klu = test::KluReference::make(a);
  if (klu == nullptr)
    return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> x = b.real;
  if (!a.imaginary.empty()) {
    x.clear();
    for (size_t i = 0; i < b.real.size(); ++i) {
      x.push_back(b.real[i]);
      x.push_back(b.imaginary.empty() ? 0.0 : b.imaginary[i]);
    }
  }
  klu->solve(x);
  LuVectors solution;
  if (a.imaginary.empty())
    solution.real = x;
  else
    for (size_t i = 0; i < x.size(); i += 2) {
      solution.real.push_back(x[i]);
      solution.imaginary.push_back(x[i + 1]);
    }
  return residual_of(a, b, solution, false);
}

/// The worst column of B - L' D U, entry by entry over the bound of its rounding; pivots that were
/// replaced are left out and counted.
template <class T>
double factor_error(const lu::Factors<T>& factors, const std::vector<T>& values,
                    uint64_t& replaced) {
  const LuTables& t = factors.tables();
  const std::span<const T> v = factors.values();
  std::vector<T> sum(t.size, T(0));
  std::vector<double> bound(t.size, 0), terms(t.size, 0);
  double worst = 0;
  for (uint32_t j = 0; j < t.size; ++j) {
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p) {
      const double scale = t.input_scale.empty() ? 1 : t.input_scale[p];
      sum[t.input_row[p]] = values[t.input_source[p]] * scale;
      bound[t.input_row[p]] = std::abs(sum[t.input_row[p]]);
    }
    const auto subtract = [&](uint32_t row, T product) {
      sum[row] -= product;
      bound[row] += std::abs(product);
      ++terms[row];
    };
    for (uint64_t p = t.column_offset[j]; p <= t.diagonal[j]; ++p) {
      const uint32_t k = t.row_index[p];
      const T factor = k == j ? T(1) : lu::times(v[p], v[t.diagonal[k]]); // u(k,j) d(k)
      subtract(k, k == j ? T(1) / v[p] : v[p]);
      for (uint64_t q = t.diagonal[k] + 1; q < t.column_offset[k + 1]; ++q)
        subtract(t.row_index[q], lu::times(v[q], factor));
    }
    for (uint64_t p = t.column_offset[j]; p < t.column_offset[j + 1]; ++p) {
      const uint32_t i = t.row_index[p];
      const double error = std::abs(sum[i]);
      const double allowed = (3 * terms[i] + 8) * kEpsilon * bound[i];
      if (error > allowed && i == j)
        ++replaced;
      else if (error > 0)
        worst = std::max(worst, allowed > 0 ? error / allowed : 1e300);
      sum[i] = 0;
      bound[i] = terms[i] = 0;
    }
  }
  return worst;
}

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
  std::vector<T> values;
  for (size_t i = 0; i < a.values.size(); ++i)
    if constexpr (lu::ScalarTraits<T>::kComplex)
      values.emplace_back(a.values[i], a.imaginary[i]);
    else
      values.push_back(a.values[i]);
  const LuAnalysis analysis = analyse_lu(a);
  const LuTables tables = make_lu_tables(
      a.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale});
  lu::Factors<T> factors(tables), others(tables, &pool);
  const lu::FactorStatus status = factors.refactor(values);
  CHECK(status.outcome == lu::FactorOutcome::ok);
  uint64_t replaced = 0;
  CHECK(factor_error(factors, values, replaced) <= 1);
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

void check_solves(const Matrix& a, TaskPool& pool) {
  const uint32_t n = a.pattern.rows;
  for (const bool transposed : {false, true}) {
    const LuVectors b = multiply(a, ones(n), transposed);
    const double reference = klu_residual(transposed ? transpose(a) : a, b);
    double bound = n * kEpsilon;
    if (reference == reference)
      bound = std::max(bound, 10 * reference);
    for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::mixed}) {
      INFO((transposed ? "transposed, " : "") << (precision == LuPrecision::f64 ? "f64" : "mixed"));
      LuSolverOptions options;
      options.precision = precision;
      options.transposed = transposed;
      options.pool = options.analysis.pool = &pool;
      LuSystemReport report;
      LuSolver solver(a, options);
      const LuVectors x = solver.solve(a, b, report);
      CHECK(report.residual <= bound);
      CHECK(residual_of(a, b, x, transposed) <= bound);
    }
  }
}

void check_singular(const Matrix& a, const std::string& reason) {
  LuSystemReport report;
  try {
    LuSolver solver(a, {});
    solver.solve(a, multiply(a, ones(a.pattern.rows), false), report);
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains("singular"));
    CHECK_THAT(error.what(), Catch::Contains(reason));
    CHECK_THAT(error.what(), Catch::Contains("row") && Catch::Contains("column"));
  }
}

void check_real(uint32_t largest) {
  const std::string folder = lu_folder();
  if (folder.empty())
    return;
  if (!test::KluReference::available())
    WARN("SKIPPED: KLU is not there to compare with");
  TaskPool pool(2);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  size_t solved = 0, singular = 0;
  for (const fs::path& file : files) {
    Matrix a = read_matrix(file);
    if (a.pattern.rows > largest)
      continue;
    if (!a.has_values())
      a.values.assign(a.pattern.nnz(), 1);
    INFO(name_of(file));
    if (const auto found = kSingular.find(name_of(file)); found != kSingular.end()) {
      check_singular(a, found->second);
      ++singular;
      continue;
    }
    if (a.imaginary.empty())
      check_factors<double>(a, pool);
    else
      check_factors<std::complex<double>>(a, pool);
    check_solves(a, pool);
    ++solved;
  }
  CHECK(solved >= 30);
  CHECK(singular >= 8);
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
