// Jacobians compressed by a colouring, and how their entries are found again.
#pragma once

#include "compiler/pattern/colouring.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// The compressed Jacobian of J (rows x columns) is one array of two parts, each row-major:
///
///   column_colours x rows     element (c, i) is (J * s)_i, s the sum of the unit vectors of the
///                             columns of colour c + 1
///   row_colours x columns     element (c, j) is (s^T * J)_j, s the sum of the unit vectors of the
///                             rows of colour c + 1
///
/// The number of its elements.
uint64_t compressed_size(const Pattern& pattern, const Colouring& colouring);

/// Direct recovery, nothing but a gather: entry k of the pattern is compressed[source[k]]. Where
/// both sides give an entry it is taken from the columns. InternalError for a colouring in which
/// find_conflict finds one.
std::vector<uint64_t> decompression_source(const Pattern& pattern, const Colouring& colouring);

} // namespace sparsertc
