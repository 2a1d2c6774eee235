// .sir text -> module (ir/README.md has the grammar).
#pragma once

#include "ir/module.h"
#include "ir/source_map.h"

#include <string>
#include <string_view>

namespace sparsertc::ir {

/// Throws UserError with file, line and column, what was found and what was expected. The result is
/// well nested and its names are resolved; whether it means something, the verifier says. `map`, if
/// given, receives the places of all parts.
Module parse(std::string_view text, const std::string& file_name, SourceMap* map = nullptr);

} // namespace sparsertc::ir
