// How the warps of a block share the factorization of their matrices: subtrees of the elimination
// tree are independent of each other, so each warp has some; then they meet at a barrier, and share
// what is above in the same way, until too little is left to be shared.
#pragma once

#include "ir/lu_tables.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

struct LuBatchShares {
  uint32_t warps = 1;
  /// stages[s][w]: the columns of warp w in stage s, ascending; each column once. Entries of L and
  /// U are between columns of one share or of different stages.
  std::vector<std::vector<std::vector<uint32_t>>> stages;

  /// The weight of the heaviest share of each stage, summed.
  uint64_t longest(const std::vector<uint64_t>& weight) const;
};

/// `weight`: the work of each column. The same input gives the same shares.
LuBatchShares share_lu_batch(const LuTables& tables, const std::vector<uint64_t>& weight,
                             uint32_t warps);

/// Instructions, about, of each column of the factorization, and of each row of both substitutions.
std::vector<uint64_t> lu_batch_factor_weights(const LuTables& tables);
std::vector<uint64_t> lu_batch_solve_weights(const LuTables& tables);

} // namespace sparsertc
