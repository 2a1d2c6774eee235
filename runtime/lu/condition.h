// How near a matrix is to a singular one, from a few solves.
#pragma once

#include "runtime/lu/refine.h"

#include <cstdint>
#include <functional>
#include <span>

namespace sparsertc::lu {

/// A lower bound, mostly within a factor of three, of the 1-norm of a linear operator on n numbers
/// that can only be applied: `apply` and `apply_adjoint` work in place (Higham, FORTRAN codes for
/// estimating the one-norm of a real or complex matrix, ACM Trans. Math. Softw. 14, 1988, after
/// Hager). NaN where what they give is not finite.
template <class V>
double estimate_one_norm(uint32_t n, const std::function<void(std::span<V>)>& apply,
                         const std::function<void(std::span<V>)>& apply_adjoint);

/// An estimate of the condition number, in the 1-norm, of the scaled matrix R A C that was
/// factorized (of the one nearby where pivots were replaced); 1 for n = 0.
template <class T>
double estimate_condition(const Solver<T>& factors, const MatrixView<Wide<T>>& a);

/// Whether A is singular as far as these factors can tell. Without replaced pivots: if 1 is small
/// beside the unit roundoff times the condition. With them (or with factors in single precision of
/// a matrix that is worse than those can see): if refinement of a solution for a right-hand side
/// drawn at random comes to a stand with a residual that is not small, since the matrix nearby then
/// has an inverse where A has none. `condition` is what estimate_condition gave.
template <class T>
bool is_numerically_singular(const Solver<T>& factors, const MatrixView<Wide<T>>& a,
                             const FactorStatus& status, double condition);

} // namespace sparsertc::lu
