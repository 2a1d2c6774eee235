#include "runtime/tune/machine.h"

#include <algorithm>
#include <thread>

namespace sparsertc::tune {

Device device_of(const cuda::Context& gpu) {
  const cuda::DeviceProperties& properties = gpu.properties();
  return {properties.multiprocessors, properties.max_threads_per_block,
          properties.max_shared_bytes_per_block, properties.compute_capability >= 90};
}

unsigned processors_of(unsigned jobs) {
  return jobs != 0 ? jobs : std::max(1u, std::thread::hardware_concurrency());
}

MakingThreads making_threads(unsigned jobs) {
  jobs = processors_of(jobs);
  // Few candidates at once, each on several processors: the first result comes soon, and what is
  // measured steers what comes next.
  MakingThreads making;
  making.threads = std::clamp(jobs / 4, 1u, 8u);
  making.processors = std::max(1u, jobs / making.threads);
  return making;
}

} // namespace sparsertc::tune
