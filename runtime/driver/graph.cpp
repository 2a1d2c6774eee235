#include "runtime/driver/graph.h"

#include <algorithm>

namespace sparsertc::cuda {

LaunchTiming summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  LaunchTiming timing;
  timing.samples = static_cast<unsigned>(samples.size());
  const size_t middle = samples.size() / 2;
  timing.median_us =
      samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  timing.minimum_us = samples.front();
  timing.maximum_us = samples.back();
  return timing;
}

LaunchTiming Graph::time(unsigned samples, unsigned parts) const {
  const Event start(context_);
  const Event end(context_);
  launch();
  std::vector<double> times;
  for (unsigned i = 0; i < std::max(samples, 1u); ++i) {
    start.record(stream_);
    launch();
    end.record(stream_);
    end.synchronize();
    times.push_back(end.microseconds_since(start) / parts);
  }
  return summarise(std::move(times));
}

} // namespace sparsertc::cuda
