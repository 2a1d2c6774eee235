// Modules that the tests of the PTX printer share.
#pragma once

#include "ir/module.h"

#include <string>

namespace sparsertc::testing {

/// References to other functions of the module are invalid afterwards.
ir::Function& add_function(ir::Module& module, const std::string& name, ir::FunctionKind kind);

/// An array of `count` elements, filled with some bytes unless it is shared.
void add_symbol(ir::Module& module, const std::string& name, ir::Scalar element, uint64_t count,
                ir::Space space = ir::Space::device);

/// A kernel that dispatches to tile functions, in the shape of an SpMM. Its symbols: `indices`
/// (used by the kernel), `values` (by tile_1), `bias` (constant; by tiles 0 to 2), `partial`
/// (shared; by the kernel and tiles 0 to 2).
ir::Module spmm_shaped(uint32_t tiles, uint32_t terms);

/// Every operation of kernels on every type, with and without immediates; well formed.
ir::Module every_operation();

} // namespace sparsertc::testing
