// How long a factorization on a GPU should take one way or another, to choose between them. The
// constants are an NVIDIA H200's.
#pragma once

#include "compiler/inspect/lu_right_looking.h"
#include "ir/lu_tables.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sparsertc {

/// By dataflow between entries: a hop for each level, and the products.
double dataflow_us(const LuTables& tables, bool complex);

/// The level of each column by LevelRule::right_looking.
std::vector<uint32_t> right_looking_levels(const LuTables& tables);

/// Columns of a dense tail, and how long the factorization should take with it.
struct LuTailChoice {
  uint32_t columns = 0;
  double us = 0;
};

/// By columns in levels: those before the tail take levels and their products, the tail itself
/// blocks and the products of a dense square. The tail that promises the least time among those
/// that fit, or the one that `options` ask for.
LuTailChoice choose_tail(const LuTables& tables, std::span<const uint32_t> level_of,
                         const LuRightLookingOptions& options);

} // namespace sparsertc
