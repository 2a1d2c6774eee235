// The arrays of a module as PTX. Internal to the PTX printer.
#pragma once

#include "compiler/emit/ptx_text.h"
#include "ir/module.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace sparsertc {

/// Where shared symbols lie when they are more than a kernel may declare.
struct SharedLayout {
  uint64_t bytes = 0; ///< of all shared symbols with their gaps
  uint32_t alignment = 16;
  bool is_dynamic = false;
  /// By symbol; 0 for those of other spaces.
  std::vector<uint64_t> offset;
};
SharedLayout shared_layout(const ir::Module& module);

/// The name of the array of dynamic shared memory.
inline constexpr std::string_view kDynamicShared = "sparsertc_dynamic_shared";

enum class SymbolLinkage : uint8_t {
  local,    ///< a definition for this file; for all where the name begins with "sparsertc_"
  visible,  ///< a definition for all files
  external, ///< a declaration of what another file defines
};
/// One declaration or definition with its values, a line or many.
void put_symbol(PtxBuffer& out, const ir::Symbol& symbol, SymbolLinkage linkage);

} // namespace sparsertc
