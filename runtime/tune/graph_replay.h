// Times whatever can be put on a stream, ours or a library's, by replaying it as a CUDA graph: the
// CPU's part of a launch is not in the time.
#pragma once

#include "runtime/driver/graph.h"

#include <functional>
#include <optional>
#include <vector>

namespace sparsertc::tune {

/// Median and range of samples in microseconds.
struct Timing {
  double median_us = 0;
  double minimum_us = 0;
  double maximum_us = 0;
};
/// Of at least one sample.
Timing summarise(std::vector<double> samples);

/// A number of equal launches as one graph.
class GraphReplay {
public:
  /// Calls `enqueue` once outside of the graph (code is loaded and memory taken then), waits, and
  /// records it `launches` times. `context`, `stream` and what `enqueue` uses must outlive it.
  /// Throws RuntimeError where a call fails or must not be recorded.
  GraphReplay(const cuda::Context& context, const cuda::Stream& stream,
              const std::function<void()>& enqueue, unsigned launches = 20);
  GraphReplay(const GraphReplay&) = delete;
  GraphReplay& operator=(const GraphReplay&) = delete;

  /// Microseconds of one launch in one replay; a replay before it warms the caches.
  double sample() const;
  /// Several of them.
  Timing time(unsigned samples) const;

private:
  const cuda::Stream& stream_;
  unsigned launches_;
  std::optional<cuda::Graph> graph_;
  cuda::Event start_, end_;
};

/// Samples all in turn, `rounds` times, so that what changes in the meantime hits all alike.
std::vector<Timing> time_in_turns(const std::vector<const GraphReplay*>& contenders,
                                  unsigned rounds);

/// Microseconds between two events around one launch when `flush` (more bytes than the second-level
/// cache has) has been overwritten before each; the events' own time, about 2 us, is in it.
Timing time_cold(const cuda::Context& context, const cuda::Stream& stream,
                 const std::function<void()>& enqueue, const cuda::DeviceBuffer& flush,
                 unsigned samples);

} // namespace sparsertc::tune
