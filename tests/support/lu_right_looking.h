// One pattern factorized right-looking by levels, on a GPU or on the host, without the kernels that
// bring the matrix to its places: what they leave is made here.
#pragma once

#include "compiler/inspect/lu_right_looking.h"
#include "ir/lu_dataflow.h"
#include "runtime/lu/factors.h"
#include "runtime/lu/gpu_right_looking.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sparsertc::test {

/// The kernels' sums on the CPU: levels ascending, columns of a level ascending, each product with
/// one rounding. No pivot is replaced.
template <class T>
std::vector<T> factor_by_levels(const LuTables& tables, const std::vector<double>& values);

/// Factors of type T.
template <class T>
class RightLookingOnDevice {
public:
  /// All must outlive it.
  RightLookingOnDevice(const cuda::Context& context, std::span<const uint8_t> image,
                       const LuTables& tables, const LuRightLookingOptions& options);

  /// Factorizes; what was in the memory for results before is NaN.
  void refactor(const std::vector<double>& values, double threshold = 0);
  std::vector<T> values() const;
  std::vector<double> quotient() const;
  LuStatusRecord status() const;
  /// Whether the largest of each column is 0 again, for the next time.
  bool is_ready_again() const;

  const LuRightLooking& plan() const { return plan_; }
  const lu::GpuRightLooking& strategy() const { return *strategy_; }
  lu::GpuFactorArrays arrays() const;
  const cuda::Stream& stream() const { return stream_; }

private:
  const LuTables& tables_;
  LuRightLooking plan_;
  cuda::Stream stream_;
  std::unique_ptr<lu::GpuRightLooking> strategy_;
  std::unique_ptr<cuda::DeviceBuffer> initial_, values_, column_max_, quotient_, status_, scratch_;
};

extern template class RightLookingOnDevice<float>;
extern template class RightLookingOnDevice<double>;

} // namespace sparsertc::test
