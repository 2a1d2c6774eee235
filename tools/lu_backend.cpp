#include "tools/lu_backend.h"

#include "runtime/lu/condition.h"

#include <algorithm>
#include <chrono>
#include <complex>
#include <span>

namespace sparsertc {
namespace {

using lu::Wide;

/// The median time of `repeat` calls.
template <class Work>
double timed_us(unsigned repeat, const Work& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  for (unsigned i = 0; i < std::max(repeat, 1u); ++i) {
    const Clock::time_point start = Clock::now();
    work();
    samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// T is the type of the factors, X that of the solution.
template <class T, class X>
class CpuBackend : public LuBackend {
public:
  CpuBackend(const LuTables& tables, const Pattern& pattern, TaskPool* pool)
      : pattern_(pattern), factors_(tables, pool) {}

  std::string device() const override { return "cpu"; }
  std::string strategy() const override { return "left-looking"; }

  void load(const Matrix& a) override { values_ = packed<V>(a.values, a.imaginary); }

  lu::FactorStatus refactor(const lu::FactorOptions& options, unsigned repeat,
                            double& time_us) override {
    lu::FactorStatus status;
    time_us = timed_us(repeat, [&] { status = factors_.refactor_rounded(values_, options); });
    return status;
  }

  double substitute_us(const LuVectors& b, bool transposed, unsigned repeat) override {
    const std::vector<V> right = packed<V>(b.real, b.imaginary);
    std::vector<V> x(right.size());
    return timed_us(repeat,
                    [&] { factors_.solve_rounded(right, std::span<V>(x), b.count, transposed); });
  }

  LuSolution solve(const LuVectors& b, bool transposed, const lu::RefineOptions& options) override {
    const uint64_t n = pattern_.rows;
    const std::vector<V> right = packed<V>(b.real, b.imaginary);
    std::vector<X> x(right.size());
    LuSolution solution;
    for (uint64_t c = 0; c < b.count; ++c)
      solution.results.push_back(
          lu::solve_refined<T, X>(factors_, view(), std::span<const V>(right).subspan(c * n, n),
                                  std::span<X>(x).subspan(c * n, n), transposed, options));
    solution.x = unpacked<X>(x, b.count);
    return solution;
  }

  double condition() override { return lu::estimate_condition(factors_, view()); }

  bool is_numerically_singular(const lu::FactorStatus& status, double condition) override {
    return lu::is_numerically_singular(factors_, view(), status, condition);
  }

private:
  using V = Wide<T>;

  lu::MatrixView<V> view() const {
    return {pattern_.rows, pattern_.row_offset, pattern_.column_index, values_};
  }

  const Pattern& pattern_;
  lu::Factors<T> factors_;
  std::vector<V> values_;
};

template <class T>
LuVectors multiply_as(const Matrix& a, const LuVectors& x, bool transposed) {
  const uint64_t n = a.pattern.rows;
  const std::vector<T> values = packed<T>(a.values, a.imaginary);
  const std::vector<T> given = packed<T>(x.real, x.imaginary);
  std::vector<T> result(given.size(), T(0));
  for (uint64_t c = 0; c < x.count; ++c)
    for (uint32_t i = 0; i < n; ++i)
      for (uint64_t p = a.pattern.row_offset[i]; p < a.pattern.row_offset[i + 1]; ++p) {
        const uint32_t j = a.pattern.column_index[p];
        const uint64_t to = c * n + (transposed ? j : i);
        const uint64_t from = c * n + (transposed ? i : j);
        result[to] += lu::times(values[p], given[from]);
      }
  return unpacked<T>(result, x.count);
}

} // namespace

std::unique_ptr<LuBackend> make_cpu_backend(const LuTables& tables, const Pattern& pattern,
                                            LuPrecision precision, bool complex, TaskPool* pool) {
  return with_number_types(precision, complex, [&]<class T, class X>() {
    return std::unique_ptr<LuBackend>(std::make_unique<CpuBackend<T, X>>(tables, pattern, pool));
  });
}

LuVectors multiply(const Matrix& a, const LuVectors& x, bool transposed) {
  if (a.imaginary.empty() && x.imaginary.empty())
    return multiply_as<double>(a, x, transposed);
  return multiply_as<std::complex<double>>(a, x, transposed);
}

} // namespace sparsertc
