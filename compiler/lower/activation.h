// Activation functions, expanded into operations that every back end rounds alike.
#pragma once

#include "compiler/inspect/spmm_problem.h"
#include "ir/builder.h"

namespace sparsertc {

/// Appends activation(x) for an f32 or f64 register and returns the result.
///
/// relu keeps NaN and the sign of zero. gelu (the erf form, x * Phi(x)) and silu (x * sigmoid(x))
/// return their limits at infinities: -0 at -inf, +inf at +inf. Error, beside that of x itself, in
/// units of u * |x| with u the unit roundoff of the type: see activation_error_units().
ir::Reg write_activation(ir::Builder& builder, ir::Scalar type, Activation activation, ir::Reg x);

/// c such that |computed(x) - activation(x)| <= c * u * |x| for every finite x, apart from
/// underflow.
double activation_error_units(Activation activation);
/// Least Lipschitz constant bound: |activation(x) - activation(y)| <= c * |x - y|.
double activation_lipschitz(Activation activation);

} // namespace sparsertc
