#include "ir/module.h"

namespace sparsertc::ir {

uint32_t Module::find_function(std::string_view name) const {
  for (uint32_t i = 0; i < functions.size(); ++i)
    if (functions[i].name == name)
      return i;
  return UINT32_MAX;
}

uint32_t Module::find_symbol(std::string_view name) const {
  for (uint32_t i = 0; i < symbols.size(); ++i)
    if (symbols[i].name == name)
      return i;
  return UINT32_MAX;
}

} // namespace sparsertc::ir
