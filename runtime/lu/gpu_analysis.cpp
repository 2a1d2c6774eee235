#include "runtime/lu/gpu_analysis.h"

#include "ir/error.h"
#include "runtime/kernels/fill2.cuh"

#include <fmt/format.h>

namespace sparsertc::lu {

using kernels::kScanThreads;
using kernels::kScanTile;

GpuAnalysisKernels::GpuAnalysisKernels(const cuda::Context& context, std::span<const uint8_t> image)
    : context_(context), module_(context, image) {
  fill2_count = module_.kernel("sparsertc_fill2_count");
  fill2_write = module_.kernel("sparsertc_fill2_write");
  scan_sum = module_.kernel("sparsertc_scan_sum");
  scan_tiles = module_.kernel("sparsertc_scan_tiles");
  scan_offsets = module_.kernel("sparsertc_scan_offsets");
  levels_lower = module_.kernel("sparsertc_levels_lower");
  levels_count = module_.kernel("sparsertc_levels_count");
  levels_transpose = module_.kernel("sparsertc_levels_transpose");
  levels_ready = module_.kernel("sparsertc_levels_ready");
  levels_kahn = module_.kernel("sparsertc_levels_kahn");
  levels_maximum = module_.kernel("sparsertc_levels_maximum");
  radix_count = module_.kernel("sparsertc_radix_count");
  radix_scatter = module_.kernel("sparsertc_radix_scatter");
  levels_offset = module_.kernel("sparsertc_levels_offset");
}

void GpuAnalysisKernels::launch_with(const cuda::Kernel& kernel, uint64_t blocks, uint32_t threads,
                                     void* arguments, const cuda::Stream& stream,
                                     bool cooperative) const {
  void* parameters[] = {arguments}; // the driver only reads
  const auto doing = [&] { return fmt::format("launching the kernel {}", kernel.name); };
  const auto grid = static_cast<uint32_t>(blocks);
  const cuda::DriverTable& api = context_.api();
  if (cooperative)
    cuda::check(api.cuLaunchCooperativeKernel(kernel.handle, grid, 1, 1, threads, 1, 1, 0,
                                              stream.handle(), parameters),
                "cuLaunchCooperativeKernel", doing);
  else
    cuda::check(api.cuLaunchKernel(kernel.handle, grid, 1, 1, threads, 1, 1, 0, stream.handle(),
                                   parameters, nullptr),
                "cuLaunchKernel", doing);
}

uint64_t GpuAnalysisKernels::scan_bytes(uint64_t size) {
  return ((size + kScanTile - 1) / kScanTile + 1) * sizeof(uint64_t);
}

void GpuAnalysisKernels::scan(uint32_t size, cuda::DeviceAddress length, cuda::DeviceAddress offset,
                              cuda::DeviceAddress tile_sums, const cuda::Stream& stream) const {
  const kernels::ScanArguments arguments{size, reinterpret_cast<const uint32_t*>(length),
                                         reinterpret_cast<uint64_t*>(offset),
                                         reinterpret_cast<uint64_t*>(tile_sums)};
  const uint64_t tiles = (uint64_t{size} + kScanTile - 1) / kScanTile;
  if (tiles > 0)
    launch(scan_sum, tiles, kScanThreads, arguments, stream);
  launch(scan_tiles, 1, kScanThreads, arguments, stream);
  if (tiles > 0)
    launch(scan_offsets, tiles, kScanThreads, arguments, stream);
}

uint64_t memory_budget(const cuda::Context& context, uint64_t limit) {
  const uint64_t free = context.free_memory();
  if (limit != 0 && limit < free)
    return limit;
  return free - free / 16;
}

void check_analysis_size(uint64_t size) {
  if (size > kLargestGpuAnalysis)
    throw UserError(fmt::format("{} rows are too many to be analysed on a GPU", size),
                    fmt::format("at most {}; the CPU takes more", kLargestGpuAnalysis));
}

} // namespace sparsertc::lu
