// Square patterns for the tests of sparse LU.
#pragma once

#include "compiler/pattern/pattern.h"
#include "tests/support/random_sparse.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sparsertc::test {

/// The n x n pattern with these entries (in any order, doubles allowed).
Pattern pattern_of(uint32_t size, std::vector<std::pair<uint32_t, uint32_t>> entries);

/// n x n, `per_row` entries a row on average, the diagonal with the given probability.
Pattern random_square(Random& random, uint32_t size, double per_row, double diagonal = 1);

/// The grid of width x height x depth points, each with its neighbours in the directions of the
/// axes, unsymmetric: the upwind neighbours are missing with the given probability.
Pattern random_grid(Random& random, uint32_t width, uint32_t height, double missing,
                    uint32_t depth = 1);

struct NamedPattern {
  std::string name;
  Pattern pattern;
};
/// The shapes that break solvers: empty, one, diagonal, dense, arrows both ways, a chain,
/// triangles, blocks, an empty row and column, no diagonal.
std::vector<NamedPattern> hostile_squares(uint32_t chain);

} // namespace sparsertc::test
