// Solving to the accuracy of the data: iterative refinement with residuals in double precision.
#pragma once

#include "runtime/lu/factors.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sparsertc::lu {

/// A as the caller has it: n x n, compressed rows. V is double or std::complex<double>.
template <class V>
struct MatrixView {
  uint32_t size = 0;
  std::span<const uint64_t> row_offset;
  std::span<const uint32_t> column_index;
  std::span<const V> values;
};

/// The pattern of A as the caller has it: compressed rows.
struct MatrixPattern {
  std::vector<uint64_t> row_offset = {0};
  std::vector<uint32_t> column_index;
};
/// Of the matrix that the tables are for.
MatrixPattern pattern_of(const LuTables& tables);

/// r = b - A x, or b - A^T x.
template <class V>
void residual(const MatrixView<V>& a, std::span<const V> b, std::span<const V> x, std::span<V> r,
              bool transposed = false);

/// norm(b - A x) / (norm(A) norm(x) + norm(b)) in the infinity norm; 0 where the numerator is 0,
/// NaN where x or b is not finite.
template <class V>
double relative_residual(const MatrixView<V>& a, std::span<const V> b, std::span<const V> x,
                         bool transposed = false);

struct RefineOptions {
  unsigned maximum_steps = 10;
  /// A step that does not make the backward error at least this much smaller is the last one.
  double slowest = 0.5;
  /// Refinement ends when the componentwise backward error is at most this; 0: the unit roundoff of
  /// the solution's type.
  double target = 0;
};

struct RefineResult {
  /// Corrections that were kept.
  unsigned steps = 0;
  /// The componentwise backward error: the least e such that (A + E) x = b + f with |E| <= e |A|
  /// and |f| <= e |b|, where rows that vanish in |A| |x| + |b| are measured by norms (Arioli,
  /// Demmel and Duff, Solving sparse linear systems with sparse backward error, SIAM J. Matrix
  /// Anal. Appl. 10, 1989).
  double backward_error = 0;
  /// relative_residual of the solution.
  double residual = 0;
};

/// Solves A x = b, or A^T x = b, with the factors of A (or of a matrix near it) and refines x. The
/// type X of the solution is T or double precision. `b` and `x` may be the same memory where types
/// are.
template <class T, class X>
RefineResult solve_refined(const Solver<T>& factors, const MatrixView<Wide<T>>& a,
                           std::span<const Wide<T>> b, std::span<X> x, bool transposed = false,
                           const RefineOptions& options = {});

} // namespace sparsertc::lu
