// `sparsertc inspect --op=lu`: how a matrix would be factorized.
#pragma once

#include "tools/lu_options.h"
#include "tools/options.h"

#include <string>

namespace sparsertc {

struct InspectLuOptions {
  InputOptions input;
  LuOptions lu;
  WatchOptions watch;
  /// Where the plot goes; empty: nowhere.
  std::string plot;
  /// Where the permutations go; empty: nowhere.
  std::string save_placement;
  /// Where the kernels of --strategy=emitted go, as IR (.sir) or PTX (.ptx); empty: nowhere.
  std::string kernels;
  bool json = false;
};
int inspect_lu(const InspectLuOptions& options);

} // namespace sparsertc
