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

/// An estimate of the condition number, in the 1-norm, of the scaled matrix R A C of `factors`; 1
/// for n = 0. With `refined` each solve is refined against A: dearer, but then the number is A's
/// and not that of the matrix with replaced pivots.
template <class T>
double estimate_condition(const Factors<T>& factors, const MatrixView<Wide<T>>& a, bool refined,
                          const RefineOptions& options = {});

} // namespace sparsertc::lu
