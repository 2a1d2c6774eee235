// Newton's method as a program of the IR: residual, Jacobian, factorization, solve, step and
// decision are launches and external work; the host decides by four numbers, or the device does
// where the program is recorded.
#pragma once

#include "ir/module.h"
#include "ir/newton_layout.h"

namespace sparsertc {

struct NewtonProgramOptions {
  NewtonLayout layout;
  /// Every step has a new Jacobian; else the decision says whether.
  bool always_new = true;
  /// A residual comes with its Jacobian, in one evaluation; only with always_new.
  bool together = false;
  /// The Jacobian's values are f32.
  bool f32_jacobian = false;
};

/// A module with three host functions (runtime/newton/README.md shows the text):
///
///   @newton  iterates from x; its buffers have no place yet
///   @start   judges x, @step takes one step with a new Jacobian, @update is the step without
///            Jacobian, solve and residual: their arrays are the caller's, in device memory
///
/// External: the kernels of runtime/kernels/newton.cu, and the functions @residual(x, f),
/// @jacobian(x, values), or for both @evaluate(x, f, values); @factor_and_solve(values, f,
/// direction) and, unless always_new, @solve(f, direction).
ir::Module lower_newton_program(const NewtonProgramOptions& options);

} // namespace sparsertc
