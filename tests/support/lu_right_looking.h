// One pattern factorized right-looking by levels, on a GPU or on the host.
#pragma once

#include "compiler/inspect/lu_right_looking.h"
#include "runtime/lu/gpu_right_looking.h"
#include "tests/support/lu_strategy.h"

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace sparsertc::test {

/// The kernels' sums on the CPU: levels ascending, columns of a level ascending, and at the end the
/// columns of the dense tail, ascending; each product with
/// one rounding, of each part of a complex number two. No pivot is replaced.
template <class T>
std::vector<T> factor_by_levels(const LuTables& tables, const std::vector<lu::Wide<T>>& values,
                                uint32_t tail_columns = 0);

/// Factors of type T.
template <class T>
class RightLookingOnDevice : public StrategyOnDevice<T> {
public:
  /// All must outlive it.
  RightLookingOnDevice(const cuda::Context& context, std::span<const uint8_t> image,
                       const LuTables& tables, const LuRightLookingOptions& options)
      : RightLookingOnDevice(context, image, tables, make_right_looking(tables, options)) {}

  const LuRightLooking& plan() const { return plan_; }

private:
  RightLookingOnDevice(const cuda::Context& context, std::span<const uint8_t> image,
                       const LuTables& tables, LuRightLooking plan)
      : StrategyOnDevice<T>(context, tables,
                            std::make_unique<lu::GpuRightLooking>(
                                context, image, tables, plan, std::is_same_v<lu::Real<T>, float>,
                                lu::ScalarTraits<T>::kComplex)),
        plan_(std::move(plan)) {}

  LuRightLooking plan_;
};

} // namespace sparsertc::test
