#include "tests/support/real_matrices.h"

#include "compiler/input/permute.h"
#include "compiler/input/read.h"
#include "ir/error.h"
#include "runtime/lu/refine.h"
#include "tests/support/klu_reference.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <map>

#include <catch2/catch.hpp>

namespace sparsertc::test {
namespace {

namespace fs = std::filesystem;

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

/// Matrices that have a solution, but one that factors in single precision do not lead to: of a
/// condition above 10^10, for which refinement has nothing to hold on to.
const std::map<std::string, std::string> kBeyondSingle = {
    {"cryg2500", "singular in single precision"},
};
} // namespace

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

namespace {

double klu_residual(const Matrix& a, const LuVectors& b) {
  const std::unique_ptr<KluReference> klu = KluReference::make(a);
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

} // namespace

template <class T>
std::vector<T> values_of(const Matrix& a) {
  std::vector<T> values;
  for (size_t i = 0; i < a.values.size(); ++i)
    if constexpr (lu::ScalarTraits<T>::kComplex)
      values.emplace_back(a.values[i], a.imaginary[i]);
    else
      values.push_back(a.values[i]);
  return values;
}
template std::vector<double> values_of(const Matrix&);
template std::vector<std::complex<double>> values_of(const Matrix&);

template <class T>
double factor_error(const LuTables& t, std::span<const T> v, const std::vector<T>& values,
                    uint64_t& replaced) {
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

template double factor_error(const LuTables&, std::span<const double>, const std::vector<double>&,
                             uint64_t&);
template double factor_error(const LuTables&, std::span<const std::complex<double>>,
                             const std::vector<std::complex<double>>&, uint64_t&);

void check_solves(const RealMatrix& real, LuSolverOptions options) {
  const Matrix& a = real.matrix;
  const uint32_t n = a.pattern.rows;
  for (const bool transposed : {false, true}) {
    const LuVectors b = multiply(a, ones(n), transposed);
    const double reference = klu_residual(transposed ? transpose(a) : a, b);
    double bound = n * kEpsilon;
    if (reference == reference)
      bound = std::max(bound, 10 * reference);
    for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::mixed}) {
      INFO((transposed ? "transposed, " : "") << (precision == LuPrecision::f64 ? "f64" : "mixed"));
      options.precision = precision;
      options.transposed = transposed;
      LuSystemReport report;
      std::string refusal;
      try {
        LuSolver solver(a, options);
        const LuVectors x = solver.solve(a, b, report);
        CHECK(report.residual <= bound);
        CHECK(residual_of(a, b, x, transposed) <= bound);
      } catch (const UserError& error) {
        refusal = error.what();
      }
      if (precision == LuPrecision::mixed && !real.beyond_single.empty())
        CHECK_THAT(refusal, Catch::Contains(real.beyond_single));
      else
        CHECK(refusal == "");
    }
  }
}

void check_singular(const RealMatrix& a, const LuSolverOptions& options) {
  LuSystemReport report;
  try {
    LuSolver solver(a.matrix, options);
    solver.solve(a.matrix, multiply(a.matrix, ones(a.matrix.pattern.rows), false), report);
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains("singular"));
    CHECK_THAT(error.what(), Catch::Contains(a.singular));
    CHECK_THAT(error.what(), Catch::Contains("row") && Catch::Contains("column"));
  }
}

void for_real_matrices(uint32_t largest, size_t least_regular, size_t least_singular,
                       const std::function<void(const RealMatrix&)>& check) {
  const std::string folder = lu_folder();
  if (folder.empty())
    return;
  if (!KluReference::available())
    WARN("SKIPPED: KLU is not there to compare with");
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  size_t regular = 0, singular = 0;
  for (const fs::path& file : files) {
    RealMatrix a{name_of(file), read_matrix(file), {}, {}};
    if (a.matrix.pattern.rows > largest)
      continue;
    if (!a.matrix.has_values())
      a.matrix.values.assign(a.matrix.pattern.nnz(), 1);
    if (const auto found = kSingular.find(a.name); found != kSingular.end())
      a.singular = found->second;
    if (const auto found = kBeyondSingle.find(a.name); found != kBeyondSingle.end())
      a.beyond_single = found->second;
    ++(a.singular.empty() ? regular : singular);
    INFO(a.name);
    check(a);
  }
  CHECK(regular >= least_regular);
  CHECK(singular >= least_singular);
}

} // namespace sparsertc::test
