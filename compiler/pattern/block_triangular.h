// Block triangular form.
#pragma once

#include "compiler/pattern/permutation.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// A symmetric permutation of a square pattern into blocks without entries below them.
struct BlockTriangularForm {
  /// Of rows and columns alike. Inside a block the old order is kept.
  Permutation order;
  /// Block b stands at places block_begin[b] to block_begin[b + 1] - 1; there are blocks + 1.
  std::vector<uint32_t> block_begin = {0};

  uint32_t blocks() const { return static_cast<uint32_t>(block_begin.size() - 1); }
  /// The number of rows of the largest block; 0 where there is none.
  uint32_t largest_block() const;
};

/// The finest block upper triangular form that symmetric permutations reach: its blocks are the
/// strongly connected components of the graph with an edge i -> j for each entry (i, j) (Tarjan,
/// "Depth-first search and linear graph algorithms", 1972). With a zero-free diagonal, which a
/// perfect matching gives, no permutation reaches a finer one (Duff and Reid, 1978).
BlockTriangularForm block_triangular_form(const Pattern& square);

} // namespace sparsertc
