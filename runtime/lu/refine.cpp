#include "runtime/lu/refine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace sparsertc::lu {
namespace {

/// Calls f(row of the result, row of x, value) for the entries of A or A^T.
template <class V, class F>
void for_each_entry(const MatrixView<V>& a, bool transposed, const F& f) {
  for (uint32_t i = 0; i < a.size; ++i)
    for (uint64_t p = a.row_offset[i]; p < a.row_offset[i + 1]; ++p) {
      const uint32_t j = a.column_index[p];
      if (transposed)
        f(j, i, a.values[p]);
      else
        f(i, j, a.values[p]);
    }
}

/// The largest of the magnitudes; NaN where one of them is.
template <class V>
double infinity_norm(std::span<const V> x) {
  double norm = 0;
  for (const V value : x) {
    const double size = std::abs(value);
    if (!(size <= norm))
      norm = size;
    if (size != size)
      return size;
  }
  return norm;
}

/// What does not change while x is refined.
template <class V>
struct RowNorms {
  std::vector<double> sum;     ///< of |a(i,j)| over j
  std::vector<double> largest; ///< |a(i,j)|

  RowNorms(const MatrixView<V>& a, bool transposed) : sum(a.size, 0), largest(a.size, 0) {
    for_each_entry(a, transposed, [&](uint32_t i, uint32_t, V value) {
      const double size = std::abs(value);
      sum[i] += size;
      largest[i] = std::max(largest[i], size);
    });
  }
};

template <class V>
double residual_ratio(const RowNorms<V>& norms, std::span<const V> b, std::span<const V> x,
                      std::span<const V> r) {
  const double top = infinity_norm(r);
  if (top == 0)
    return 0;
  double matrix = 0;
  for (const double sum : norms.sum)
    matrix = std::max(matrix, sum);
  return top / (matrix * infinity_norm(x) + infinity_norm(b));
}

template <class V>
double componentwise_error(const MatrixView<V>& a, const RowNorms<V>& norms, bool transposed,
                           std::span<const V> b, std::span<const V> x, std::span<const V> r) {
  std::vector<double> scale(a.size, 0); // |A| |x|
  for_each_entry(a, transposed, [&](uint32_t i, uint32_t j, V value) {
    scale[i] += std::abs(value) * std::abs(x[j]);
  });
  const double largest_x = infinity_norm(x);
  double sum_x = 0;
  for (const V value : x)
    sum_x += std::abs(value);
  double first = 0, second = 0;
  for (uint32_t i = 0; i < a.size; ++i) {
    const double size = std::abs(r[i]);
    if (size == 0)
      continue;
    const double whole = scale[i] + std::abs(b[i]);
    const double doubtful =
        1000.0 * a.size * unit_roundoff<double>() * (norms.largest[i] * largest_x + std::abs(b[i]));
    double& error = whole > doubtful ? first : second;
    const double ratio =
        whole > doubtful ? size / whole : size / (scale[i] + norms.largest[i] * sum_x);
    if (!(ratio <= error))
      error = ratio;
    if (ratio != ratio)
      return ratio;
  }
  return first + second;
}

/// The largest entry of an x as the factors see it: unscaled.
template <class T, class V>
double scaled_norm(const Solver<T>& factors, std::span<const V> x, bool transposed) {
  const LuTables& tables = factors.tables();
  const std::vector<double>& scale = transposed ? tables.row_scale : tables.column_scale;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i)
    norm = std::max(norm, scale.empty() ? std::abs(x[i]) : std::abs(x[i]) / scale[i]);
  return norm;
}

} // namespace

MatrixPattern pattern_of(const LuTables& tables) {
  MatrixPattern pattern;
  pattern.row_offset.assign(uint64_t{tables.size} + 1, 0);
  pattern.column_index.resize(tables.input_nnz);
  for (uint32_t j = 0; j < tables.size; ++j)
    for (uint64_t p = tables.input_offset[j]; p < tables.input_offset[j + 1]; ++p) {
      ++pattern.row_offset[tables.row_order[tables.input_row[p]] + 1];
      pattern.column_index[tables.input_source[p]] = tables.column_order[j];
    }
  for (uint32_t i = 0; i < tables.size; ++i)
    pattern.row_offset[i + 1] += pattern.row_offset[i];
  return pattern;
}

