#include "runtime/tune/graph_replay.h"

#include <algorithm>

namespace sparsertc::tune {

Timing summarise(std::vector<double> samples) {
  const cuda::LaunchTiming timing = cuda::summarise(std::move(samples));
  return {timing.median_us, timing.minimum_us, timing.maximum_us};
}

GraphReplay::GraphReplay(const cuda::Context& context, const cuda::Stream& stream,
                         const std::function<void()>& enqueue, unsigned launches)
    : stream_(stream), launches_(std::max(launches, 1u)), start_(context), end_(context) {
  enqueue();
  stream.synchronize("running once before it is recorded");
  graph_.emplace(context, stream, [&] {
    for (unsigned i = 0; i < launches_; ++i)
      enqueue();
  });
}

double GraphReplay::sample() const {
  graph_->launch();
  start_.record(stream_);
  graph_->launch();
  end_.record(stream_);
  end_.synchronize();
  return end_.microseconds_since(start_) / launches_;
}

Timing GraphReplay::time(unsigned samples) const {
  std::vector<double> times;
  for (unsigned i = 0; i < std::max(samples, 1u); ++i)
    times.push_back(sample());
  return summarise(std::move(times));
}

std::vector<Timing> time_in_turns(const std::vector<const GraphReplay*>& contenders,
                                  unsigned rounds) {
  std::vector<std::vector<double>> samples(contenders.size());
  for (unsigned round = 0; round < std::max(rounds, 1u); ++round)
    for (size_t i = 0; i < contenders.size(); ++i)
      samples[i].push_back(contenders[i]->sample());
  std::vector<Timing> timings;
  for (std::vector<double>& one : samples)
    timings.push_back(summarise(std::move(one)));
  return timings;
}

Timing time_cold(const cuda::Context& context, const cuda::Stream& stream,
                 const std::function<void()>& enqueue, const cuda::DeviceBuffer& flush,
                 unsigned samples) {
  const cuda::Event start(context), end(context);
  std::vector<double> times;
  for (unsigned i = 0; i < std::max(samples, 1u); ++i) {
    flush.fill(static_cast<uint8_t>(i), stream);
    start.record(stream);
    enqueue();
    end.record(stream);
    end.synchronize();
    times.push_back(end.microseconds_since(start));
  }
  return summarise(std::move(times));
}

} // namespace sparsertc::tune
