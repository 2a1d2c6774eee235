// A picture of a factorization.
#pragma once

#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_symbolic.h"

#include <string>

namespace sparsertc {

/// An SVG document: on the left L + U, each entry in the colour of its column's level, fill paler
/// than the entries of the permuted matrix `placed`; on the right the number of columns of each
/// level on a logarithmic scale, in the same colours. Large matrices are binned into at most 600 x
/// 600 cells of the mean level of their entries; many levels into at most 600 bars of their mean
/// width.
std::string lu_plot_svg(const LuPattern& rows, const Pattern& placed, const LuLevels& levels,
                        const std::string& title);

} // namespace sparsertc
