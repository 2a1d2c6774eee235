// Large square patterns for the benchmarks of sparse LU: grids in an order that is known
// beforehand.
#pragma once

#include "compiler/pattern/pattern.h"

#include <cstdint>

namespace sparsertc::test {

/// The pattern of test::random_grid's kind (each point with its neighbours along the axes; of those
/// in the positive directions each is missing with the given probability), its points in the order
/// of geometric nested dissection: halves first, the plane between them last. Takes time
/// proportional to the points, and no library for the order. The same seed gives the same pattern.
Pattern dissected_grid(uint64_t seed, uint32_t width, uint32_t height, uint32_t depth,
                       double missing);

} // namespace sparsertc::test
