#include "compiler/emit/ptx_origin.h"

#include <string_view>

namespace sparsertc {

std::string ptx_origin(const ir::Module& module, const Target& target, PtxOptions options,
                       size_t unit, uint64_t line) {
  constexpr std::string_view kComment = " // ";
  options.annotate = true;
  const std::vector<std::string> units = emit_ptx_units(module, target, options);
  if (unit >= units.size())
    return {};
  std::string_view text = units[unit];
  for (; line > 1; --line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos)
      return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  const size_t comment = text.find(kComment);
  return comment == std::string_view::npos ? std::string()
                                           : std::string(text.substr(comment + kComment.size()));
}

} // namespace sparsertc
