// Newton's method on the GPU as a program whose buffers have their places.
#pragma once

#include "compiler/lower/newton_program.h"
#include "ir/module.h"

namespace sparsertc {

/// lower_newton_program and the pass `place`.
ir::Module newton_program(const NewtonProgramOptions& options);

} // namespace sparsertc
