// One pattern's batch on a GPU or on the interpreter, and the same sums on the CPU.
#pragma once

#include "compiler/lower/lu_batch.h"
#include "runtime/lu/gpu_batch.h"
#include "tests/support/random_sparse.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace sparsertc::test {

/// The formulas of compiler/lower/lu_batch.h for one instance, slot by slot; T may be complex.
template <class T>
struct BatchReference {
  std::vector<T> factors; ///< by slot
  std::vector<T> x;
  uint32_t replaced = 0;
};
template <class T>
BatchReference<T> solve_in_order(const LuTables& tables, const std::vector<T>& values,
                                 const std::vector<T>& b, lu::Real<T> threshold);

/// A batch with room for values, right-hand sides and solutions, all bits set at first. V: of the
/// latter two.
template <class T = double, class V = T>
class LuBatchOnDevice {
public:
  /// By straight-line code, or by tables where the options do not allow that. `tables` must outlive
  /// it.
  LuBatchOnDevice(const cuda::Context& context, const LuTables& tables, uint64_t instances,
                  const LuBatchOptions& options = {});

  /// values[s] and b[s] of instance s; x likewise.
  std::vector<std::vector<V>> solve(const std::vector<std::vector<T>>& values,
                                    const std::vector<std::vector<V>>& b,
                                    const lu::FactorOptions& options = {});
  std::vector<lu::BatchStatus> status() const { return batch_->status(stream_); }
  /// By slot.
  std::vector<T> factors(uint64_t instance) const;
  const lu::GpuBatch& batch() const { return *batch_; }

private:
  const LuTables& tables_;
  uint64_t instances_, numbers_ = 0;
  cuda::Stream stream_;
  std::unique_ptr<lu::GpuBatch> batch_;
  cuda::DeviceBuffer values_, b_, x_;
};

/// Factorizes and solves, and compares with solve_in_order, bit by bit where that is finite; with
/// wide vectors after rounding what they are. Fails through Catch.
template <class T>
void check_batch(const cuda::Context& context, const LuTables& tables,
                 const std::vector<std::vector<T>>& values, Random& random,
                 const LuBatchOptions& options = {}, double threshold = 0);

} // namespace sparsertc::test
