// Programs of the IR on the GPU: the kernel that sets conditions, loops and choices of graphs, and
// the same program step by step, in sequences and as one graph.
#include "compiler/emit/ptx.h"
#include "compiler/emit/target.h"
#include "compiler/transform/pass.h"
#include "ir/parser.h"
#include "ir/verifier.h"
#include "runtime/driver/conditional.h"
#include "runtime/driver/graph.h"
#include "runtime/program/executor.h"
#include "runtime/program/gpu_device.h"
#include "tests/gpu/gpu_spmm.h"
#include "tools/gpu_device.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace sparsertc;
using program::Bits;

namespace {

const cuda::Context* gpu_or_skip() {
  const cuda::Context* const gpu = Machine::get().gpu_or_skip("unit_program");
  if (gpu != nullptr && !gpu->driver().has_conditional_nodes())
    WARN("SKIPPED in part: the driver has no conditional nodes");
  return gpu;
}

template <class T>
std::span<const uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

/// Whether a graph's node runs behind the kernel that sets its condition.
bool passes(const cuda::Context& gpu, const cuda::Stream& stream,
            const cuda::ConditionSetter& setter, std::span<const uint8_t> element,
            const cuda::ElementTest& test) {
  const cuda::DeviceBuffer place(gpu, 8), one(gpu, 4), found(gpu, 4);
  place.upload(element, stream);
  one.fill(1, stream);
  found.fill(0, stream);
  stream.synchronize();
  const cuda::Graph graph(gpu, stream, [&] {
    const cuda::ConditionHandle condition = cuda::make_condition(gpu, stream, false);
    setter.enqueue(stream, condition, place.address(), test);
    cuda::record_conditional(
        gpu, stream, condition, cuda::ConditionalType::once, [&](const cuda::Stream& inner) {
          cuda::check(
              gpu.api().cuMemcpyDtoDAsync(found.address(), one.address(), 4, inner.handle()),
              "cuMemcpyDtoDAsync", "copying");
        });
  });
  graph.launch();
  uint32_t word = 0;
  found.download({reinterpret_cast<uint8_t*>(&word), sizeof word}, stream);
  return word != 0;
}

constexpr const char* kProgram = R"(
kernel @count(%x: device.i32) block(1, 1, 1) {
  %a = load.device.i32 %x + 0
  %a = sub.i32 %a, 1
  store.device.i32 %x + 0, %a
  %b = load.device.i32 %x + 4
  %b = add.i32 %b, 1
  store.device.i32 %x + 4, %b
}
kernel @set(%x: device.i32, %v: i32) block(1, 1, 1) {
  store.device.i32 %x + 0, %v
}
kernel @odd(%x: device.i32, %y: device.i32) block(1, 1, 1) {
  %a = load.device.i32 %x + 4
  %a = and.i32 %a, 1
  store.device.i32 %y + 0, %a
}
host @program(%x: device.i32, %y: device.i32, %z: device.i32, %n: i32) {
  %flag = alloc.any.i32 1
  %odd = alloc.any.i32 1
  %one = const.i32 1
  %three = const.i32 3
  launch @set grid(%one, %one, %one) (%x, %n)
  loop {
    launch @count grid(%one, %one, %one) (%x)
    launch @set grid(%one, %one, %one) (%y, %three)
    loop {
      launch @count grid(%one, %one, %one) (%y)
      copy %flag, %y, 1
      %again = load.any.i32 %flag + 0
      %repeat = cmp.ne.i32 %again, 0
    } while %repeat
    launch @odd grid(%one, %one, %one) (%x, %odd)
    %o = load.any.i32 %odd + 0
    %is_odd = cmp.eq.i32 %o, 1
    if %is_odd {
      launch @count grid(%one, %one, %one) (%z)
    } else {
      launch @count grid(%one, %one, %one) (%z)
      launch @count grid(%one, %one, %one) (%z)
    }
    copy %flag, %x, 1
    %left = load.any.i32 %flag + 0
    %more = cmp.gt.i32 %left, 0
  } while %more
}
)";

enum class Way { launched, recorded, device_decides };

