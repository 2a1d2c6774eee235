// The elimination tree of A + A^T and its cut into subtrees that can be worked on independently.
#pragma once

#include "compiler/pattern/pattern.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// No parent, no part.
inline constexpr uint32_t kNoVertex = UINT32_MAX;

/// The parent of each vertex in the elimination tree of A + A^T, kNoVertex for roots (Liu, The role
/// of elimination trees in sparse factorization, SIAM J. Matrix Anal. Appl. 11, 1990). `a` is
/// square.
std::vector<uint32_t> elimination_tree(const Pattern& a);

/// Children before parents, each subtree in one piece: p[new] = old. An order like the present one,
/// in that L and U have the same entries between the same vertices, but kinder to caches. Of the
/// children of a vertex the smaller ones come first.
std::vector<uint32_t> postorder(const std::vector<uint32_t>& parent);

/// Whole subtrees, each a part, and the vertices above them.
struct TreeParts {
  /// Vertices of each part, ascending; large parts first.
  std::vector<std::vector<uint32_t>> parts;
  /// The vertices that are in no part, ascending. All they depend on is in parts or smaller.
  std::vector<uint32_t> top;
};

/// Cuts the tree so that no part has more than the `pieces`-th part of the total weight, unless it
/// is one vertex.
TreeParts cut_tree(const std::vector<uint32_t>& parent, const std::vector<uint64_t>& weight,
                   uint64_t pieces);

} // namespace sparsertc
