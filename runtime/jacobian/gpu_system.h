// The same on the GPU: a residual compiled by NVRTC, its tables and its parameters.
//
// Vectors of a batch are stored entry by entry, x[entry * instances + instance]; of one instance
// that is the plain vector. Numbers are float64, or float32 where the residual was compiled so.
#pragma once

#include "ir/jacobian_tables.h"
#include "runtime/driver/cuda_objects.h"

#include <cstdint>
#include <memory>

namespace sparsertc::jacobian {

/// Does not change while it executes: residual(), jacobian() and product() only enqueue launches on
/// the stream, allocate nothing, and can be captured into a graph. Two of them must not run at once
/// where the evaluation is coloured (they share work memory).
class GpuSystem {
public:
  virtual ~GpuSystem() = default;

  /// n.
  uint64_t unknowns() const { return pattern().columns; }
  virtual uint64_t instances() const = 0;
  /// Of a number: 8, or 4 for float32.
  virtual uint32_t number_bytes() const = 0;
  /// Of a Jacobian's value: as a number, or 4.
  virtual uint32_t value_bytes() const { return number_bytes(); }
  /// n x n, the structural non-zeros.
  virtual const JacobianPattern& pattern() const = 0;

  /// Enqueues f = F(x) of all instances: one launch. x and f are n * instances numbers and must not
  /// overlap.
  virtual void residual(cuda::DeviceAddress x, cuda::DeviceAddress f,
                        const cuda::Stream& stream) const = 0;
  /// Enqueues the derivatives of all instances, values[place * instances + instance] with the
  /// places of the tables (the order of pattern(), unless they say otherwise): one launch for each
  /// width of tasks.
  virtual void jacobian(cuda::DeviceAddress x, cuda::DeviceAddress values,
                        const cuda::Stream& stream) const = 0;
  /// Whether evaluate() is less work than residual() and jacobian().
  virtual bool evaluates_together() const { return false; }
  /// Enqueues both, f = F(x) and the derivatives.
  virtual void evaluate(cuda::DeviceAddress x, cuda::DeviceAddress f, cuda::DeviceAddress values,
                        const cuda::Stream& stream) const {
    residual(x, f, stream);
    jacobian(x, values, stream);
  }
  /// Enqueues y = J(x) v without making J: one launch, with one tangent. All are n * instances
  /// numbers; y must not overlap x or v.
  virtual void product(cuda::DeviceAddress x, cuda::DeviceAddress v, cuda::DeviceAddress y,
                       const cuda::Stream& stream) const = 0;

  /// Waits for the stream and throws UserError where the residual's code has gone over a limit or
  /// out of its arrays since the last call; what was computed is not to be used then. Not to be
  /// called while capturing.
  virtual void check(const cuda::Stream& stream) const = 0;
};

} // namespace sparsertc::jacobian
