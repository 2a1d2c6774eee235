// The packets of ir/lu_dataflow.h: which warp does which tasks, in which order, with how many
// lanes.
#pragma once

#include "ir/lu_dataflow.h"
#include "ir/lu_tables.h"

#include <cstdint>

namespace sparsertc {

/// The factorization for so many warps, which must all run at once. UserError where the factors
/// have 2^31 entries or more.
LuDataflow make_factor_dataflow(const LuTables& tables, const LuGather& gather, uint32_t warps);

/// Forward and backward substitution, also with the transposed matrix.
LuDataflow make_solve_dataflow(const LuTables& tables, uint32_t warps, bool transposed);

/// Bytes of the arrays of packets.
uint64_t dataflow_bytes(const LuDataflow& dataflow);

} // namespace sparsertc
