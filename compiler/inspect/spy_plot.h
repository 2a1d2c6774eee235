// A picture of a pattern and the tiles of its schedule.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

#include <string>

namespace sparsertc {

/// An SVG document: on the left the matrix in its own order of rows, with the tile of each row as a
/// coloured mark at the margin; on the right the rows in tile order, each tile a coloured band.
/// Large matrices are binned into at most 600 x 600 cells whose shade says how full they are. The
/// same schedule gives the same bytes.
std::string spy_plot_svg(const Pattern& pattern, const SpmmSchedule& schedule,
                         const std::string& title);

} // namespace sparsertc
