// Operations on values, carried out on the host: what the IR says they mean, one at a time.
#pragma once

#include "ir/module.h"

#include <cstdint>
#include <span>

namespace sparsertc::program {

/// The bits of a register: integers sign-extended to 64 bits, predicates 0 or 1, floats in the low
/// bits, the rest 0.
using Bits = uint64_t;

/// The bits of an element in memory, and back.
Bits load_element(ir::Scalar type, const void* address);
void store_element(ir::Scalar type, void* address, Bits value);

/// The result of an operation of form `value`. `source`: the type of operand 0, which `convert` and
/// `bitcast` need. UserError where the operation is none that host code has here (arithmetic on
/// f16 and bf16).
Bits evaluate(const ir::Op& op, ir::Type source, std::span<const Bits, 3> operands);

} // namespace sparsertc::program
