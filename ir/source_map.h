// Where the parts of a parsed module stand in its text.
#pragma once

#include "ir/error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc::ir {

/// Line and column, 1-based; columns count bytes.
struct TextPosition {
  uint32_t line = 0;
  uint32_t column = 0;
};

struct SourceMap {
  std::string file;
  std::vector<TextPosition> symbols;
  /// Of each function's name.
  std::vector<TextPosition> functions;
  /// One list a function, one position an operation.
  std::vector<std::vector<TextPosition>> ops;

  Place place(TextPosition position) const {
    return Place::text(file, position.line, position.column);
  }
};

} // namespace sparsertc::ir
