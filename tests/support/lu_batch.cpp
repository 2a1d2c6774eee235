#include "tests/support/lu_batch.h"

#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_batch_loop.h"
#include "compiler/lower/lu_batch_loop.h"
#include "tests/support/lu_rounding.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

namespace sparsertc::test {
namespace {

template <class T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Bit by bit; of complex zeros the sign may differ.
template <class T>
bool are_same(const std::vector<T>& a, const std::vector<T>& b) {
  if constexpr (lu::ScalarTraits<T>::kComplex)
    return a == b;
  else
    return equal_bits(a, b);
}

template <class T>
T random_number(Random& random) {
  const auto re = static_cast<lu::Real<T>>(random.symmetric());
  if constexpr (lu::ScalarTraits<T>::kComplex)
    return {re, static_cast<lu::Real<T>>(random.symmetric())};
  else
    return re;
}

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::span<uint8_t> bytes_of(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// rows[s][i] as [i][s].
template <class T>
std::vector<T> interleaved(const std::vector<std::vector<T>>& rows, uint64_t count) {
  std::vector<T> result(count * rows.size());
  for (size_t s = 0; s < rows.size(); ++s)
    for (uint64_t i = 0; i < count; ++i)
      result[i * rows.size() + s] = rows[s][i];
  return result;
}

template <class T>
T scaled(T value, double factor) {
  return lu::to_scalar<T>(lu::to_scalar<lu::Wide<T>>(value) * factor);
}

template <class T>
T with_phase(T x, lu::Real<T> size) {
  if constexpr (lu::ScalarTraits<T>::kComplex) {
    const auto larger = std::max(std::abs(x.real()), std::abs(x.imag()));
    if (larger == 0)
      return size;
    const auto a = x.real() / larger, b = x.imag() / larger;
    const auto factor = size / std::sqrt(std::fma(a, a, b * b));
    return {a * factor, b * factor};
  } else {
    return std::signbit(x) ? -size : size;
  }
}
template <class T>
T inverse(T x) {
  if constexpr (lu::ScalarTraits<T>::kComplex) {
    const bool steep = std::abs(x.real()) >= std::abs(x.imag());
    const auto larger = steep ? x.real() : x.imag(), smaller = steep ? x.imag() : x.real();
    const auto ratio = smaller / larger;
    const auto scale = larger + smaller * ratio;
    return steep ? T(1 / scale, -(ratio / scale)) : T(ratio / scale, -(1 / scale));
  } else {
    return 1 / x;
  }
}

} // namespace

template <class T>
BatchReference<T> solve_in_order(const LuTables& t, const std::vector<T>& values,
                                 const std::vector<T>& b, lu::Real<T> threshold) {
  BatchReference<T> result;
  std::vector<T>& v = result.factors;
  v.assign(t.nnz(), T(0));
  std::vector<T> column(t.size);
  std::vector<lu::Real<T>> largest(t.size, 0);
  for (uint32_t j = 0; j < t.size; ++j)
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p) {
      const double scale = t.input_scale.empty() ? 1.0 : t.input_scale[p];
      v[t.input_slot[p]] = scaled(values[t.input_source[p]], scale);
      largest[j] = std::max(largest[j], lu::magnitude(v[t.input_slot[p]]));
    }
  for (uint32_t j = 0; j < t.size; ++j) {
    for (uint64_t slot = t.column_offset[j]; slot < t.column_offset[j + 1]; ++slot)
      column[t.row_index[slot]] = v[slot];
    for (uint64_t slot = t.column_offset[j]; slot < t.diagonal[j]; ++slot) {
      const uint32_t k = t.row_index[slot];
      const T minus = -rounded_product(column[k], v[t.diagonal[k]]);
      for (uint64_t q = t.diagonal[k] + 1; q < t.column_offset[k + 1]; ++q)
        column[t.row_index[q]] = fused(v[q], minus, column[t.row_index[q]]);
    }
    const lu::Real<T> least = threshold * largest[j];
    if (lu::magnitude(column[j]) < least) {
      column[j] = with_phase(column[j], least);
      ++result.replaced;
    }
    column[j] = inverse(column[j]);
    for (uint64_t slot = t.column_offset[j]; slot < t.column_offset[j + 1]; ++slot)
      v[slot] = column[t.row_index[slot]];
  }
  std::vector<T> z(t.size);
  result.x.assign(t.size, T(0));
  for (uint32_t i = 0; i < t.size; ++i) {
    const uint32_t row = t.row_order[i];
    T sum = scaled(b[row], t.row_scale.empty() ? 1.0 : t.row_scale[row]);
    for (uint64_t p = t.row_offset[i]; p < t.row_diagonal[i]; ++p)
      sum = fused(-v[t.row_slot[p]], z[t.column_index[p]], sum);
    z[i] = rounded_product(sum, v[t.diagonal[i]]);
  }
  for (uint32_t i = t.size; i-- > 0;) {
    T sum = 0;
    const uint64_t end = t.row_offset[i + 1], first = t.row_diagonal[i] + 1;
    for (uint64_t p = end; p-- > first;)
      sum = p + 1 == end ? rounded_product(v[t.row_slot[p]], z[t.column_index[p]])
                         : fused(v[t.row_slot[p]], z[t.column_index[p]], sum);
    if (end > first)
      z[i] = fused(-sum, v[t.diagonal[i]], z[i]);
    const uint32_t unknown = t.column_order[i];
    result.x[unknown] = scaled(z[i], t.column_scale.empty() ? 1.0 : t.column_scale[unknown]);
  }
  return result;
}

template <class T, class V>
LuBatchOnDevice<T, V>::LuBatchOnDevice(const cuda::Context& context, const LuTables& tables,
                                       uint64_t instances, const LuBatchOptions& given)
    : tables_(tables), instances_(instances), stream_(context),
      values_(context, tables.input_nnz * instances * sizeof(T)),
      b_(context, tables.size * instances * sizeof(V)),
      x_(context, tables.size * instances * sizeof(V)) {
  LuBatchOptions options = given;
  options.type = std::is_same_v<lu::Real<T>, float> ? ir::Scalar::f32 : ir::Scalar::f64;
  options.complex = lu::ScalarTraits<T>::kComplex;
  options.wide_vectors = !std::is_same_v<T, V>;
  std::optional<LuBatchLoop> loop;
  if (!is_unrolled(tables, options))
    loop = make_lu_batch_loop(tables);
  const ir::Module module =
      loop ? make_lu_batch_loop_kernels(options) : make_lu_batch(tables, options);
  numbers_ = loop ? loop->numbers : lu_batch_numbers(tables);
  const std::string ptx = emit_ptx(module, find_target("sm_80"));
  lu::GpuBatchCode code;
  code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
  code.factor = kLuBatchFactorKernel;
  code.solve = kLuBatchSolveKernel;
  code.lanes = kLuBatchLanes;
  code.factor_threads = lu_batch_threads(module, kLuBatchFactorKernel);
  code.solve_threads = lu_batch_threads(module, kLuBatchSolveKernel);
  code.numbers = numbers_;
  code.complex = options.complex;
  code.number_bytes = sizeof(T);
  code.vector_bytes = sizeof(V);
  code.not_finite_bit = kLuBatchNotFinite;
  batch_ =
      std::make_unique<lu::GpuBatch>(context, code, tables, instances, loop ? &*loop : nullptr);
  batch_->factors().fill(0xFF, stream_);
  x_.fill(0xFF, stream_);
}

template <class T, class V>
std::vector<std::vector<V>> LuBatchOnDevice<T, V>::solve(const std::vector<std::vector<T>>& values,
                                                         const std::vector<std::vector<V>>& b,
                                                         const lu::FactorOptions& options) {
  const std::vector<T> all_values = interleaved(values, tables_.input_nnz);
  const std::vector<V> all_b = interleaved(b, tables_.size);
  values_.upload(bytes_of(all_values), stream_);
  b_.upload(bytes_of(all_b), stream_);
  batch_->factor(values_.address(), stream_, options);
  batch_->solve(b_.address(), x_.address(), stream_);
  std::vector<V> all(all_b.size());
  x_.download(bytes_of(all), stream_);
  std::vector<std::vector<V>> x(instances_, std::vector<V>(tables_.size));
  for (uint64_t s = 0; s < instances_; ++s)
    for (uint32_t i = 0; i < tables_.size; ++i)
      x[s][i] = all[i * instances_ + s];
  return x;
}

template <class T, class V>
std::vector<T> LuBatchOnDevice<T, V>::factors(uint64_t instance) const {
  std::vector<T> all(batch_->factors().bytes() / sizeof(T));
  batch_->factors().download(bytes_of(all), stream_);
  std::vector<T> v(tables_.nnz());
  for (uint64_t s = 0; s < v.size(); ++s)
    v[s] =
        all[((instance / kLuBatchLanes) * numbers_ + s) * kLuBatchLanes + instance % kLuBatchLanes];
  return v;
}

namespace {

template <class T, class V>
void check_batch_of(const cuda::Context& context, const LuTables& tables,
                    const std::vector<std::vector<T>>& values, const std::vector<std::vector<T>>& b,
                    const LuBatchOptions& options, double threshold) {
  LuBatchOnDevice<T, V> device(context, tables, values.size(), options);
  lu::FactorOptions factor;
  factor.pivot_threshold = threshold;
  const double used = threshold > 0 ? threshold : std::sqrt(double{lu::unit_roundoff<T>()});
  std::vector<std::vector<V>> given;
  for (const std::vector<T>& vector : b)
    given.emplace_back(vector.begin(), vector.end());
  const std::vector<std::vector<V>> x = device.solve(values, given, factor);
  const std::vector<lu::BatchStatus> status = device.status();
  for (size_t s = 0; s < values.size(); ++s) {
    INFO("instance " << s);
    const BatchReference<T> expected =
        solve_in_order<T>(tables, values[s], b[s], static_cast<lu::Real<T>>(used));
    const bool finite = std::all_of(expected.factors.begin(), expected.factors.end(),
                                    [](T number) { return std::isfinite(lu::magnitude(number)); });
    REQUIRE(status[s].finite == finite);
    if (!finite)
      continue; // which NaN it is may differ
    CHECK(status[s].replaced == expected.replaced);
    CHECK(are_same(device.factors(s), expected.factors));
    CHECK(are_same(std::vector<T>(x[s].begin(), x[s].end()), expected.x));
  }
}

} // namespace

template <class T>
void check_batch(const cuda::Context& context, const LuTables& tables,
                 const std::vector<std::vector<T>>& values, Random& random,
                 const LuBatchOptions& options, double threshold) {
  std::vector<std::vector<T>> b(values.size(), std::vector<T>(tables.size));
  for (std::vector<T>& vector : b)
    for (T& number : vector)
      number = random_number<T>(random);
  if (options.wide_vectors)
    check_batch_of<T, lu::Wide<T>>(context, tables, values, b, options, threshold);
  else
    check_batch_of<T, T>(context, tables, values, b, options, threshold);
}

#define SPARSERTC_INSTANTIATE(T)                                                                   \
  template BatchReference<T> solve_in_order(const LuTables&, const std::vector<T>&,                \
                                            const std::vector<T>&, lu::Real<T>);                   \
  template class LuBatchOnDevice<T>;                                                               \
  template void check_batch<T>(const cuda::Context&, const LuTables&,                              \
                               const std::vector<std::vector<T>>&, Random&, const LuBatchOptions&, \
                               double);
SPARSERTC_INSTANTIATE(float)
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

} // namespace sparsertc::test
