// Refinement on a device, beside that on the host.
#pragma once

#include "runtime/lu/gpu_refine.h"
#include "tests/support/lu_dataflow.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sparsertc::test {

/// Factors of type T on a device and the refinement of solutions of type X. The vectors on the
/// device, all bits set at first, are in double precision.
template <class T, class X>
class RefineOnDevice {
public:
  using V = lu::Wide<T>;

  /// As LuOnDevice; at most three right-hand sides.
  RefineOnDevice(const cuda::Context& context, const LuTables& tables, uint32_t threads,
                 uint32_t block_threads = 0);

  /// Of another matrix near that which is solved with, or of that.
  lu::FactorStatus refactor(const std::vector<V>& values) { return factors_.refactor(values); }
  /// Of A = `values`, n numbers for each right-hand side.
  std::vector<V> solve(const std::vector<V>& values, std::vector<V> b, uint32_t right_sides,
                       bool transposed, const lu::RefineOptions& options = {});
  /// Enqueues it once more, with what is on the device.
  void enqueue(uint32_t right_sides, bool transposed, const lu::RefineOptions& options);
  std::vector<lu::RefineResult> results(uint32_t right_sides) const {
    return refinement_->results(*workspace_, right_sides, factors_.stream());
  }
  const LuOnDevice<T>& factors() const { return factors_; }

private:
  LuOnDevice<T> factors_;
  std::unique_ptr<lu::GpuRefinement> refinement_;
  std::unique_ptr<lu::GpuRefineWorkspace> workspace_;
};

/// Solves for three right-hand sides, one of them zero, with factors of a matrix near A: every
/// backward error and residual that is reported must be that of the solution, and as small as the
/// host's. Fails through Catch.
template <class T, class X>
void check_refinement(const cuda::Context& context, const Pattern& pattern, Random& random,
                      bool scaled, uint32_t threads, uint32_t block_threads = 0);

} // namespace sparsertc::test
