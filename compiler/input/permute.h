// Matrices with their rows and columns in another order; values go with their entries.
#pragma once

#include "compiler/input/matrix.h"
#include "compiler/pattern/permutation.h"

namespace sparsertc {

/// The transposed matrix (complex values are not conjugated).
Matrix transpose(const Matrix& matrix);

/// The matrix whose row i is the old row rows[i] and whose column j is the old column columns[j].
Matrix permute(const Matrix& matrix, const Permutation& rows, const Permutation& columns);

} // namespace sparsertc
