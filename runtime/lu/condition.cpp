#include "runtime/lu/condition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
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
double estimate_condition(const Solver<T>& factors, const MatrixView<Wide<T>>& a) {
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
  const auto solve = [&](std::span<V> x, bool transposed) {
    const std::vector<double>& first = transposed ? tables.column_scale : tables.row_scale;
    const std::vector<double>& second = transposed ? tables.row_scale : tables.column_scale;
    for (uint32_t i = 0; i < n; ++i)
      x[i] = x[i] / scale(first, i);
    factors.solve_rounded(x, x, 1, transposed);
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

template <class T>
bool is_numerically_singular(const Solver<T>& factors, const MatrixView<Wide<T>>& a,
                             const FactorStatus& status, double condition) {
  using V = Wide<T>;
  constexpr double kLimit = 1 / double{unit_roundoff<T>()};
  constexpr unsigned kSteps = 20;
  constexpr double kSmallEnough = 1e-6;
  constexpr double kStands = 0.9;
  if (a.size == 0)
    return false;
  const bool doubtful = !(condition <= kLimit);
  if (doubtful && std::is_same_v<T, V>)
    return true;
  if (!doubtful && status.perturbed == 0)
    return false;
  // What factors of a matrix nearby leave of a right-hand side that no solution of a singular
  // system has: in directions that A does not reach it never gets smaller.
  const LuTables& tables = factors.tables();
  const auto row_scale = [&](uint32_t i) {
    return tables.row_scale.empty() ? 1.0 : tables.row_scale[i];
  };
  std::vector<V> b(a.size), r(a.size), x(a.size, V(0)), correction(a.size);
  std::mt19937_64 random(1);
  for (uint32_t i = 0; i < a.size; ++i)
    b[i] = V((static_cast<double>(random() >> 11) * 0x1p-52 - 1) / row_scale(i));
  double before = std::numeric_limits<double>::infinity();
  for (unsigned step = 0; step < kSteps; ++step) {
    residual<V>(a, b, x, r);
    double sum = 0;
    for (uint32_t i = 0; i < a.size; ++i) {
      const double size = std::abs(r[i]) * row_scale(i);
      sum += size * size;
    }
    const double left = std::sqrt(sum / a.size);
    if (left <= kSmallEnough)
      return false;
    if (step > 1 && !(left <= kStands * before))
      return true;
    before = left;
    factors.solve_rounded(r, correction);
    for (uint32_t i = 0; i < a.size; ++i)
      x[i] += correction[i];
  }
  return true;
}

#define SPARSERTC_INSTANTIATE(V)                                                                   \
  template double estimate_one_norm(uint32_t, const std::function<void(std::span<V>)>&,            \
                                    const std::function<void(std::span<V>)>&);
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

#define SPARSERTC_INSTANTIATE(T)                                                                   \
  template double estimate_condition(const Solver<T>&, const MatrixView<Wide<T>>&);                \
  template bool is_numerically_singular(const Solver<T>&, const MatrixView<Wide<T>>&,              \
                                        const FactorStatus&, double);
SPARSERTC_INSTANTIATE(float)
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

} // namespace sparsertc::lu
