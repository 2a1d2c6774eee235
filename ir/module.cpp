#include "ir/module.h"

#include <algorithm>

namespace sparsertc::ir {

bool Function::is_sequential() const {
  const auto parameters = register_type.begin() + parameter_count;
  return kind == FunctionKind::host && !cpu &&
         std::any_of(register_type.begin(), parameters,
                     [](Type type) { return type.space() == Space::any; });
}

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
