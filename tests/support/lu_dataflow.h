// One pattern factorized and solved by the dataflow kernels, on a GPU or on the interpreter.
#pragma once

#include "compiler/inspect/lu_schedule.h"
#include "runtime/lu/gpu_plan.h"
#include "tests/support/random_sparse.h"

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace sparsertc::test {

/// The pattern's entries with random values, of type V double or std::complex<double>, and a
/// diagonal that is heavier than its column.
template <class V = double>
std::vector<V> dominant_values(const Pattern& pattern, Random& random);

/// The tables of a pattern in its own order, with random scales if they are asked for.
LuTables tables_in_order(const Pattern& pattern, Random* scales = nullptr);

/// The packets on the CPU: each lane adds its products, then lanes are added in pairs, the farthest
/// first. No pivot is replaced.
template <class T>
std::vector<T> factor_in_order(const LuTables& tables, const LuDataflow& flow,
                               const std::vector<lu::Wide<T>>& values);

/// The sums of the kernel that solves with one block, on the CPU: b permuted, x in the caller's
/// order.
template <class T>
std::vector<lu::Wide<T>> solve_in_steps(const LuTables& tables, const LuBlockSolve& steps,
                                        const std::vector<T>& values,
                                        const std::vector<lu::Wide<T>>& b, bool transposed);

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b);

/// A plan with its workspace and room for right-hand sides; factors of type T, values in double
/// precision.
template <class T>
class LuOnDevice {
public:
  using V = lu::Wide<T>;

  /// `threads` of a block of the dataflow kernels; `block_threads` of the one that solves, 0 for a
  /// solve by dataflow. `tables` must outlive it.
  LuOnDevice(const cuda::Context& context, const LuTables& tables, uint32_t threads,
             uint32_t right_sides = 3, uint32_t block_threads = 0);

  lu::FactorStatus refactor(const std::vector<V>& values, const lu::FactorOptions& options = {});
  std::vector<T> values() const;
  /// n numbers for each right-hand side.
  std::vector<V> solve(std::vector<V> b, uint32_t right_sides, bool transposed);

  const LuDataflow& flow() const { return flow_; }
  const lu::GpuPlan& plan() const { return *plan_; }
  const lu::GpuWorkspace& workspace() const { return *workspace_; }
  const cuda::Stream& stream() const { return stream_; }
  const cuda::DeviceBuffer& matrix() const { return *matrix_; }
  const cuda::DeviceBuffer& vectors() const { return *vectors_; }

private:
  const LuTables& tables_;
  LuDataflow flow_; ///< of the factorization
  cuda::Stream stream_;
  std::unique_ptr<lu::GpuPlan> plan_;
  std::unique_ptr<lu::GpuWorkspace> workspace_;
  std::unique_ptr<cuda::DeviceBuffer> matrix_, vectors_;
};

extern template class LuOnDevice<float>;
extern template class LuOnDevice<double>;
extern template class LuOnDevice<std::complex<float>>;
extern template class LuOnDevice<std::complex<double>>;

/// Factorizes and solves twice with different values; compares with the CPU, and bit by bit with
/// factor_in_order, solve_in_steps (where one block solves), and with a second run. Fails through
/// Catch.
template <class T>
void check_dataflow(const cuda::Context& context, const Pattern& pattern, Random& random,
                    bool scaled, uint32_t threads, uint32_t block_threads = 0);

} // namespace sparsertc::test
