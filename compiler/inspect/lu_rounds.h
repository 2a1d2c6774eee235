// The rounds of a small factorization and its solve (ir/lu_rounds.h) for so many workers.
//
// Every number is a sum of terms. In each round the sums on the longest chain of dependences must
// get ready; others are taken as far as there is room beside them, the beginnings of sums, too. The
// terms of a sum stay in order, so that its bits do not depend on the rounds.
#pragma once

#include "ir/lu_rounds.h"
#include "ir/lu_tables.h"

#include <cstdint>
#include <optional>

namespace sparsertc {

/// Nothing where an instance has more than kLuRoundsMostNumbers numbers, or more than
/// kLuRoundsMostPivots - 1 unknowns. The same input gives the same rounds.
std::optional<LuRounds> make_lu_rounds(const LuTables& tables, uint32_t workers);

} // namespace sparsertc
