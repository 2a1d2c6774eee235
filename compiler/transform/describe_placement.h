// Says of placed programs where each buffer lives, what is copied, and how much memory that takes.
#pragma once

#include "ir/module.h"

#include <string>

namespace sparsertc {

/// A text for people, one paragraph for each host function that allocates or copies. Operations are
/// numbered from 1 as the function is printed. Numbers that are not known before the program runs
/// are those of placement_costs, and marked with '?'. Throws UserError where a buffer has no place
/// yet.
std::string describe_placement(const ir::Module& module);

} // namespace sparsertc
