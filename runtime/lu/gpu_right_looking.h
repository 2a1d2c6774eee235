// The right-looking factorization by levels (ir/lu_right_looking.h) on the GPU, by the kernels of
// runtime/kernels/lu_right_looking.cu.
#pragma once

#include "ir/lu_right_looking.h"
#include "ir/lu_tables.h"
#include "runtime/kernels/lu_right_looking.cuh"
#include "runtime/lu/gpu_strategy.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sparsertc::lu {

class GpuRightLooking : public GpuFactorStrategy {
public:
  /// The type of the factors as kernels::compile_lu_right_looking takes it.
  static const char* number(bool single, bool complex);

  /// `image`: what kernels::compile_lu_right_looking gives; `plan`: what the inspector made of
  /// `tables`. Factors of f64, or of f32 if `single`; of c128 or c64 if `complex`. Copies the
  /// tables to the GPU. `context` must outlive it.
  GpuRightLooking(const cuda::Context& context, std::span<const uint8_t> image,
                  const LuTables& tables, const LuRightLooking& plan, bool single, bool complex);

  void enqueue(const GpuFactorArrays& arrays, double threshold,
               const cuda::Stream& stream) const override;
  uint64_t scratch_bytes() const override;
  uint64_t table_bytes() const override { return table_bytes_; }
  const cuda::Kernel& stages_kernel() const { return stages_; }

private:
  using Table = std::unique_ptr<cuda::DeviceBuffer>;
  Table upload(std::span<const uint8_t> bytes, const cuda::Stream& stream);
  template <class T>
  void enqueue_tail(const GpuFactorArrays& arrays, kernels::RightLookingArguments<T> arguments,
                    const cuda::Stream& stream) const;
  void launch(const cuda::Kernel& kernel, uint32_t blocks, uint32_t threads, void* arguments,
              bool together, const cuda::Stream& stream) const;
  template <class T>
  void enqueue_as(const GpuFactorArrays& arrays, double threshold,
                  const cuda::Stream& stream) const;

  const cuda::Context& context_;
  cuda::Module module_;
  cuda::Kernel begin_, stages_;
  cuda::Kernel tail_load_, tail_diagonal_, tail_panels_, tail_update_, tail_store_;
  bool single_, complex_;
  uint32_t size_, slots_, dense_columns_, tail_columns_;
  std::vector<LuStageRun> runs_;
  Table row_index_, column_offset_, diagonal_, update_, source_, stage_offset_;
  uint64_t table_bytes_ = 0;
};

} // namespace sparsertc::lu
