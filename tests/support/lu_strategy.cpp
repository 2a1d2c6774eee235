#include "tests/support/lu_strategy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace sparsertc::test {
namespace {

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> downloaded(const cuda::DeviceBuffer& buffer, const cuda::Stream& stream) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  buffer.download({reinterpret_cast<uint8_t*>(values.data()), buffer.bytes()}, stream);
  return values;
}

} // namespace

template <class T>
std::vector<T> placed(const LuTables& t, const std::vector<lu::Wide<T>>& values) {
  std::vector<T> v(t.nnz(), T(0));
  for (uint64_t p = 0; p < t.input_nnz; ++p)
    v[t.input_slot[p]] = lu::to_scalar<T>(values[t.input_source[p]] *
                                          (t.input_scale.empty() ? 1.0 : t.input_scale[p]));
  return v;
}

template <class T>
double product_error(const LuTables& t, const std::vector<T>& v,
                     const std::vector<lu::Wide<T>>& values) {
  using V = lu::Wide<T>;
  const std::vector<T> b = placed<T>(t, values);
  const auto wide = [&](uint64_t slot) { return lu::to_scalar<V>(v[slot]); };
  // By columns: sum over k <= min(i,j) of L'(i,k) d(k) U(k,j), with 1/d for L'(k,k) and U(k,k).
  std::vector<V> sum(t.size, V(0));
  std::vector<double> size(t.size, 0);
  std::vector<uint32_t> terms(t.size, 0);
  double worst = 0;
  for (uint32_t j = 0; j < t.size; ++j) {
    for (uint64_t slot = t.column_offset[j]; slot < t.column_offset[j + 1]; ++slot) {
      const uint32_t i = t.row_index[slot];
      sum[i] += i == j ? V(1) / wide(slot) : wide(slot);
      size[i] += std::abs(sum[i]);
      if (i >= j)
        continue;
      for (uint64_t q = t.diagonal[i] + 1; q < t.column_offset[i + 1]; ++q) {
        const V product = wide(q) * wide(t.diagonal[i]) * wide(slot);
        sum[t.row_index[q]] += product;
        size[t.row_index[q]] += std::abs(product);
        ++terms[t.row_index[q]];
      }
    }
    for (uint64_t slot = t.column_offset[j]; slot < t.column_offset[j + 1]; ++slot) {
      const uint32_t i = t.row_index[slot];
      // A complex product or reciprocal has a few roundings.
      const double each = lu::ScalarTraits<T>::kComplex ? 8 : 1;
      const double u = each * (terms[i] + 4) * double{lu::unit_roundoff<T>()};
      const V entry = lu::to_scalar<V>(b[slot]);
      // What underflows is not relative.
      const double least = each * (terms[i] + 1) * double{std::numeric_limits<lu::Real<T>>::min()};
      const double bound = u / (1 - u) * (size[i] + std::abs(entry)) + least;
      const double off = std::abs(sum[i] - entry);
      worst = off == 0 ? worst : std::max(worst, bound > 0 ? off / bound : INFINITY);
      if (std::isnan(off))
        worst = INFINITY;
      sum[i] = V(0);
      size[i] = 0;
      terms[i] = 0;
    }
  }
  return worst;
}

template <class T>
StrategyOnDevice<T>::StrategyOnDevice(const cuda::Context& context, const LuTables& tables,
                                      std::unique_ptr<lu::GpuFactorStrategy> strategy)
    : tables_(tables), stream_(context), strategy_(std::move(strategy)) {
  const auto make = [&](uint64_t bytes) {
    return std::make_unique<cuda::DeviceBuffer>(context, bytes);
  };
  initial_ = make(tables.nnz() * sizeof(T));
  values_ = make(tables.nnz() * sizeof(T));
  column_max_ = make(uint64_t{tables.size} * sizeof(int64_t));
  quotient_ = make(uint64_t{tables.size} * sizeof(double));
  status_ = make(sizeof(LuStatusRecord));
  scratch_ = make(strategy_->scratch_bytes());
}

template <class T>
lu::GpuFactorArrays StrategyOnDevice<T>::arrays() const {
  return {initial_->address(),  values_->address(), column_max_->address(),
          quotient_->address(), status_->address(), scratch_->address()};
}

template <class T>
void StrategyOnDevice<T>::refactor(const std::vector<V>& values, double threshold) {
  const std::vector<T> initial = placed<T>(tables_, values);
  std::vector<int64_t> largest(tables_.size, 0);
  for (uint32_t j = 0; j < tables_.size; ++j)
    for (uint64_t slot = tables_.column_offset[j]; slot < tables_.column_offset[j + 1]; ++slot)
      largest[j] =
          std::max(largest[j], std::bit_cast<int64_t>(double{lu::magnitude(initial[slot])}));
  const LuStatusRecord fresh;
  initial_->upload(bytes_of(initial), stream_);
  column_max_->upload(bytes_of(largest), stream_);
  status_->upload({reinterpret_cast<const uint8_t*>(&fresh), sizeof fresh}, stream_);
  for (const auto* buffer : {values_.get(), quotient_.get(), scratch_.get()})
    buffer->fill(0xFF, stream_);
  strategy_->enqueue(arrays(), threshold, stream_);
  stream_.synchronize("factorizing");
}

template <class T>
std::vector<T> StrategyOnDevice<T>::values() const {
  return downloaded<T>(*values_, stream_);
}

template <class T>
std::vector<double> StrategyOnDevice<T>::quotient() const {
  return downloaded<double>(*quotient_, stream_);
}

template <class T>
LuStatusRecord StrategyOnDevice<T>::status() const {
  return downloaded<LuStatusRecord>(*status_, stream_).front();
}

template <class T>
bool StrategyOnDevice<T>::is_ready_again() const {
  const std::vector<int64_t> largest = downloaded<int64_t>(*column_max_, stream_);
  return std::all_of(largest.begin(), largest.end(), [](int64_t bits) { return bits == 0; });
}

#define SPARSERTC_INSTANTIATE(T)                                                                   \
  template std::vector<T> placed(const LuTables&, const std::vector<lu::Wide<T>>&);                \
  template double product_error(const LuTables&, const std::vector<T>&,                            \
                                const std::vector<lu::Wide<T>>&);                                  \
  template class StrategyOnDevice<T>;
SPARSERTC_INSTANTIATE(float)
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

} // namespace sparsertc::test
