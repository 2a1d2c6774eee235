// The tables of ir/lu_batch_loop.h for a pattern.
#pragma once

#include "ir/lu_batch_loop.h"
#include "ir/lu_tables.h"

namespace sparsertc {

/// UserError where places do not fit in 31 bits.
LuBatchLoop make_lu_batch_loop(const LuTables& tables);

} // namespace sparsertc
