// Sparse LU of many matrices of one pattern at once, on the GPU: the code of
// compiler/lower/lu_batch.h and the memory of a number of instances.
#pragma once

#include "ir/lu_batch_loop.h"
#include "ir/lu_tables.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/lu/factors.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sparsertc::lu {

/// The kernels of compiler/lower/lu_batch.h, or of lu_batch_loop.h.
struct GpuBatchCode {
  std::span<const uint8_t> image; ///< PTX or a cubin
  const char* factor = nullptr;   ///< names of the kernels
  const char* solve = nullptr;
  uint32_t lanes = 0;          ///< instances of a group, which a block has
  uint32_t factor_threads = 0; ///< of a block, a multiple of `lanes`
  uint32_t solve_threads = 0;
  uint64_t numbers = 0;        ///< of an instance in the memory of the factors
  bool complex = false;        ///< whether numbers are pairs of parts
  uint32_t number_bytes = 8;   ///< of each of them and of values: 4, 8 or 16
  uint32_t vector_bytes = 8;   ///< of each number of right-hand sides and solutions
  uint32_t not_finite_bit = 0; ///< of a status word
};

/// How the factorization of one instance went.
struct BatchStatus {
  uint32_t replaced = 0; ///< pivots that were too small
  /// False where NaN or infinite values came in, numbers overflowed, or a column is zero: then
  /// there is nothing to solve with.
  bool finite = true;
};

/// Where the numbers of a batch lie on the GPU.
struct GpuBatchMemory {
  cuda::DeviceAddress factors = 0; ///< GpuBatchKernels::factor_bytes(instances)
  cuda::DeviceAddress status = 0;  ///< a word for each instance
  uint64_t instances = 0;          ///< less than 2^31
};

/// The kernels and tables of a pattern; constant while they execute.
class GpuBatchKernels {
public:
  /// Loads the code. `loop`, which need not outlive it, are the tables of code that works by
  /// tables; null for straight-line code. `context` and `tables` must outlive it.
  GpuBatchKernels(const cuda::Context& context, const GpuBatchCode& code, const LuTables& tables,
                  const LuBatchLoop* loop = nullptr);

  /// `numbers` for each instance, rounded up to whole groups.
  uint64_t factor_bytes(uint64_t instances) const;

  /// Enqueues the factorization of all instances, values[entry * instances + instance] with the
  /// entries in the caller's order. One launch.
  void factor(cuda::DeviceAddress values, const GpuBatchMemory& memory, const cuda::Stream& stream,
              const FactorOptions& options = {}) const;
  /// Enqueues A x = b for all instances, b[row * instances + instance] and x likewise, which must
  /// not overlap. One launch.
  void solve(cuda::DeviceAddress b, cuda::DeviceAddress x, const GpuBatchMemory& memory,
             const cuda::Stream& stream) const;

  const GpuBatchCode& code() const { return code_; }
  const cuda::Kernel& factor_kernel() const { return factor_; }
  const cuda::Kernel& solve_kernel() const { return solve_; }
  /// Of device memory for the tables.
  uint64_t table_bytes() const { return table_bytes_; }

private:
  using Table = std::unique_ptr<cuda::DeviceBuffer>;
  void upload(const LuBatchLoop& loop);
  uint64_t groups(uint64_t instances) const { return (instances + code_.lanes - 1) / code_.lanes; }
  void launch(const cuda::Kernel& kernel, uint32_t threads, uint64_t instances,
              std::span<const uint64_t> arguments, std::span<const uint64_t> tables,
              const cuda::Stream& stream) const;

  const cuda::Context& context_;
  GpuBatchCode code_;
  const LuTables& tables_;
  cuda::Module module_;
  cuda::Kernel factor_, solve_;
  std::vector<Table> tables_on_gpu_;
  uint64_t table_bytes_ = 0;
  /// What kernels that work by tables get after their other arguments.
  std::vector<uint64_t> factor_tables_, solve_tables_;
};

/// The kernels with memory for a number of instances.
class GpuBatch {
public:
  /// As GpuBatchKernels; takes the memory for the factors. UserError where there are no instances,
  /// or 2^31 or more.
  GpuBatch(const cuda::Context& context, const GpuBatchCode& code, const LuTables& tables,
           uint64_t instances, const LuBatchLoop* loop = nullptr);

  /// As GpuBatchKernels.
  void factor(cuda::DeviceAddress values, const cuda::Stream& stream,
              const FactorOptions& options = {}) const {
    kernels_.factor(values, memory(), stream, options);
  }
  void solve(cuda::DeviceAddress b, cuda::DeviceAddress x, const cuda::Stream& stream) const {
    kernels_.solve(b, x, memory(), stream);
  }

  /// Waits for the stream and says how each instance's last factorization went.
  std::vector<BatchStatus> status(const cuda::Stream& stream) const;

  uint64_t instances() const { return instances_; }
  /// Number s of instance g * lanes + l is at ((g * numbers + s) * lanes + l).
  const cuda::DeviceBuffer& factors() const { return factors_; }
  /// Of the last factorization, a word for each instance: replaced pivots, and the bit.
  const cuda::DeviceBuffer& status_words() const { return status_; }
  uint32_t not_finite_bit() const { return kernels_.code().not_finite_bit; }
  const cuda::Kernel& factor_kernel() const { return kernels_.factor_kernel(); }
  const cuda::Kernel& solve_kernel() const { return kernels_.solve_kernel(); }
  uint32_t number_bytes() const { return kernels_.code().number_bytes; }

private:
  GpuBatchMemory memory() const { return {factors_.address(), status_.address(), instances_}; }

  uint64_t instances_;
  GpuBatchKernels kernels_;
  cuda::DeviceBuffer factors_, status_;
};

} // namespace sparsertc::lu
