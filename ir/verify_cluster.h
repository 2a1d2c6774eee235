// Clusters of blocks: all blocks must meet at the same cluster barriers, and what needs a cluster
// is called from kernels that have one. Internal to the verifier.
#pragma once

#include "ir/module.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace sparsertc::ir {

/// Blocks of a cluster that every GPU with clusters can run at once.
constexpr uint32_t kMostClusterBlocks = 8;

/// Reports functions whose paths do not all have the same number of cluster barriers, and kernels
/// whose code needs a (larger) cluster. `callers_first` as for check_uniformity.
void check_clusters(
    const Module& module, std::span<const uint32_t> callers_first,
    const std::function<void(uint32_t function, uint32_t op, std::string message)>& report);

} // namespace sparsertc::ir
