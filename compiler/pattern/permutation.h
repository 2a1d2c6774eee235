// Permutations, and patterns with their rows and columns in another order.
#pragma once

#include "compiler/pattern/pattern.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// p[new] = old, for every permutation in the project: what stands at place k of the new order was
/// number p[k] of the old one.
using Permutation = std::vector<uint32_t>;

Permutation identity_permutation(uint32_t size);

/// Whether p holds each of 0 to size - 1 once.
bool is_permutation(const Permutation& p, uint32_t size);

/// inverse(p)[old] = new.
Permutation inverse(const Permutation& p);

/// The order that arises when `first` is applied and its result is ordered by `second`:
/// compose(first, second)[k] = first[second[k]]. Both have one size.
Permutation compose(const Permutation& first, const Permutation& second);

/// The transposed pattern. Where `source` is given, entry k of the result was entry (*source)[k].
Pattern transpose(const Pattern& pattern, std::vector<uint64_t>* source = nullptr);

/// The pattern whose row i is the old row rows[i] and whose column j is the old column columns[j].
/// `source` as above.
Pattern permute(const Pattern& pattern, const Permutation& rows, const Permutation& columns,
                std::vector<uint64_t>* source = nullptr);

/// The pattern of A + A^T of a square A, without the diagonal.
Pattern symmetrized_without_diagonal(const Pattern& pattern);

} // namespace sparsertc
