// Sparse LU of many small matrices of one pattern at once, on the GPU: factorization and solve in
// one kernel, by the rounds of ir/lu_rounds.h. The factors stay in shared memory and are gone
// afterwards; what is read and written are matrices, right-hand sides and solutions.
#pragma once

#include "ir/lu_rounds.h"
#include "ir/lu_tables.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/lu/factors.h"
#include "runtime/lu/gpu_batch.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sparsertc::lu {

/// How the instances are dealt to blocks.
struct GpuRoundsShape {
  uint32_t group = 0;   ///< instances of a block, a power of 2
  uint32_t threads = 0; ///< of a block

  uint32_t workers() const { return threads / group; }
};

/// Of shared memory, for a block.
uint64_t shared_bytes_of(const LuRounds& rounds, const GpuRoundsShape& shape);

inline constexpr const char* kLuRoundsKernel = "sparsertc_lu_rounds";

class GpuRounds {
public:
  /// `image`: runtime/kernels/lu_rounds.cu, compiled for the shape, with whose workers the rounds
  /// were made. `context` must outlive it. UserError where there are no instances, or 2^31 or more.
  GpuRounds(const cuda::Context& context, std::span<const uint8_t> image, const LuRounds& rounds,
            const LuTables& tables, const GpuRoundsShape& shape, uint64_t instances);

  /// Enqueues A x = b for all instances, values[entry * instances + instance] with the entries in
  /// the caller's order, b[row * instances + instance] and x likewise, which must not overlap. One
  /// launch. The sums are those of compiler/lower/lu_batch.h, bit by bit.
  void solve(cuda::DeviceAddress values, cuda::DeviceAddress b, cuda::DeviceAddress x,
             const cuda::Stream& stream, const FactorOptions& options = {}) const;

  /// Waits for the stream and says how each instance's last factorization went.
  std::vector<BatchStatus> status(const cuda::Stream& stream) const;

  uint64_t instances() const { return instances_; }
  /// Of the last factorization, a word for each instance: replaced pivots, and the bit.
  const cuda::DeviceBuffer& status_words() const { return status_; }
  static constexpr uint32_t kNotFiniteBit = 0x80000000;
  const cuda::Kernel& kernel() const { return kernel_; }
  uint64_t shared_bytes() const { return shared_bytes_; }

private:
  const cuda::Context& context_;
  LuRounds rounds_; ///< without its arrays
  GpuRoundsShape shape_;
  uint32_t size_ = 0, word_count_ = 0, zeros_ = 0, empty_columns_ = 0;
  uint64_t instances_;
  uint64_t shared_bytes_;
  uint32_t blocks_;
  cuda::Module module_;
  cuda::Kernel kernel_;
  cuda::DeviceBuffer status_, largest_, words_, begin_, input_, input_begin_, input_scale_, zero_,
      empty_column_, row_, row_scale_, column_, column_scale_;
};

} // namespace sparsertc::lu
