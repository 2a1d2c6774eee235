// The packets of ir/lu_dataflow.h: which warp does which tasks, in which order, with how many
// lanes.
#pragma once

#include "ir/lu_dataflow.h"
#include "ir/lu_tables.h"

#include <cstdint>

namespace sparsertc {

struct LuDataflowOptions {
  /// As many streams are made; all must run at once.
  uint32_t warps = 1;
  /// A task gets so many lanes (a power of 2, at most a warp) that none has more products than
  /// this; more than LuDataflow::kProducts take further packets.
  uint32_t products_of_lane = LuDataflow::kProducts;
  /// Of each `block_warps` streams so many get tasks; the others are empty. Fewer warps that wait
  /// look less often.
  uint32_t block_warps = 1;
  uint32_t busy_warps = 1;
};

/// The factorization. UserError where the factors have 2^31 entries or more.
LuDataflow make_factor_dataflow(const LuTables& tables, const LuGather& gather,
                                const LuDataflowOptions& options);

/// Forward and backward substitution, also with the transposed matrix.
LuDataflow make_solve_dataflow(const LuTables& tables, const LuDataflowOptions& options,
                               bool transposed);

/// Bytes of the arrays of packets.
uint64_t dataflow_bytes(const LuDataflow& dataflow);

} // namespace sparsertc
