// Where the values of L'+U lie on the GPU, for the kernels of the dataflow.
//
// A warp loads 32 values at a time, and each sector of 32 bytes that they lie in is a request of
// its own. Long sums go along a row of L' and a column of U; many entries that wait for the same
// pivot read a column of L' or a row of U. So each entry is stored twice:
//
//     pivots | L' and U by columns | L' and U by rows | partial sums
//
// and each load of a packet takes the copy in which its values lie in fewer sectors.
#pragma once

#include "ir/lu_dataflow.h"
#include "ir/lu_tables.h"

#include <cstdint>
#include <vector>

namespace sparsertc::lu {

struct GpuPlaces {
  /// By slot; the same for pivots.
  std::vector<uint32_t> by_column, by_row;
  /// Behind all of them.
  uint64_t end = 0;
};

/// `value_bytes` of a value. UserError where there are 2^31 places or more.
GpuPlaces make_gpu_places(const LuTables& tables, uint32_t value_bytes);

/// The packets with places instead of slots. In a task's last word is the second place of its
/// result, kNoWord for a partial sum, whose places begin at places.end.
LuDataflow place_factor(LuDataflow flow, const GpuPlaces& places, uint32_t value_bytes);

/// The packets of a solve, places in the words that are slots.
LuDataflow place_solve(LuDataflow flow, const GpuPlaces& places);

} // namespace sparsertc::lu
