// Times kernels that find nothing of their operands in the GPU's caches, as a layer does whose
// weights were last read a whole network ago.
#pragma once

#include "compiler/emit/target.h"
#include "runtime/driver/launcher.h"
#include "runtime/tune/graph_replay.h"

#include <functional>
#include <memory>

namespace sparsertc {

/// Fills the second-level cache by reading, so that nothing has to be written back later.
class CacheFlush {
public:
  /// Of the GPU `target`; both must outlive it.
  CacheFlush(const cuda::Context& gpu, const cuda::Stream& stream, const Target& target);

  void enqueue() const;
  /// A graph of reading alone, whose time is to be taken off.
  const tune::GraphReplay& alone() const { return *alone_; }
  /// A graph in which each call of `enqueue` follows a reading.
  std::unique_ptr<tune::GraphReplay> before(const std::function<void()>& enqueue) const;

private:
  const cuda::Context& gpu_;
  const cuda::Stream& stream_;
  cuda::DeviceBuffer buffer_;
  std::unique_ptr<cuda::Launcher> launcher_;
  std::unique_ptr<tune::GraphReplay> alone_;
};

/// The medians of `contenders`' graphs (from before()) without the time of reading, in turns.
std::vector<tune::Timing> time_cold(const CacheFlush& flush,
                                    const std::vector<const tune::GraphReplay*>& contenders,
                                    unsigned rounds);

} // namespace sparsertc
