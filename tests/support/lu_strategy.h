// One pattern factorized by a GpuFactorStrategy, on a GPU or on the host, without the kernels that
// bring the matrix to its places: what they leave is made here.
#pragma once

#include "ir/lu_dataflow.h"
#include "ir/lu_tables.h"
#include "runtime/lu/gpu_strategy.h"
#include "runtime/lu/scalar.h"
#include "tests/support/lu_rounding.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sparsertc::test {

/// B by slot, rounded to T; zeros where only L'+U has an entry.
template <class T>
std::vector<T> placed(const LuTables& tables, const std::vector<lu::Wide<T>>& values);

/// |L' D U - B| of the entry that is farthest beyond what rounding may do to a sum of so many
/// terms, in parts of that: at most 1 of a good factorization.
template <class T>
double product_error(const LuTables& tables, const std::vector<T>& v,
                     const std::vector<lu::Wide<T>>& values);

/// Factors of type T.
template <class T>
class StrategyOnDevice {
public:
  using V = lu::Wide<T>;

  /// `context` and `tables` must outlive it.
  StrategyOnDevice(const cuda::Context& context, const LuTables& tables,
                   std::unique_ptr<lu::GpuFactorStrategy> strategy);

  /// Factorizes; what was in the memory for results before is NaN.
  void refactor(const std::vector<V>& values, double threshold = 0);
  std::vector<T> values() const;
  std::vector<double> quotient() const;
  LuStatusRecord status() const;
  /// Whether the largest of each column is 0 again, for the next time.
  bool is_ready_again() const;

  const lu::GpuFactorStrategy& strategy() const { return *strategy_; }
  lu::GpuFactorArrays arrays() const;
  const cuda::Stream& stream() const { return stream_; }

private:
  const LuTables& tables_;
  cuda::Stream stream_;
  std::unique_ptr<lu::GpuFactorStrategy> strategy_;
  std::unique_ptr<cuda::DeviceBuffer> initial_, values_, column_max_, quotient_, status_, scratch_;
};

extern template class StrategyOnDevice<float>;
extern template class StrategyOnDevice<double>;
extern template class StrategyOnDevice<std::complex<float>>;
extern template class StrategyOnDevice<std::complex<double>>;

} // namespace sparsertc::test
