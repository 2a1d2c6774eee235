// Which columns of a factorization become straight-line code, which entries are gathered by tables,
// and what is launched together (ir/lu_emitted.h).
#pragma once

#include "ir/lu_emitted.h"
#include "ir/lu_tables.h"

#include <cstdint>

namespace sparsertc {

struct LuEmittedOptions {
  /// Multiply-adds in straight-line code, of all columns together: assembling takes time for each.
  uint64_t most_multiply_adds = 300000;
  /// Instructions of one column that subtract products, up to 32 each: longer columns are loops.
  uint32_t most_steps = 256;
  /// Products of such an instruction on average, at least: where it has fewer, a lane for each
  /// entry is better.
  uint32_t least_lanes = 4;
  /// Products of an entry that one lane adds up by itself.
  uint32_t lane_products = 8;
  uint32_t number_bytes = 8;
};

/// UserError where the factors have 2^31 entries or more, or more than 2^32 multiply-adds.
LuEmitted make_lu_emitted(const LuTables& tables, const LuEmittedOptions& options = {});

} // namespace sparsertc
