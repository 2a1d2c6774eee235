#include "runtime/tune/graph_replay.h"

#include <algorithm>

namespace sparsertc::tune {

using cuda::check;

Timing summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  return {median, samples.front(), samples.back()};
}

GraphReplay::GraphReplay(const cuda::Context& context, const cuda::Stream& stream,
                         const std::function<void()>& enqueue, unsigned launches)
    : context_(context), stream_(stream), launches_(std::max(launches, 1u)), start_(context),
      end_(context) {
  enqueue();
  stream.synchronize("running once before it is recorded");
  const cuda::DriverTable& api = context.api();
  check(api.cuStreamBeginCapture(stream.handle(), cuda::kCaptureModeThreadLocal),
        "cuStreamBeginCapture", "recording a graph");
  cuda::GraphHandle graph = nullptr;
  try {
    for (unsigned i = 0; i < launches_; ++i)
      enqueue();
  } catch (...) {
    // The stream must leave its capturing state, whatever comes of it.
    if (api.cuStreamEndCapture(stream.handle(), &graph) == cuda::Result::CUDA_SUCCESS && graph)
      api.cuGraphDestroy(graph);
    throw;
  }
  check(api.cuStreamEndCapture(stream.handle(), &graph), "cuStreamEndCapture", "recording a graph");
  const cuda::Result result = api.cuGraphInstantiateWithFlags(&executable_, graph, 0);
  api.cuGraphDestroy(graph);
  check(result, "cuGraphInstantiateWithFlags", "preparing a graph");
}

GraphReplay::~GraphReplay() {
  context_.api().cuGraphExecDestroy(executable_);
}

void GraphReplay::replay() const {
  check(context_.api().cuGraphLaunch(executable_, stream_.handle()), "cuGraphLaunch",
        "launching a graph");
}

double GraphReplay::sample() const {
  replay();
  start_.record(stream_);
  replay();
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
