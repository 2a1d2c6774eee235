// Levels: which columns of a factorization, or rows of a substitution, may be worked on at once.
#pragma once

#include "compiler/inspect/lu_symbolic.h"
#include "ir/lu_tables.h"

#include <cstdint>

namespace sparsertc {

/// What a column of the factorization waits for.
enum class LevelRule : uint8_t {
  /// Left-looking gather: column j reads column k where U(k,j) != 0 and L(:,k) is not empty.
  gather,
  /// Right-looking with updates of later columns: column j waits for k also where L(j,k) != 0,
  /// because
  /// k still writes to row j of the columns that j updates from.
  right_looking,
};

/// Topological layers by Kahn's algorithm: a column stands one level after the last that it waits
/// for.
LuLevels factor_levels(const LuPattern& rows, const LuColumns& columns, LevelRule rule);
LuLevels factor_levels(const LuTables& tables, LevelRule rule);

/// Levels of the substitutions (ir/lu_tables.h): rows i, each after the k that it reads.
LuLevels forward_levels(const LuColumns& columns);
LuLevels backward_levels(const LuColumns& columns);
/// Of those with the transposed matrix.
LuLevels transposed_forward_levels(const LuPattern& rows);
LuLevels transposed_backward_levels(const LuPattern& rows);

} // namespace sparsertc
