// IR -> PTX text, printed directly. The fast road: no optimiser, one line an operation.
#pragma once

#include "compiler/emit/target.h"
#include "ir/module.h"

#include <cstddef>
#include <string>
#include <vector>

namespace sparsertc {

struct PtxOptions {
  bool annotate = false; ///< operations' origins as comments
  /// Units: device functions share one up to so many operations.
  size_t operations_of_unit = 1500;
};

/// One self-contained file: symbols, a `.func` per device function, the entries; host functions are
/// left out. The module must be verified. Throws UserError when the target is the host, when a name
/// is no PTX identifier, or when shared memory is more than a block of the target may have.
std::string emit_ptx(const ir::Module& module, const Target& target,
                     const PtxOptions& options = {});

/// The same code as separate translation units to be assembled in parallel (`ptxas -c`) and linked:
/// the entries, the symbols that several units use and `.extern` declarations in the first, device
/// functions (`.visible .func`) with the symbols that only they use in the others; short functions
/// share a unit.
std::vector<std::string> emit_ptx_units(const ir::Module& module, const Target& target,
                                        const PtxOptions& options = {});

/// Bytes of dynamic shared memory that a launch of any kernel of this module must ask for. 0 where
/// the module's shared symbols fit the 48 KB that a kernel may declare; else all of them lie in
/// dynamic shared memory, one after the other in the module's order.
uint32_t ptx_dynamic_shared_bytes(const ir::Module& module);

} // namespace sparsertc
