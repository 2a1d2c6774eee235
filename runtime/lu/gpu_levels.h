// Levels on the GPU: Kahn's algorithm in one cooperative launch (runtime/kernels/kahn.cu).
#pragma once

#include "ir/lu_tables.h"
#include "runtime/lu/gpu_analysis.h"

#include <cstdint>
#include <span>

namespace sparsertc::lu {

struct GpuLevelsOptions {
  /// What a column waits for: for a left-looking gather column j waits for k where U(k,j) != 0 and
  /// L(:,k) is not empty; looking right also where L(j,k) != 0 (compiler/inspect/lu_levels.h).
  bool right_looking = false;
  /// Of device memory, in bytes, beside a pattern that is there already; 0: what is free.
  uint64_t memory_limit = 0;
};

struct GpuLevelsReport {
  uint64_t levels = 0;
  uint32_t parts = 0; ///< in which the pattern came to the device; 1: it was there at once
  uint64_t peak_bytes = 0;
  double upload_us = 0; ///< host to device, with the search for columns of L without entries
  double kahn_us = 0;   ///< the algorithm with the counting of what is waited for
  double sort_us = 0;   ///< by level, with the copy to the host
};

/// L+U in compressed rows in host memory.
struct HostRowsView {
  std::span<const uint64_t> row_offset;
  std::span<const uint64_t> diagonal;
  std::span<const uint32_t> columns;
};

/// The levels of a pattern in host memory, which goes to the device in as many parts as its memory
/// demands. RuntimeError where it does not suffice for one row.
LuLevels gpu_levels(const GpuAnalysisKernels& kernels, const HostRowsView& rows,
                    const GpuLevelsOptions& options = {}, GpuLevelsReport* report = nullptr);

/// Of a pattern in device memory.
LuLevels gpu_levels(const GpuAnalysisKernels& kernels, const DeviceRows& rows,
                    const GpuLevelsOptions& options = {}, GpuLevelsReport* report = nullptr);

} // namespace sparsertc::lu
