#include "tests/support/lu_right_looking.h"

#include "compiler/inspect/lu_levels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

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

/// B by slot.
template <class T>
std::vector<T> placed(const LuTables& t, const std::vector<double>& values) {
  std::vector<T> v(t.nnz(), T(0));
  for (uint64_t p = 0; p < t.input_nnz; ++p)
    v[t.input_slot[p]] = static_cast<T>(values[t.input_source[p]] *
                                        (t.input_scale.empty() ? 1.0 : t.input_scale[p]));
  return v;
}

} // namespace

template <class T>
std::vector<T> factor_by_levels(const LuTables& t, const std::vector<double>& values) {
  std::vector<T> v = placed<T>(t, values);
  const LuLevels levels = factor_levels(t, LevelRule::right_looking);
  for (const uint32_t j : levels.member) {
    v[t.diagonal[j]] = 1 / v[t.diagonal[j]];
    for (uint64_t p = t.row_diagonal[j] + 1; p < t.row_offset[j + 1]; ++p) {
      const T factor = v[t.row_slot[p]] * v[t.diagonal[j]];
      uint64_t slot = t.row_slot[p];
      for (uint64_t q = t.diagonal[j] + 1; q < t.column_offset[j + 1]; ++q) {
        while (t.row_index[slot] != t.row_index[q])
          ++slot;
        v[slot] = std::fma(-v[q], factor, v[slot]);
      }
    }
  }
  return v;
}

template <class T>
RightLookingOnDevice<T>::RightLookingOnDevice(const cuda::Context& context,
                                              std::span<const uint8_t> image,
                                              const LuTables& tables,
                                              const LuRightLookingOptions& options)
    : tables_(tables), plan_(make_right_looking(tables, options)), stream_(context),
      strategy_(std::make_unique<lu::GpuRightLooking>(context, image, tables, plan_,
                                                      std::is_same_v<T, float>)) {
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
lu::GpuFactorArrays RightLookingOnDevice<T>::arrays() const {
  return {initial_->address(),  values_->address(), column_max_->address(),
          quotient_->address(), status_->address(), scratch_->address()};
}

template <class T>
void RightLookingOnDevice<T>::refactor(const std::vector<double>& values, double threshold) {
  const std::vector<T> initial = placed<T>(tables_, values);
  std::vector<int64_t> largest(tables_.size, 0);
  for (uint32_t j = 0; j < tables_.size; ++j)
    for (uint64_t slot = tables_.column_offset[j]; slot < tables_.column_offset[j + 1]; ++slot)
      largest[j] = std::max(largest[j], std::bit_cast<int64_t>(std::abs(double{initial[slot]})));
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
std::vector<T> RightLookingOnDevice<T>::values() const {
  return downloaded<T>(*values_, stream_);
}

template <class T>
std::vector<double> RightLookingOnDevice<T>::quotient() const {
  return downloaded<double>(*quotient_, stream_);
}

template <class T>
LuStatusRecord RightLookingOnDevice<T>::status() const {
  return downloaded<LuStatusRecord>(*status_, stream_).front();
}

template <class T>
bool RightLookingOnDevice<T>::is_ready_again() const {
  const std::vector<int64_t> largest = downloaded<int64_t>(*column_max_, stream_);
  return std::all_of(largest.begin(), largest.end(), [](int64_t bits) { return bits == 0; });
}

template std::vector<float> factor_by_levels(const LuTables&, const std::vector<double>&);
template std::vector<double> factor_by_levels(const LuTables&, const std::vector<double>&);
template class RightLookingOnDevice<float>;
template class RightLookingOnDevice<double>;

} // namespace sparsertc::test
