// Symbolic factorization on the GPU, out of core: the pattern of L+U by fill2, many groups of rows
// at once (runtime/kernels/fill2.cu).
//
//   A --> count: the length of each row, --> scan --> write: the columns of each row --> L+U
//         its entries kept where there              in chunks that the device has room for
//         is room for them                          rows that were not kept are searched again
//
// A group of rows in flight takes memory of n vertices, so at most free memory over that many are
// searched at once. Rows differ in how many vertices they visit, the late ones visit most: in the
// second pass, which knows how many, the rows from the first group on that visits more than half of
// the maximum get larger workspaces, and fewer of them, than the rows before.
#pragma once

#include "runtime/lu/gpu_analysis.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace sparsertc::lu {

struct GpuSymbolicOptions {
  /// Of device memory, in bytes; 0: what is free.
  uint64_t memory_limit = 0;
  /// The pattern comes to lie in host memory even where the device could hold it.
  bool to_host = false;
  /// Entries found by the first pass are kept for the second, as memory allows. Off: all rows are
  /// searched twice.
  bool keep_entries = true;
  /// Of a block, a multiple of 32; 0: as measured to be best.
  uint32_t threads = 0;
};

struct GpuSymbolicReport {
  uint64_t entries = 0; ///< of L+U
  bool on_device = false;
  uint64_t budget_bytes = 0;
  /// The largest amount of device memory held at once.
  uint64_t peak_bytes = 0;
  uint32_t groups = 0;
  uint32_t groups_kept = 0;  ///< whose entries the second pass had at hand
  uint64_t kept_entries = 0; ///< in the form of the store: shared by the rows of a group
  /// Vertices that the searches of a group visit: at most, and of all groups together.
  uint64_t largest_frontier = 0;
  uint64_t visits = 0;
  /// Rows in flight: in the first pass; in the second where rows are searched again, before and
  /// from `split_row` on.
  uint64_t rows_in_flight = 0;
  uint64_t early_rows_in_flight = 0;
  uint64_t late_rows_in_flight = 0;
  uint32_t split_row = 0;
  /// Launches of the second pass, and the most entries that one writes.
  uint32_t chunks = 0;
  uint64_t chunk_entries = 0;

  double upload_us = 0;
  double count_us = 0; ///< with the scan
  double write_us = 0; ///< with the copies to the host where the pattern lies there
};

struct GpuSymbolic {
  uint32_t size = 0;
  /// One of the two.
  std::unique_ptr<DeviceRows> device;
  std::optional<HostRows> host;
  GpuSymbolicReport report;

  /// The pattern in host memory: copied there, or moved.
  HostRows take_host_rows(const cuda::Context& context);
};

/// The pattern of L+U of the n x n matrix with these compressed rows, columns ascending; the
/// diagonal always belongs to it. The same as compiler/inspect's symbolic_lu, whatever the limits.
/// RuntimeError where the memory does not suffice for one group of rows, or one row of L+U.
GpuSymbolic gpu_symbolic_lu(const GpuAnalysisKernels& kernels, std::span<const uint64_t> row_offset,
                            std::span<const uint32_t> column_index,
                            const GpuSymbolicOptions& options = {});

} // namespace sparsertc::lu
