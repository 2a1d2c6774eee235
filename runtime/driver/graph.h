// Work recorded once and launched again and again.
#pragma once

#include "runtime/driver/cuda_objects.h"

#include <vector>

namespace sparsertc::cuda {

/// Microseconds of one launch over several samples.
struct LaunchTiming {
  double median_us = 0;
  double minimum_us = 0;
  double maximum_us = 0;
  unsigned samples = 0;
};
/// Of at least one sample, in microseconds.
LaunchTiming summarise(std::vector<double> samples);

/// A graph of what `enqueue` puts on the stream, ready to be launched.
class Graph {
public:
  template <typename Enqueue>
  Graph(const Context& context, const Stream& stream, Enqueue&& enqueue)
      : context_(context), api_(context.api()), stream_(stream) {
    check(api_.cuStreamBeginCapture(stream.handle(), kCaptureModeThreadLocal),
          "cuStreamBeginCapture", "recording a graph");
    GraphHandle graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      // The stream must leave its capturing state, whatever comes of it.
      if (api_.cuStreamEndCapture(stream.handle(), &graph) == Result::CUDA_SUCCESS && graph)
        api_.cuGraphDestroy(graph);
      throw;
    }
    check(api_.cuStreamEndCapture(stream.handle(), &graph), "cuStreamEndCapture",
          "recording a graph");
    const Result result = api_.cuGraphInstantiateWithFlags(&executable_, graph, 0);
    api_.cuGraphDestroy(graph);
    check(result, "cuGraphInstantiateWithFlags", "preparing a graph");
  }
  ~Graph() { api_.cuGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() const {
    check(api_.cuGraphLaunch(executable_, stream_.handle()), "cuGraphLaunch", "launching a graph");
  }
  /// Times `samples` launches, at least one, between two events; a sample is a launch's time over
  /// `parts`. One launch before them is not counted.
  LaunchTiming time(unsigned samples, unsigned parts = 1) const;

private:
  const Context& context_;
  const DriverTable& api_;
  const Stream& stream_;
  GraphExecHandle executable_ = nullptr;
};

} // namespace sparsertc::cuda