void check_loops_and_choices(std::initializer_list<Way> ways) {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr)
    return;
  ir::Module module = ir::parse(kProgram, "program.sir");
  place_pass().run(module);
  ir::verify_or_throw(module, "pass place");
  const std::string ptx = emit_ptx(module, find_target(target_of(*gpu)));
  const cuda::Module code(*gpu,
                          std::span(reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()));
  const cuda::Stream stream(*gpu);
  for (const Way way : ways) {
    CAPTURE(static_cast<int>(way));
    program::GpuBindings bindings;
    bindings.modules = {&code};
    program::GpuDevice device(*gpu, stream, module, std::move(bindings),
                              way == Way::device_decides);
    program::Executor executor(module, device, {way != Way::launched, nullptr, {}});
    const cuda::DeviceBuffer x(*gpu, 8), y(*gpu, 8), z(*gpu, 8);
    for (const int32_t n : {1, 6, 25}) {
      for (const cuda::DeviceBuffer* buffer : {&x, &y, &z})
        buffer->fill(0, stream);
      const Bits arguments[] = {x.address(), y.address(), z.address(), static_cast<Bits>(n)};
      executor.run("program", arguments);
      const auto rounds = [&](const cuda::DeviceBuffer& buffer) {
        int32_t found[2] = {-1, -1};
        buffer.download({reinterpret_cast<uint8_t*>(found), sizeof found}, stream);
        return found[1];
      };
      CHECK(rounds(x) == n);
      CHECK(rounds(y) == 3 * n);
      CHECK(rounds(z) == (n + 1) / 2 + 2 * (n / 2)); // once where the count is odd, else twice
    }
    const bool alone = way == Way::device_decides && gpu->driver().has_conditional_nodes();
    CHECK((executor.recordings_launched() == 3) == alone);
  }
}

} // namespace

TEST_CASE("program: the kernel that sets conditions") {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr || !gpu->driver().has_conditional_nodes())
    return;
  const cuda::Stream stream(*gpu);
  const cuda::ConditionSetter setter(*gpu);
  using Type = cuda::ElementTest::Type;
  // Each of the four ways alone.
  const auto ways = [&](auto element, Type type, uint64_t number, bool unsigned_order) {
    std::string text;
    for (int way = 0; way < 4; ++way) {
      cuda::ElementTest test;
      test.type = type;
      test.number = number;
      test.unsigned_order = unsigned_order;
      test.less = way == 0;
      test.equal = way == 1;
      test.greater = way == 2;
      test.unordered = way == 3;
      text += passes(*gpu, stream, setter, bytes_of(element), test) ? "<=>?"[way] : ' ';
    }
    return text;
  };
  const auto i = [](int64_t value) { return static_cast<uint64_t>(value); };
  CHECK(ways(int32_t{-1}, Type::i32, i(1), false) == "<   ");
  CHECK(ways(int32_t{-1}, Type::i32, i(1), true) == "  > ");
  CHECK(ways(int32_t{-1}, Type::i32, i(-1), true) == " =  ");
  CHECK(ways(int32_t{5}, Type::i32, i(-7), false) == "  > ");
  CHECK(ways(int64_t{1} << 40, Type::i64, i(int64_t{1} << 40), false) == " =  ");
  CHECK(ways(std::numeric_limits<int64_t>::min(), Type::i64, i(0), false) == "<   ");
  CHECK(ways(std::numeric_limits<int64_t>::min(), Type::i64, i(0), true) == "  > ");
  const auto d = [](double value) { return std::bit_cast<uint64_t>(value); };
  CHECK(ways(0.5f, Type::f32, d(0.5), false) == " =  ");
  CHECK(ways(0.1f, Type::f32, d(0.1), false) == "  > "); // rounded up
  CHECK(ways(-0.0f, Type::f32, d(0), false) == " =  ");
  CHECK(ways(NAN, Type::f32, d(0), false) == "   ?");
  CHECK(ways(1e-300, Type::f64, d(1e-8), false) == "<   ");
  CHECK(ways(double(INFINITY), Type::f64, d(1), false) == "  > ");
  CHECK(ways(1.0, Type::f64, d(std::numeric_limits<double>::quiet_NaN()), false) == "   ?");
}

// Conditional nodes are not for compute-sanitizer (test_newton.cpp).
TEST_CASE("program: loops and choices, launched and recorded", "[sanitize]") {
  check_loops_and_choices({Way::launched, Way::recorded});
}

TEST_CASE("program: loops and choices, the device deciding") {
  check_loops_and_choices({Way::device_decides});
}
