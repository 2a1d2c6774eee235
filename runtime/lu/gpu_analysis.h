// What symbolic factorization and levels on the GPU share: the loaded kernels, and a pattern in
// device memory.
#pragma once

#include "runtime/driver/cuda_objects.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sparsertc::lu {

/// So many rows and columns can be analysed on a GPU: edges of 32 vertices at a time are counted in
/// 32 bits.
inline constexpr uint64_t kLargestGpuAnalysis = uint64_t{1} << 26;

/// runtime/kernels/lu_analysis.cu, loaded. `context` must outlive it.
class GpuAnalysisKernels {
public:
  /// `image`: what kernels::compile_lu_analysis gives.
  GpuAnalysisKernels(const cuda::Context& context, std::span<const uint8_t> image);

  const cuda::Context& context() const { return context_; }

  /// Enqueues a launch of a kernel with one struct as its parameter. `cooperative`: all blocks are
  /// resident at once, or the driver refuses.
  template <class Arguments>
  void launch(const cuda::Kernel& kernel, uint64_t blocks, uint32_t threads,
              const Arguments& arguments, const cuda::Stream& stream,
              bool cooperative = false) const {
    launch_with(kernel, blocks, threads, const_cast<Arguments*>(&arguments), stream, cooperative);
  }

  cuda::Kernel fill2_count, fill2_write;
  cuda::Kernel scan_sum, scan_tiles, scan_offsets;
  cuda::Kernel levels_lower, levels_count, levels_transpose, levels_ready, levels_kahn;
  cuda::Kernel levels_maximum, radix_count, radix_scatter, levels_offset;

  /// Enqueues offset[i] = sum of length[k], k < i, for i from 0 to `size`; `tile_sums` has
  /// scan_bytes(size) bytes.
  void scan(uint32_t size, cuda::DeviceAddress length, cuda::DeviceAddress offset,
            cuda::DeviceAddress tile_sums, const cuda::Stream& stream) const;
  static uint64_t scan_bytes(uint64_t size);

private:
  void launch_with(const cuda::Kernel& kernel, uint64_t blocks, uint32_t threads, void* arguments,
                   const cuda::Stream& stream, bool cooperative) const;

  const cuda::Context& context_;
  cuda::Module module_;
};

/// L+U in compressed rows in device memory: n + 1 offsets and n places of diagonal entries of 64
/// bits, and columns of 32 bits.
struct DeviceRows {
  uint32_t size = 0;
  uint64_t entries = 0;
  std::unique_ptr<cuda::DeviceBuffer> row_offset;
  std::unique_ptr<cuda::DeviceBuffer> diagonal;
  std::unique_ptr<cuda::DeviceBuffer> columns;
};

/// The same in host memory.
struct HostRows {
  std::vector<uint64_t> row_offset = {0};
  std::vector<uint64_t> diagonal;
  std::vector<uint32_t> columns;
};

/// Bytes that may be used: what is free but a sixteenth, or `limit` where it is not 0 and less.
uint64_t memory_budget(const cuda::Context& context, uint64_t limit);

/// Refuses sizes above kLargestGpuAnalysis with a UserError.
void check_analysis_size(uint64_t size);

template <class T>
std::span<const uint8_t> bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}
/// Copies the first `count` numbers of a buffer and waits for them.
template <class T>
std::vector<T> downloaded(const cuda::DeviceBuffer& buffer, uint64_t count,
                          const cuda::Stream& stream) {
  std::vector<T> values(count);
  buffer.download({reinterpret_cast<uint8_t*>(values.data()), count * sizeof(T)}, stream);
  return values;
}
template <class T>
T* pointer(const cuda::DeviceBuffer& buffer) {
  return reinterpret_cast<T*>(buffer.address());
}

} // namespace sparsertc::lu
