#include "compiler/input/random_values.h"

namespace sparsertc {

std::vector<double> random_values(uint64_t count, uint64_t seed) {
  SplitMix64 generator(seed);
  std::vector<double> values(count);
  for (double& value : values) {
    int64_t steps = 0;
    while (steps == 0)
      steps = static_cast<int64_t>(generator.next() >> 40) - (int64_t{1} << 23);
    value = static_cast<double>(steps) * 0x1p-23;
  }
  return values;
}

} // namespace sparsertc
