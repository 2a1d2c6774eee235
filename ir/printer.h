// Module -> .sir text (ir/README.md has the grammar). The parser reads it back to the same module.
#pragma once

#include "ir/module.h"

#include <string>

namespace sparsertc::ir {

/// The whole module. Names that cannot be written are changed in a fixed way: characters outside
/// [A-Za-z0-9_.$] become '_', and a register whose name begins with a digit or is taken already
/// gets '_' before it, or '_' and its number after it.
std::string print(const Module& module);

/// One operation on one line, without indentation, for messages; works on malformed operations too.
std::string print_op(const Module& module, const Function& function, const Op& op);

/// "%columns" or "%17", as print() writes it.
std::string print_register(const Function& function, Reg reg);

} // namespace sparsertc::ir
