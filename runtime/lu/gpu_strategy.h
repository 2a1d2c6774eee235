// How a factorization on the GPU computes its numbers, once the matrix is at its places: one of
// several ways behind lu::GpuPlan.
#pragma once

#include "runtime/driver/cuda_objects.h"

#include <cstdint>

namespace sparsertc::lu {

/// In device memory; T is the type of the factors.
struct GpuFactorArrays {
  cuda::DeviceAddress initial = 0;    ///< T by slot: B, zeros where only L'+U has an entry
  cuda::DeviceAddress values = 0;     ///< T by slot: what is computed
  cuda::DeviceAddress column_max = 0; ///< i64 by column: bits of the largest of B's, as f64; zeros
                                      ///< are left behind
  cuda::DeviceAddress quotient = 0;   ///< f64 by column: what GpuPlan::status reads
  cuda::DeviceAddress status = 0;     ///< an LuStatusRecord
  cuda::DeviceAddress scratch = 0;    ///< scratch_bytes(), whatever is in it
};

/// Does not change while it executes.
class GpuFactorStrategy {
public:
  virtual ~GpuFactorStrategy() = default;

  /// Enqueues launches only, so that it can be captured. A pivot below `threshold` times the
  /// largest of its column of B is replaced.
  virtual void enqueue(const GpuFactorArrays& arrays, double threshold,
                       const cuda::Stream& stream) const = 0;
  /// Of each workspace.
  virtual uint64_t scratch_bytes() const = 0;
  /// Of device memory for tables.
  virtual uint64_t table_bytes() const = 0;
};

} // namespace sparsertc::lu
