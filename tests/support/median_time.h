// How long work of the host takes.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace sparsertc::test {

/// The median time of `repeat` calls in microseconds; one call before them does not count.
template <class Work>
double median_us(unsigned repeat, const Work& work) {
  using Clock = std::chrono::steady_clock;
  work();
  std::vector<double> samples;
  for (unsigned i = 0; i < repeat; ++i) {
    const Clock::time_point start = Clock::now();
    work();
    samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

} // namespace sparsertc::test
