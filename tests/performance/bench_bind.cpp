// New weights for compiled code, on the host: reading the table of places once, and then each time
// rounding the values and writing them. Synthetic code with an immediate in every 16 bytes, as
// unrolled layers have it; loading it into a GPU is not part of this (tests/gpu has that). The time
// is the median of the rounds, beside it what the thread used of a processor. Arguments: [values,
// 1000000 for the full size].
#include "runtime/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

using namespace sparsertc;

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
/// Of this thread: what is left of a time when others use the processor, too.
double processor_milliseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}
double median_of(std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Case {
  const char* dtype;
  ir::Scalar type, stored;
  uint32_t copies; ///< columns a thread: places of a value
  bool data;       ///< the values lie beside each other, as those of the streamed strategy
};
constexpr Case kCases[] = {
    {"f32", ir::Scalar::f32, ir::Scalar::f32, 1, false},
    {"f32", ir::Scalar::f32, ir::Scalar::f32, 4, false},
    {"f32", ir::Scalar::f32, ir::Scalar::f32, 1, true},
    {"f16", ir::Scalar::f16, ir::Scalar::f32, 2, false},
    {"f16", ir::Scalar::f16, ir::Scalar::f16, 2, false},
    {"f64", ir::Scalar::f64, ir::Scalar::f64, 1, false},
};

/// Tiles of 32 rows with a tenth of 1024 columns: in a tile the code goes by columns, the values go
/// by rows.
std::vector<uint32_t> value_order(uint32_t values) {
  constexpr uint32_t kTile = 32 * 102;
  std::vector<uint32_t> order(values);
  for (uint32_t begin = 0; begin < values; begin += kTile) {
    const uint32_t count = std::min(kTile, values - begin);
    std::iota(order.begin() + begin, order.begin() + begin + count, begin);
    std::stable_sort(order.begin() + begin, order.begin() + begin + count,
                     [&](uint32_t a, uint32_t b) { return (a - begin) % 102 < (b - begin) % 102; });
  }
  return order;
}

Bundle make(const Case& one, uint32_t values) {
  ValuePlaces places;
  places.type = one.type;
  places.stored = one.stored;
  places.values = values;
  const uint32_t distance = one.data ? places.element_bytes() : 16;
  uint32_t at = one.data ? 0 : 4;
  for (const uint32_t value : value_order(values))
    for (uint32_t copy = 0; copy < one.copies; ++copy)
      for (uint32_t word = 0; word < places.elements_per_value(); ++word, at += distance) {
        places.offset.push_back(at);
        places.element.push_back(value * places.elements_per_value() + word);
      }
  Bundle bundle;
  bundle.manifest = fmt::format(
      R"json({{"schema": 1, "family": "spmm", "target": "sm_90", "m": 1024, "k": 1024, "n": 32,
      "nnz": {}, "dtype": "{}", "layout": "row", "ldb": 32, "ldc": 32, "values_digest": "",
      "epilogue": {{"bias": false, "residual": false, "activation": "none"}},
      "strategy": "unrolled", "tile": "", "pattern_digest": "", "entries": []}})json",
      values, one.dtype);
  bundle.sections.push_back({"cubin", std::vector<uint8_t>(at + 16)});
  bundle.sections.push_back({kBindingSection, serialize_binding(places)});
  return bundle;
}

template <typename Value>
std::vector<Value> random_values(uint32_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> unit(-1, 1);
  std::vector<Value> values(count);
  for (Value& value : values)
    value = static_cast<Value>(unit(random));
  return values;
}

template <typename Value>
void measure(const Case& one, uint32_t count, const char* given) {
  const Bundle bundle = make(one, count);
  Plan plan(std::make_shared<ExecutionContext>(ExecutionContext::kNoDevice), bundle, "layer");
  std::mt19937_64 random(1);
  std::vector<double> times, processor_times;
  double first = 0;
  constexpr int kRounds = 16;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<Value> values = random_values<Value>(count, random);
    const double processor_start = processor_milliseconds();
    const Clock::time_point start = Clock::now();
    plan.bind_values(std::span<const Value>(values));
    const double time = milliseconds_since(start);
    if (round == 0) {
      first = time;
      continue;
    }
    times.push_back(time);
    processor_times.push_back(processor_milliseconds() - processor_start);
  }
  fmt::print("{:<5} {:<6} {:<6} {:>6} {:<9} {:>10.1f} {:>9.2f} {:>10.2f} {:>12.2f}\n", one.dtype,
             ir::name_of(one.stored), given, one.copies, one.data ? "data" : "immediate",
             static_cast<double>(bundle.find("cubin")->bytes.size()) / (1 << 20), first,
             median_of(times), median_of(processor_times));
}

} // namespace

int main(int argc, char** argv) {
  const auto count = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 1000000);
  fmt::print("{} values\n{:<5} {:<6} {:<6} {:>6} {:<9} {:>10} {:>9} {:>10} {:>12}\n", count,
             "dtype", "stored", "given", "copies", "kind", "code_MiB", "first_ms", "median_ms",
             "processor_ms");
  for (const Case& one : kCases) {
    measure<float>(one, count, "f32");
    measure<double>(one, count, "f64");
  }
  return 0;
}
