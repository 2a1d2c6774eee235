#include "runtime/kernels/kernel_sources.h"

#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc::kernels {

std::string_view kernel_source(std::string_view name) {
  for (const KernelSource& source : kernel_sources())
    if (source.name == name)
      return source.text;
  throw InternalError(fmt::format("no text of {} was built in", name));
}

} // namespace sparsertc::kernels
