// Weights bound to a plan on the GPU: the results are bit by bit those of a compilation with these
// weights, also where an assembler treats their values apart; and how long it takes.
#include "ir/float_bits.h"
#include "runtime/plan/plan.h"
#include "tests/gpu/gpu_spmm.h"
#include "tools/make_bundle.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>

using namespace sparsertc;

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<uint8_t>;

/// Whether there are a GPU and an assembler; without them the case ends, aloud.
bool can_bind() {
  const Machine& machine = Machine::get();
  if (machine.gpu_or_skip() == nullptr)
    return false;
  if (!machine.ptxas())
    WARN("SKIPPED: needs ptxas");
  return machine.ptxas() != nullptr;
}

struct Layer {
  DataType type;
  const char* tile;
  uint32_t half_terms = 0;
  uint32_t columns = 96;
};

Bundle compile(const Layer& layer, Matrix weights, const std::vector<double>& values,
               bool bindable) {
  PipelineOptions options;
  options.problem.type = layer.type;
  options.problem.half_terms = layer.half_terms;
  options.problem.columns = layer.columns;
  options.problem.ldb = options.problem.ldc = layer.columns;
  options.target = Machine::get().target();
  options.tile = parse_tile_choice(layer.tile);
  options.budget = uint64_t{1} << 24;
  options.artefact = Artefact::bundle;
  options.assembler = Machine::get().ptxas();
  options.bindable = bindable;
  weights.values = values;
  return make_bundle(compile_spmm([&] { return weights; }, options), options);
}

void put(Bytes& bytes, DataType type, double value) {
  const auto append = [&](const void* from, size_t count) {
    const auto* first = static_cast<const uint8_t*>(from);
    bytes.insert(bytes.end(), first, first + count);
  };
  const uint32_t narrow = type == DataType::f16    ? to_f16(value)
                          : type == DataType::bf16 ? to_bf16(value)
                                                   : to_f32(value);
  if (type == DataType::f64)
    append(&value, sizeof value);
  else
    append(&narrow, element_bytes(type));
}

/// B with subnormal and infinite numbers, NaN and zeros of both signs among others.
Bytes operand(const Layer& layer, uint64_t elements, uint64_t seed) {
  constexpr double special[] = {0.0,
                                -0.0,
                                0x1p-149,
                                0x1p-24,
                                -0x1p-126,
                                65504,
                                std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()};
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(-1, 1);
  Bytes bytes;
  for (uint64_t i = 0; i < elements; ++i) {
    const bool is_special = random() % 64 == 0;
    // Infinities and NaN in a few columns only: they spread to the whole column of C.
    const size_t among = i % layer.columns < 4 ? std::size(special) : std::size(special) - 2;
    put(bytes, layer.type, is_special ? special[random() % among] : unit(random));
  }
  return bytes;
}

/// Makes all NaN alike: which of them an instruction returns is nobody's promise.
template <typename Bits>
void unify_nan(Bytes& bytes, Bits infinity) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, &bytes[at], sizeof bits);
    if (static_cast<Bits>(bits & ~(Bits{1} << (8 * sizeof(Bits) - 1))) > infinity)
      std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at), sizeof bits, uint8_t{0xFF});
  }
}
void unify_nan(Bytes& bytes, DataType type) {
  switch (type) {
  case DataType::f32:
    return unify_nan<uint32_t>(bytes, 0x7F800000);
  case DataType::f16:
    return unify_nan<uint16_t>(bytes, 0x7C00);
  case DataType::bf16:
    return unify_nan<uint16_t>(bytes, 0x7F80);
  case DataType::f64:
    return unify_nan<uint64_t>(bytes, uint64_t{0x7FF} << 52);
  }
}

/// C of one execution.
Bytes run(const Plan& plan, const Layer& layer, const Bytes& b) {
  const cuda::Context& gpu = *plan.context().gpu();
  const cuda::Stream stream(gpu);
  const uint64_t c_bytes = plan.manifest().m * layer.columns * element_bytes(layer.type);
  const cuda::DeviceBuffer device_b(gpu, b.size()), device_c(gpu, c_bytes),
      workspace(gpu, Plan::kWorkspaceBytes);
  device_b.upload(b, stream);
  device_c.fill(0x3F, stream);
  plan.initialize_workspace(workspace.address(), stream.handle());
  SpmmArguments arguments;
  arguments.b = device_b.address();
  arguments.c = device_c.address();
  arguments.n = layer.columns;
  plan.execute(arguments, workspace.address(), stream.handle());
  plan.status(workspace.address(), stream.handle());
  Bytes c(c_bytes);
  device_c.download(c, stream);
  unify_nan(c, layer.type);
  return c;
}

std::vector<double> random_values(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(-1, 1);
  std::vector<double> values(count);
  for (double& value : values)
    value = unit(random);
  return values;
}

