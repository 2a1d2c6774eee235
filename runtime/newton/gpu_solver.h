// Solving with Jacobians on the GPU, as Newton's method there asks for it.
#pragma once

#include "runtime/lu/gpu_batch.h"
#include "runtime/lu/gpu_plan.h"

#include <cstdint>

namespace sparsertc::newton {

/// Calls enqueue launches and nothing else, so that they can be captured into graphs.
class GpuLinearSolver {
public:
  virtual ~GpuLinearSolver() = default;
  virtual uint64_t instances() const = 0;
  /// Of a Jacobian's value: 8 or 4.
  virtual uint32_t value_bytes() const = 0;
  /// Factorizes values[entry * instances + instance], in the order of the Jacobian's pattern.
  virtual void factor(cuda::DeviceAddress values, const cuda::Stream& stream) const = 0;
  /// Solves J d = f, vectors [row * instances + instance] that do not overlap.
  virtual void solve(cuda::DeviceAddress f, cuda::DeviceAddress d,
                     const cuda::Stream& stream) const = 0;

  /// Where the last factorization says how it went: an LuStatusRecord, or a word for each instance
  /// with the number of replaced pivots and a bit for failure.
  struct Status {
    cuda::DeviceAddress record = 0;
    cuda::DeviceAddress words = 0;
    uint32_t failed_bit = 0;
  };
  virtual Status status() const = 0;
};

/// One instance. Plan and workspace must outlive it.
class GpuPlanSolver : public GpuLinearSolver {
public:
  GpuPlanSolver(const lu::GpuPlan& plan, const lu::GpuWorkspace& workspace)
      : plan_(plan), workspace_(workspace) {}
  uint64_t instances() const override { return 1; }
  uint32_t value_bytes() const override { return sizeof(double); }
  void factor(cuda::DeviceAddress values, const cuda::Stream& stream) const override {
    plan_.refactor(workspace_, values, stream);
  }
  void solve(cuda::DeviceAddress f, cuda::DeviceAddress d,
             const cuda::Stream& stream) const override {
    plan_.solve(workspace_, f, d, 1, false, stream);
  }
  Status status() const override { return {workspace_.status_record().address(), 0, 0}; }

private:
  const lu::GpuPlan& plan_;
  const lu::GpuWorkspace& workspace_;
};

/// Many at once; right-hand sides and solutions of the batch are float64. It must outlive this.
class GpuBatchSolver : public GpuLinearSolver {
public:
  explicit GpuBatchSolver(const lu::GpuBatch& batch) : batch_(batch) {}
  uint64_t instances() const override { return batch_.instances(); }
  uint32_t value_bytes() const override { return batch_.number_bytes(); }
  void factor(cuda::DeviceAddress values, const cuda::Stream& stream) const override {
    batch_.factor(values, stream);
  }
  void solve(cuda::DeviceAddress f, cuda::DeviceAddress d,
             const cuda::Stream& stream) const override {
    batch_.solve(f, d, stream);
  }
  Status status() const override {
    return {0, batch_.status_words().address(), batch_.not_finite_bit()};
  }

private:
  const lu::GpuBatch& batch_;
};

} // namespace sparsertc::newton
