// How many blocks of a kernel run at the same time, one on each multiprocessor of a large GPU.
#pragma once

#include <cstdint>

namespace sparsertc {

/// Clusters of so many blocks that run at once: an H200 has 132 multiprocessors, of which clusters
/// of 4 and 8 leave some of each GPC over (30 and 15 run, by its occupancy calculator).
constexpr uint32_t clusters_at_once(uint32_t blocks_of_cluster) {
  constexpr uint32_t kBlocks = 132, kBlocksInLargeClusters = 120;
  return (blocks_of_cluster <= 2 ? kBlocks : kBlocksInLargeClusters) / blocks_of_cluster;
}

} // namespace sparsertc
