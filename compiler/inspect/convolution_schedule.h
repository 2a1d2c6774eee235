// The decisions about a convolution that SpMM does not have. Internal to the inspector.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

namespace sparsertc {

/// Fills in tight leading dimensions, refuses what cannot be addressed, and turns a convolution
/// that is a product of matrices into that product: one with a single tap and stride 1, of one
/// image (NCHW) or any number of images (NHWC).
void settle_convolution(SpmmSchedule& schedule);

/// Unrolled code of the border: `is_all` where there is no interior.
struct CodeSize {
  bool is_all = false;
  uint64_t multiply_adds = 0, stores = 0;
};
/// Parts the output pixels into interior and border, and says what the border's code takes. Nothing
/// for products of matrices.
CodeSize plan_border(const Pattern& pattern, SpmmSchedule& schedule);

/// Pixels of a line that blocks of the host work along.
uint32_t host_line_length(const SpmmSchedule& schedule);

/// Sets `ranges` and `guarded` from the tile.
void add_ranges(SpmmSchedule& schedule);

} // namespace sparsertc
