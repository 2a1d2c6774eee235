// Newton's method on the GPU as a program whose buffers have their places.
#pragma once

#include "ir/module.h"
#include "ir/newton_layout.h"

namespace sparsertc {

/// lower_newton_program (compiler/lower/newton_program.h) and the pass `place`.
ir::Module newton_program(const NewtonLayout& layout, bool always_new);

} // namespace sparsertc
