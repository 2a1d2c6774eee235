// Passes: functions from IR to IR, by name.
#pragma once

#include "ir/module.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

struct Pass {
  /// The word and its number: "schedule-loads=8".
  std::string name;
  std::function<void(ir::Module&)> run;
};

/// Moves loads of read-only device memory ahead of their use; see schedule_loads.cpp.
Pass schedule_loads_pass(unsigned distance);
/// Moves the immediates of multiply-adds to the constant bank; see place_weights.cpp.
Pass place_weights_pass();

/// Gives every buffer without a place its memory; see place.cpp.
Pass place_pass();

/// A pass from its text ("schedule-loads=8", "place-weights"). Throws UsageError with the known
/// ones.
Pass find_pass(std::string_view text);
/// Each word with a sentence on what it does.
std::vector<std::string> describe_passes();

} // namespace sparsertc
