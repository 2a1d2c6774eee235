// A factorization by levels on the GPU, by kernels that were made for the pattern
// (ir/lu_emitted.h).
#pragma once

#include "ir/lu_emitted.h"
#include "ir/lu_tables.h"
#include "runtime/lu/gpu_strategy.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sparsertc::lu {

/// The kernels of compiler/lower/lu_emitted.h.
struct GpuEmittedCode {
  std::span<const uint8_t> image;   ///< PTX or a cubin
  std::vector<std::string> kernels; ///< one for each launch
  const char* notes = nullptr;
  uint32_t notes_threads = 0; ///< of a block of it
  uint32_t notes_slots = 0;   ///< that each thread looks at
  uint32_t factor_bytes = 0;  ///< of a number of the factors: 4, 8 or 16
  bool wide = true;           ///< whether the parts of numbers are f64
};

class GpuEmitted : public GpuFactorStrategy {
public:
  /// `plan`: what the inspector made of `tables`. Copies the tables to the GPU. `context` must
  /// outlive it.
  GpuEmitted(const cuda::Context& context, const GpuEmittedCode& code, const LuTables& tables,
             const LuEmitted& plan);

  /// A launch for each of the plan's, and one more.
  void enqueue(const GpuFactorArrays& arrays, double threshold,
               const cuda::Stream& stream) const override;
  /// For the pivots before they were replaced.
  uint64_t scratch_bytes() const override { return uint64_t{size_} * factor_bytes_; }
  uint64_t table_bytes() const override { return table_bytes_; }

private:
  using Table = std::unique_ptr<cuda::DeviceBuffer>;
  template <class T>
  Table upload(const std::vector<T>& values, const cuda::Stream& stream);
  void launch(const cuda::Kernel& kernel, uint32_t blocks, uint32_t threads,
              std::span<const uint64_t> arguments, const cuda::Stream& stream) const;

  const cuda::Context& context_;
  cuda::Module module_;
  std::vector<cuda::Kernel> levels_;
  std::vector<LuEmittedLaunch> launches_;
  cuda::Kernel notes_;
  uint32_t size_, slots_, factor_bytes_, notes_threads_, notes_slots_;
  bool wide_;
  Table task_, left_, right_, pivot_, slot_column_;
  uint64_t table_bytes_ = 0;
};

} // namespace sparsertc::lu
