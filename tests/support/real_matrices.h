// The matrices below SPARSERTC_DATA/lu and what their solvers have to reach: the factors within the
// bound of their rounding, residuals like KLU's, and a report for those without a solution.
#pragma once

#include "compiler/inspect/lu_schedule.h"
#include "runtime/lu/scalar.h"
#include "tools/lu_solver.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace sparsertc::test {

struct RealMatrix {
  std::string name;     ///< the file's, to its first dot
  Matrix matrix;        ///< with ones where the file has no values
  std::string singular; ///< what an error has to say of it; empty where it has a solution
  /// What an error has to say of it where factors are in single precision; mostly empty.
  std::string beyond_single;
};

/// Calls `check` with each of up to `largest` rows, in the order of their names, INFO naming it.
/// Without the folder, or without KLU, that is said aloud. Fails where fewer than the given numbers
/// are found.
void for_real_matrices(uint32_t largest, size_t least_regular, size_t least_singular,
                       const std::function<void(const RealMatrix&)>& check);

/// A right-hand side or a solution of ones.
LuVectors ones(uint64_t n);

/// |b - A x| over |A| |x| + |b| in the maximum norm, A or its transpose.
double residual_of(const Matrix& a, const LuVectors& b, const LuVectors& x, bool transposed);

/// The values with their imaginary parts, as T says.
template <class T>
std::vector<T> values_of(const Matrix& a);

/// The worst entry of B - L' D U over the bound of its rounding, B the permuted and scaled matrix
/// of `values`; `factors` as lu::Factors has them. Pivots that were replaced are left out and
/// counted.
template <class T>
double factor_error(const LuTables& tables, std::span<const T> factors,
                    const std::vector<T>& values, uint64_t& replaced);

/// Solves with A and its transpose, by factors in double and in single precision: the residual is
/// at most 10 times KLU's, or n epsilon. `options` are the solver's; precision and transposition
/// are set here.
void check_solves(const RealMatrix& a, LuSolverOptions options);

/// The solver refuses the matrix with `reason`, a row and a column.
void check_singular(const RealMatrix& a, const LuSolverOptions& options);

} // namespace sparsertc::test
