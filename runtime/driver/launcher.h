// Runs one kernel: loads it, checks the launch against the device, enqueues and times it.
#pragma once

#include "runtime/driver/graph.h"

#include <cstdint>
#include <span>
#include <string>

namespace sparsertc::cuda {

/// Blocks of the grid, threads of a block, and bytes of dynamic shared memory a block.
struct LaunchShape {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;

  uint64_t threads_per_block() const { return uint64_t{block[0]} * block[1] * block[2]; }
};

class Launcher {
public:
  /// Loads `image` (cubin or PTX text), takes the kernel `entry` out of it and, above 48 KB, asks
  /// for the dynamic shared memory. Throws RuntimeError where the device cannot run the shape.
  Launcher(const Context& context, std::span<const uint8_t> image, const std::string& entry,
           const LaunchShape& shape);

  const Kernel& kernel() const { return kernel_; }
  const LaunchShape& shape() const { return shape_; }

  /// Enqueues one launch. An argument is 8 bytes: an address, an i64, or an i32 in the low half; in
  /// the order of the kernel's parameters. An empty grid enqueues nothing.
  void launch(std::span<const uint64_t> arguments, const Stream& stream) const;

  /// Times `samples` launches one by one between two events (launch overhead included).
  LaunchTiming time_by_events(std::span<const uint64_t> arguments, const Stream& stream,
                              unsigned samples = 50) const;
  /// Times `samples` replays of a CUDA graph of `launches` launches each; a sample is a replay's
  /// time over `launches`. One replay before them is not counted.
  LaunchTiming time_by_graph(std::span<const uint64_t> arguments, const Stream& stream,
                             unsigned samples = 20, unsigned launches = 20) const;

private:
  const Context& context_;
  Module module_;
  Kernel kernel_;
  LaunchShape shape_;
};

} // namespace sparsertc::cuda
