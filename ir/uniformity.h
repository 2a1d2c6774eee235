// Which threads of a block may disagree about a value or about where they are, and whether the
// barriers are legal then. Internal to the verifier.
#pragma once

#include "ir/module.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace sparsertc::ir {

/// Over which threads a value is the same.
enum class Uniformity : uint8_t {
  block, ///< all threads of a block have it
  warp,  ///< the threads of a warp have it
  none,  ///< any two threads may differ
};

/// The index of a `switch` is bounded by the number of its functions in plain sight.
bool index_in_range(const Function& function, const Op& op);

/// Reports barriers, shuffles, ballots and matrix fragments where not all threads that they need
/// come together. `callers_first` lists all functions, callers before callees; the module is sound
/// otherwise.
void check_uniformity(
    const Module& module, std::span<const uint32_t> callers_first,
    const std::function<void(uint32_t function, uint32_t op, std::string message)>& report);

} // namespace sparsertc::ir