/// Numbers for which there are shorter instructions, or that might be flushed.
std::vector<double> special_values(size_t count, uint64_t seed) {
  constexpr double special[] = {0.0, -0.0, 1, -1, 2, -2, 0.5, 0x1p-149, 0x1p-126, 0x1p-24, 3, 3};
  std::mt19937_64 random(seed);
  std::vector<double> values(count);
  for (double& value : values)
    value = special[random() % std::size(special)];
  return values;
}

std::shared_ptr<const ExecutionContext> first_device() {
  return std::make_shared<ExecutionContext>(0);
}

} // namespace

TEST_CASE("bind: results are those of a compilation with the weights") {
  if (!can_bind())
    return;
  const Layer layers[] = {
      {DataType::f32, "rows=16,vec=1,splitk=2"},
      {DataType::f32, "rows=16,vec=2"},
      {DataType::f32, "rows=16,weights=const"},
      {DataType::f32, "rows=16,stage=smem,chunk=16"},
      {DataType::f32, "strategy=streamed,rows=8"},
      {DataType::f16, "rows=16,vec=2"},
      {DataType::f16, "rows=16,vec=2", 8},
      {DataType::f16, "strategy=streamed,rows=8"},
      {DataType::bf16, "rows=16,vec=2"},
      {DataType::bf16, "rows=16,vec=2", 4},
      {DataType::f64, "rows=16,weights=const"},
      {DataType::f64, "strategy=streamed,rows=8"},
      {DataType::f64, "rows=16"}, // refused on targets whose immediates stand across words
  };
  const auto context = first_device();
  for (const Layer& layer : layers) {
    INFO(fmt::format("{} {} half_terms={}", name_of(layer.type), layer.tile, layer.half_terms));
    const Matrix pattern = random_weights(100, 150, 0.15, 5);
    const size_t count = pattern.pattern.nnz();
    const Bytes b = operand(layer, uint64_t{150} * layer.columns, 6);
    const Bundle bundle = compile(layer, pattern, random_values(count, 1), true);
    Plan plan(context, bundle, "bindable");
    REQUIRE(plan.code() == Plan::Code::cubin);
    if (bundle.find(kBindingSection) == nullptr) {
      CHECK(layer.type == DataType::f64);
      CHECK_THROWS_AS(plan.bind_values(random_values(count, 1)), NotBindableError);
      continue;
    }
    const std::vector<double> lists[] = {random_values(count, 2), special_values(count, 3),
                                         random_values(count, 1)};
    Bytes last;
    for (const std::vector<double>& values : lists) {
      plan.bind_values(std::span<const double>(values));
      const Bytes result = run(plan, layer, b);
      const Plan compiled(context, compile(layer, pattern, values, false), "compiled");
      CHECK(result == run(compiled, layer, b));
      CHECK(result != last);
      last = result;
    }
  }
}

// Measures: run.sh runs it alone.
TEST_CASE("bind: how long a million values take") {
  if (!can_bind())
    return;
  constexpr uint32_t kSize = 3200;
  const auto context = first_device();
  const Matrix pattern = random_weights(kSize, kSize, 0.1, 7);
  const size_t count = pattern.pattern.nnz();
  for (const Layer& layer : {Layer{DataType::f32, "strategy=streamed"},
                             Layer{DataType::f32, "strategy=unrolled,rows=64,vec=1,splitk=1"}}) {
    const Clock::time_point compiling = Clock::now();
    const Bundle bundle = compile(layer, pattern, random_values(count, 1), true);
    const std::chrono::duration<double> compile_s = Clock::now() - compiling;
    REQUIRE(bundle.find(kBindingSection) != nullptr);
    Plan plan(context, bundle, "bindable");
    // The same without loading.
    Plan host(std::make_shared<ExecutionContext>(ExecutionContext::kNoDevice), bundle, "bindable");
    const Bytes b = operand(layer, uint64_t{kSize} * layer.columns, 6);
    std::vector<double> times, host_times;
    for (uint64_t round = 0; round < 9; ++round) {
      const std::vector<double> values = random_values(count, round + 2);
      const std::vector<float> narrow(values.begin(), values.end());
      const Clock::time_point start = Clock::now();
      plan.bind_values(std::span<const float>(narrow));
      const std::chrono::duration<double, std::milli> time = Clock::now() - start;
      times.push_back(time.count());
      const Clock::time_point host_start = Clock::now();
      host.bind_values(std::span<const float>(narrow));
      host_times.push_back(
          std::chrono::duration<double, std::milli>(Clock::now() - host_start).count());
      run(plan, layer, b); // the new code is really used in between
    }
    const auto median_of_later = [](std::vector<double>& all) {
      std::sort(all.begin() + 1, all.end());
      return all[all.size() / 2];
    };
    fmt::print("time: bind {} values, {}: {:.2f} ms (the first {:.2f}), without loading {:.2f}, "
               "{:.1f} MiB, compiled in {:.1f} s\n",
               count, layer.tile, median_of_later(times), times[0], median_of_later(host_times),
               static_cast<double>(bundle.find("cubin")->bytes.size()) / (1 << 20),
               compile_s.count());
  }
}
