// Rounding to the types that files store.
#pragma once

#include "compiler/input/matrix.h"
#include "ir/float_bits.h"

namespace sparsertc {

/// The value after a round trip through `type`: f16, bf16, f32 or f64 (which changes nothing).
/// Any other type is an InternalError.
double round_to(double value, StoredType type);

} // namespace sparsertc
