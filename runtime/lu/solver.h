// What refinement and the estimates of the condition need of a factorization, wherever it is.
#pragma once

#include "ir/lu_tables.h"
#include "runtime/lu/scalar.h"

#include <cstdint>
#include <span>

namespace sparsertc::lu {

/// Solves with factors of type T.
template <class T>
class Solver {
public:
  virtual ~Solver() = default;

  /// Solves A X = B, or A^T X = B (not conjugated), for `right_sides` columns of n numbers, one
  /// behind the other, scaled before they are rounded to T: they may be smaller or larger than T
  /// can hold. `b` and `x` may be the same memory.
  virtual void solve_rounded(std::span<const Wide<T>> b, std::span<Wide<T>> x,
                             uint64_t right_sides = 1, bool transposed = false) const = 0;
  virtual const LuTables& tables() const = 0;
};

} // namespace sparsertc::lu
