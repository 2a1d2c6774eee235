// The tables of a sparse LU factorization (ir/lu_tables.h) from a matrix's pattern, its order and
// its scaling.
#pragma once

#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_symbolic.h"
#include "compiler/pattern/permutation.h"
#include "ir/lu_tables.h"
#include "runtime/host/task_pool.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace sparsertc {

/// How A is put before it is factorized: B = P R A C Q.
struct LuPlacement {
  Permutation rows;    ///< row i of B is row rows[i] of A
  Permutation columns; ///< column j of B is column columns[j] of A
  /// R and C by the rows and columns of A; empty for ones.
  std::span<const double> row_scale;
  std::span<const double> column_scale;
};

/// Who finds the pattern of the factors and their levels, where it is not this library: a GPU, say.
/// What they find must be the same; an empty one is not asked.
struct LuFinders {
  std::function<LuPattern(const Pattern& placed)> pattern;
  std::function<LuLevels(const LuPattern&, const LuColumns&, LevelRule)> levels;
};

/// All tables but the gather's. `a` is n x n; UserError where it is not.
LuTables make_lu_tables(const Pattern& a, const LuPlacement& placement, TaskPool* pool = nullptr,
                        const LuFinders& finders = {});

/// Multiply-adds of the factorization: the pairs of the gather.
uint64_t multiply_adds(const LuTables& tables);

/// Bytes of the gather's tables for so many slots and pairs.
uint64_t gather_bytes(uint64_t slots, uint64_t pairs);

/// The gather, or nothing where its tables would take more than `maximum_bytes` or the factors have
/// 2^32 slots or more: the column tables then have to do.
std::optional<LuGather> make_lu_gather(const LuTables& tables, uint64_t maximum_bytes,
                                       TaskPool* pool = nullptr);

} // namespace sparsertc
