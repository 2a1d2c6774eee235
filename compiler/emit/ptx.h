// IR -> PTX text, printed directly. The fast road: no optimiser, one line an operation.
#pragma once

#include "compiler/emit/target.h"
#include "ir/module.h"

#include <string>
#include <vector>

namespace sparsertc {

struct PtxOptions {
  bool annotate = false; ///< operations' origins as comments
};

/// One self-contained file: symbols, a `.func` per device function, the entries. The module must be
/// verified. Throws UserError when an operation does not exist on the target.
std::string emit_ptx(const ir::Module& module, const Target& target,
                     const PtxOptions& options = {});

/// The same code as separate translation units to be assembled in parallel and linked: entries and
/// `.extern` declarations in the first, every device function (`.visible .func`) in its own.
std::vector<std::string> emit_ptx_units(const ir::Module& module, const Target& target,
                                        const PtxOptions& options = {});

} // namespace sparsertc
