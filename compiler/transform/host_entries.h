// Sequential host code as kernels of one thread, so that what compiles kernels for the CPU compiles
// it, too.
#pragma once

#include "ir/module.h"

#include <map>
#include <string>

namespace sparsertc {

struct HostEntries {
  /// The kernels and funcs of the module, the converted functions, and nothing else that has code.
  /// Pointers are called `device` throughout: on the CPU that is the same memory.
  ir::Module module;
  /// The kernel's name, by number of the host function in the module that was given.
  std::map<uint32_t, std::string> names;
};

/// Converts every host function that, with all that it calls, has no program-level operation. The
/// module is verified and placed.
HostEntries make_host_entries(const ir::Module& module);

} // namespace sparsertc