template <class V>
void residual(const MatrixView<V>& a, std::span<const V> b, std::span<const V> x, std::span<V> r,
              bool transposed) {
  std::copy(b.begin(), b.end(), r.begin());
  for_each_entry(a, transposed,
                 [&](uint32_t i, uint32_t j, V value) { r[i] = minus_product(r[i], value, x[j]); });
}

template <class V>
double relative_residual(const MatrixView<V>& a, std::span<const V> b, std::span<const V> x,
                         bool transposed) {
  std::vector<V> r(a.size);
  residual(a, b, x, std::span<V>(r), transposed);
  return residual_ratio<V>(RowNorms<V>(a, transposed), b, x, r);
}

template <class T, class X>
RefineResult solve_refined(const Solver<T>& factors, const MatrixView<Wide<T>>& a,
                           std::span<const Wide<T>> given_b, std::span<X> x, bool transposed,
                           const RefineOptions& options) {
  using V = Wide<T>;
  const uint32_t n = a.size;
  const double target = options.target > 0 ? options.target : double{unit_roundoff<X>()};
  const std::vector<V> b(given_b.begin(), given_b.end());
  const RowNorms<V> norms(a, transposed);
  std::vector<V> r(b), correction(n), now(n, V(0)), best(n, V(0));
  RefineResult result;
  result.backward_error = std::numeric_limits<double>::infinity();
  double last_size = std::numeric_limits<double>::infinity();
  for (unsigned step = 0; step <= options.maximum_steps; ++step) {
    factors.solve_rounded(r, correction, 1, transposed);
    const double size = scaled_norm<T, V>(factors, correction, transposed);
    const bool contracts = size <= options.slowest * last_size;
    last_size = size;
    // Rounded in a loop of its own: GCC 12 leaves the rounding of complex numbers out where it is
    // followed by widening (-ftree-slp-vectorize).
    for (uint32_t i = 0; i < n; ++i)
      x[i] = to_scalar<X>(now[i] + correction[i]);
    for (uint32_t i = 0; i < n; ++i)
      now[i] = to_scalar<V>(x[i]);
    residual<V>(a, b, now, r, transposed);
    const double error = componentwise_error<V>(a, norms, transposed, b, now, r);
    const double before = result.backward_error;
    if (error < before) { // not NaN
      best = now;
      result.steps = step;
      result.backward_error = error;
      result.residual = residual_ratio<V>(norms, b, best, r);
    }
    // Where x is far off, the backward error is measured by what is wrong in x: it then stays large
    // while x gets better.
    if (error <= target || !(contracts || error <= options.slowest * before))
      break;
  }
  if (!std::isfinite(result.backward_error))
    result.residual = std::numeric_limits<double>::quiet_NaN();
  for (uint32_t i = 0; i < n; ++i)
    x[i] = to_scalar<X>(best[i]);
  return result;
}

#define SPARSERTC_INSTANTIATE(V)                                                                   \
  template void residual(const MatrixView<V>&, std::span<const V>, std::span<const V>,             \
                         std::span<V>, bool);                                                      \
  template double relative_residual(const MatrixView<V>&, std::span<const V>, std::span<const V>,  \
                                    bool);
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

#define SPARSERTC_INSTANTIATE(T, X)                                                                \
  template RefineResult solve_refined(const Solver<T>&, const MatrixView<Wide<T>>&,                \
                                      std::span<const Wide<T>>, std::span<X>, bool,                \
                                      const RefineOptions&);
SPARSERTC_INSTANTIATE(float, float)
SPARSERTC_INSTANTIATE(float, double)
SPARSERTC_INSTANTIATE(double, double)
SPARSERTC_INSTANTIATE(std::complex<float>, std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<float>, std::complex<double>)
SPARSERTC_INSTANTIATE(std::complex<double>, std::complex<double>)
#undef SPARSERTC_INSTANTIATE

} // namespace sparsertc::lu
