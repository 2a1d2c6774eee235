// What a launcher must know about a compiled kernel: the same facts stand in the JSON manifest
// beside an artefact and in the header comment of PTX.
#pragma once

#include "compiler/inspect/spmm_schedule.h"
#include "ir/type.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

/// What a kernel parameter means.
enum class ParameterRole : uint8_t { b, c, bias, residual, columns, ldb, ldc };

struct KernelParameter {
  std::string name;
  ir::Type type; ///< pointer (8 bytes) or i32 / i64 by value
  ParameterRole role = ParameterRole::b;
};

struct KernelManifest {
  std::string entry; ///< begins with "sparsertc_"
  std::vector<KernelParameter> parameters;
  uint32_t block[3] = {1, 1, 1};
  /// grid.x is the sum of the ranges' blocks, grid.y = grid_rows, grid.z = 1.
  struct Range {
    GridRange grid;
    std::string_view code; ///< "columns", or of convolutions "interior", "border"
  };
  std::vector<Range> ranges;
  uint32_t grid_rows = 0;
  /// Blocks side by side along y that run together; divides grid_rows.
  uint32_t cluster = 1;
  /// For n columns, of a convolution n images.
  uint64_t grid_x(uint64_t n) const {
    uint64_t blocks = 0;
    for (const Range& range : ranges)
      blocks += range.grid.blocks(n);
    return blocks;
  }
  uint32_t dynamic_shared_bytes = 0;
  /// B and C must be aligned to this many bytes (vector accesses).
  uint32_t pointer_alignment = 4;
};

std::string_view name_of(ParameterRole role);

} // namespace sparsertc
