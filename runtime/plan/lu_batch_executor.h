// Where batches of sparse LU are: on a GPU's streams, or in host memory by the calling thread.
// Their numbers are in a piece of the caller's memory:
//
//   0      a status word for each instance (runtime/lu/host_batch_loops.h)
//   then   the factors, from a multiple of 256 on
#pragma once

#include "runtime/driver/cuda_objects.h"
#include "runtime/lu/factors.h"
#include "runtime/lu/gpu_batch.h"
#include "runtime/plan/lu_executor.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace sparsertc {

/// Constant: several threads may execute at once, each with memory of its own. Addresses and sizes
/// have been checked, and there are instances.
class LuBatchExecutor {
public:
  virtual ~LuBatchExecutor() = default;

  virtual uint64_t bytes(uint64_t instances) const = 0;
  /// Of device memory for tables.
  virtual uint64_t table_bytes() const = 0;
  /// On a GPU these enqueue one launch each and return. values[entry * instances + instance],
  /// b[row * instances + instance], x likewise.
  virtual void refactor(LuAddress memory, uint64_t instances, LuAddress values,
                        const lu::FactorOptions& options, cuda::StreamHandle stream) const = 0;
  virtual void solve(LuAddress memory, uint64_t instances, LuAddress b, LuAddress x,
                     cuda::StreamHandle stream) const = 0;
  /// Waits.
  virtual std::vector<uint32_t> status_words(LuAddress memory, uint64_t instances,
                                             cuda::StreamHandle stream) const = 0;
};

/// `context` must outlive it.
std::unique_ptr<LuBatchExecutor>
make_lu_batch_executor(const cuda::Context& context,
                       std::unique_ptr<const lu::GpuBatchKernels> kernels);
/// `loop` must outlive it.
std::unique_ptr<LuBatchExecutor> make_lu_batch_executor(const LuBatchLoop& loop,
                                                        const LuManifest& manifest);

} // namespace sparsertc
