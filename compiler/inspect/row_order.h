// Which rows share a tile of unrolled code. A tile loads a row of B once, however many of its rows
// of A use it, so that rows with similar columns in one tile mean fewer loads. Where a row lies
// among the tiles costs nothing when the code runs: its sums are stored at the row's own offset.
//
// The work of a tile is its entries and its distinct columns, the multiply-adds and loads of its
// code.
#pragma once

#include "compiler/input/matrix.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// Exchanges rows between tiles, two at a time, while that makes the sum over all tiles of the
/// columns that a tile's rows use smaller (in the manner of Kernighan and Lin, "An efficient
/// heuristic procedure for partitioning graphs", Bell System Technical Journal 1970, for many parts
/// and without uphill steps).
///
/// Tile t has the rows row_order[tile_begin[t] .. tile_begin[t + 1]), at most 65535, before and
/// after as many; within a tile they ascend afterwards. No tile gets more work than the heaviest
/// one that it exchanges with has before, or, where that is more, 1.02 times the mean. Time is
/// bounded (about a second) by ending early, memory by exchanging among runs of tiles, and not at
/// all with more than 2^24 columns. The same input gives the same order.
void bring_similar_rows_together(const Pattern& pattern, const std::vector<uint32_t>& tile_begin,
                                 std::vector<uint32_t>& row_order);

} // namespace sparsertc
