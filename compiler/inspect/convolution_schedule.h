// The decisions about a convolution that SpMM does not have. Internal to the inspector.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

namespace sparsertc {

/// Fills in tight leading dimensions, refuses what cannot be addressed, and turns a convolution
/// that is a product of matrices into that product: one with a single tap and stride 1, of one
/// image (NCHW) or any number of images (NHWC).
void settle_convolution(SpmmSchedule& schedule);

/// Whether there are output pixels of both kinds.
bool has_interior_and_border(const Convolution& convolution);
/// Whether code of its own for the interior is worth its while beside code for the border.
bool interior_pays(const SpmmSchedule& schedule);

/// Parts the output pixels into interior and border, and says in the tile how; `border` counts
/// where there are pixels of both kinds. Nothing for products of matrices.
void plan_border(const Pattern& pattern, BorderCode border, SpmmSchedule& schedule);

/// Unrolled code with `vec` columns a thread of the interior.
struct CodeSize {
  uint64_t multiply_adds = 0, stores = 0;
};
CodeSize unrolled_size(const Pattern& pattern, const SpmmSchedule& schedule, uint32_t vec);

/// Pixels of a line that blocks of the host work along.
uint32_t host_line_length(const SpmmSchedule& schedule);

/// Sets `ranges` and `guarded` from the tile.
void add_ranges(SpmmSchedule& schedule);

} // namespace sparsertc
