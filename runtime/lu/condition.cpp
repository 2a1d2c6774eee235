#include "runtime/lu/condition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace sparsertc::lu {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class V>
double one_norm(std::span<const V> x) {
  double sum = 0;
  for (const V value : x)
    sum += std::abs(value);
  return sum;
}

/// The signs (phases) of x; whether they are those of before.
template <class V>
bool replace_signs(std::span<const V> x, std::vector<V>& sign) {
  bool same = !sign.empty();
  std::vector<V> now(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    now[i] = phase(x[i]);
  same = same && now == sign;
  sign = std::move(now);
  return same;
}

} // namespace

template <class V>
double estimate_one_norm(uint32_t n, const std::function<void(std::span<V>)>& apply,
                         const std::function<void(std::span<V>)>& apply_adjoint) {
  if (n == 0)
    return 0;
  constexpr int kRounds = 5;
  std::vector<V> x(n, V(1.0 / n)), sign;
  apply(x);
  double estimate = one_norm<V>(x);
  if (n == 1 || !std::isfinite(estimate))
    return std::isfinite(estimate) ? estimate : kNaN;
  replace_signs<V>(x, sign);
  x = sign;
  apply_adjoint(x);
  uint32_t last = n;
  for (int round = 0; round < kRounds; ++round) {
    uint32_t largest = 0;
    for (uint32_t i = 1; i < n; ++i)
      if (std::abs(x[i]) > std::abs(x[largest]))
        largest = i;
    if (last < n && std::abs(x[last]) == std::abs(x[largest]))
      break;
    last = largest;
    std::fill(x.begin(), x.end(), V(0));
    x[largest] = V(1);
    apply(x);
    const double found = one_norm<V>(x);
    if (!std::isfinite(found))
      return kNaN;
    const bool more = found > estimate;
    estimate = std::max(estimate, found);
    if (replace_signs<V>(x, sign) || !more)
      break;
    x = sign;
    apply_adjoint(x);
  }
  // A vector that catches what the search above can be deceived about.
  for (uint32_t i = 0; i < n; ++i)
    x[i] = V((i % 2 == 0 ? 1.0 : -1.0) * (1 + static_cast<double>(i) / (n - 1)));
  apply(x);
  const double alternating = 2 * one_norm<V>(x) / (3.0 * n);
  return std::isfinite(alternating) ? std::max(estimate, alternating) : kNaN;
}

template <class T>
double estimate_condition(const Factors<T>& factors, const MatrixView<Wide<T>>& a, bool refined,
                          const RefineOptions& options) {
  using V = Wide<T>;
  const LuTables& tables = factors.tables();
  const uint32_t n = a.size;
  if (n == 0)
    return 1;
  const auto scale = [](const std::vector<double>& scales, uint32_t i) {
    return scales.empty() ? 1.0 : scales[i];
  };
  std::vector<double> column_sum(n, 0);
  for (uint32_t i = 0; i < n; ++i)
    for (uint64_t p = a.row_offset[i]; p < a.row_offset[i + 1]; ++p)
      column_sum[a.column_index[p]] += std::abs(a.values[p]) * scale(tables.row_scale, i) *
                                       scale(tables.column_scale, a.column_index[p]);
  const double norm = *std::max_element(column_sum.begin(), column_sum.end());

  // (R A C)^-1 = C^-1 A^-1 R^-1, and its transpose.
  std::vector<T> narrow(n);
  const auto solve = [&](std::span<V> x, bool transposed) {
    const std::vector<double>& first = transposed ? tables.column_scale : tables.row_scale;
    const std::vector<double>& second = transposed ? tables.row_scale : tables.column_scale;
    for (uint32_t i = 0; i < n; ++i)
      x[i] = x[i] / scale(first, i);
    if (refined) {
      solve_refined<T, V>(factors, a, std::span<const V>(x), x, transposed, options);
    } else {
      for (uint32_t i = 0; i < n; ++i)
        narrow[i] = to_scalar<T>(x[i]);
      factors.solve(narrow, narrow, 1, transposed);
      for (uint32_t i = 0; i < n; ++i)
        x[i] = to_scalar<V>(narrow[i]);
    }
    for (uint32_t i = 0; i < n; ++i)
      x[i] = x[i] / scale(second, i);
  };
  const auto conjugate_all = [](std::span<V> x) {
    for (V& value : x)
      value = conjugate(value);
  };
  return norm * estimate_one_norm<V>(
                    n, [&](std::span<V> x) { solve(x, false); },
                    [&](std::span<V> x) {
                      conjugate_all(x);
                      solve(x, true);
                      conjugate_all(x);
                    });
}

template double estimate_one_norm(uint32_t, const std::function<void(std::span<double>)>&,
                                  const std::function<void(std::span<double>)>&);
template double estimate_one_norm(uint32_t,
                                  const std::function<void(std::span<std::complex<double>>)>&,
                                  const std::function<void(std::span<std::complex<double>>)>&);
template double estimate_condition(const Factors<float>&, const MatrixView<double>&, bool,
                                   const RefineOptions&);
template double estimate_condition(const Factors<double>&, const MatrixView<double>&, bool,
                                   const RefineOptions&);
template double estimate_condition(const Factors<std::complex<float>>&,
                                   const MatrixView<std::complex<double>>&, bool,
                                   const RefineOptions&);
template double estimate_condition(const Factors<std::complex<double>>&,
                                   const MatrixView<std::complex<double>>&, bool,
                                   const RefineOptions&);

} // namespace sparsertc::lu
