// The order with no more fill and the fewest levels.
#pragma once

#include "compiler/inspect/lu_symbolic.h"
#include "compiler/pattern/permutation.h"

namespace sparsertc {

/// Among the orders that fill A + A^T in no other places than the present one, an order whose
/// elimination tree is least high (Jess and Kees, "A data structure for parallel L/U
/// decomposition", IEEE Trans. Comput. 31, 1982; Liu, "Reordering sparse matrices for parallel
/// elimination", Parallel Computing 11, 1989, proved it least). `filled` is the symbolic
/// factorization of A + A^T. The result permutes the present places; time is nearly proportional to
/// the entries of `filled`.
Permutation shallow_order(const LuPattern& filled);

} // namespace sparsertc
