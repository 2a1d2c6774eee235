// Says whether a module means something: types, structure, definite assignment, memory spaces,
// constant addresses, barriers. ir/README.md has the rules in words.
#pragma once

#include "ir/module.h"
#include "ir/source_map.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::ir {

/// Violation::op_index where the function's head or a symbol is meant.
constexpr uint32_t kNoOp = UINT32_MAX;

struct Violation {
  std::string function; ///< empty for symbols and the module
  uint32_t op_index = kNoOp;
  Place place; ///< with a source map; else file and line are empty
  std::string message;
};

/// All violations, in the order of the module's functions and operations. Code that is badly nested
/// or refers to what does not exist is not looked at further.
std::vector<Violation> verify(const Module& module, const SourceMap* map = nullptr);

/// Nothing if the module is well formed. With a source map (parsed text) throws UserError at the
/// first violation's place, which lists the others too; without one InternalError, which says after
/// which stage of the compiler this was and shows the operation.
void verify_or_throw(const Module& module, std::string_view stage, const SourceMap* map = nullptr);

/// Throws UserError if a host function has buffers without a place (`any`), which emitters refuse.
void require_placed(const Module& module);

} // namespace sparsertc::ir
