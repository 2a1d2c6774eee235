// Register numbers in the order of assignment, so that printed code needs no declarations.
#pragma once

#include "ir/module.h"

namespace sparsertc {

/// Numbers the registers of a host function after its parameters in the order in which operations
/// first assign them; registers that nothing assigns or reads go, as do unused operand lists. A
/// function with tuples stays as it is.
void compact_registers(ir::Function& function);

} // namespace sparsertc
