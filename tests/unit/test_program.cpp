// Executing programs: operations on values, regions that are recorded, copies as the placement
// says, with the PTX of kernels and of the loops' conditions interpreted.
#include "compiler/emit/ptx.h"
#include "compiler/emit/target.h"
#include "compiler/transform/describe_placement.h"
#include "compiler/transform/pass.h"
#include "ir/error.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "runtime/program/executor.h"
#include "runtime/program/gpu_device.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/program_interpreter.h"
#include "tests/support/random_program.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {
namespace {

using ir::Space;
using program::Bits;
using test::ProgramInterpreter;
using Ints = std::vector<int32_t>;

ir::Module placed(const std::string& text) {
  ir::SourceMap map;
  ir::Module module = ir::parse(text, "test.sir", &map);
  ir::verify_or_throw(module, "parsing", &map);
  place_pass().run(module);
  ir::verify_or_throw(module, "pass place");
  return module;
}

enum class Mode { one_by_one, sequences, loops };
constexpr Mode kModes[] = {Mode::one_by_one, Mode::sequences, Mode::loops};

/// The fake GPU with a program on it.
class Scene {
public:
  Scene(const ir::Module& module, Mode mode,
        std::map<std::string, program::GpuBindings::Work> work = {})
      : module_(module) {
    interpret_launches(fake);
    interpret_graphs(fake);
    fake.kernels.clear();
    fake.conditional_nodes = mode != Mode::sequences;
    context.emplace(std::make_shared<const cuda::Driver>(fake.table()));
    stream.emplace(*context);
    program::GpuBindings bindings;
    bindings.work = std::move(work);
    const std::string ptx = emit_ptx(module, find_target("sm_90"), {});
    code.emplace(*context, std::span(reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()));
    bindings.modules = {&*code};
    device = std::make_unique<program::GpuDevice>(*context, *stream, module, std::move(bindings));
    program::Executor::Options options;
    options.record = mode != Mode::one_by_one;
    executor = std::make_unique<program::Executor>(module, *device, options);
  }

  /// Host arrays are changed in place; so are device arrays.
  void run(const std::string& function, std::vector<Ints*> arrays, std::vector<Bits> numbers = {}) {
    const ir::Function& f = module_.functions[module_.find_function(function)];
    std::vector<Bits> arguments;
    std::vector<std::pair<uint64_t, Ints*>> on_device;
    for (size_t i = 0; i < arrays.size(); ++i) {
      const uint64_t bytes = arrays[i]->size() * sizeof(int32_t);
      if (f.register_type[i].space() == Space::host) {
        arguments.push_back(reinterpret_cast<Bits>(arrays[i]->data()));
        executor->bind_host(arrays[i]->data(), bytes);
      } else {
        arguments.push_back(device->allocate(bytes));
        device->upload(arguments.back(), arrays[i]->data(), bytes);
        on_device.emplace_back(arguments.back(), arrays[i]);
      }
    }
    arguments.insert(arguments.end(), numbers.begin(), numbers.end());
    executor->run(function, arguments);
    for (const auto& [address, array] : on_device) {
      device->download(array->data(), address, array->size() * sizeof(int32_t));
      device->free(address, array->size() * sizeof(int32_t));
    }
  }

  cuda::FakeCudaDriver fake;
  std::optional<cuda::Context> context;
  std::optional<cuda::Stream> stream;
  std::optional<cuda::Module> code;
  std::unique_ptr<program::GpuDevice> device;
  std::unique_ptr<program::Executor> executor;

private:
  const ir::Module& module_;
};

uint64_t copied(const program::Executor& executor, Space from, Space to) {
  uint64_t bytes = 0;
  for (const program::CopyCount& copy : executor.copies())
    if (copy.from == from && copy.to == to)
      bytes += copy.bytes;
  return bytes;
}

/// x[0] counts down and x[1] up; x[2] is twice x[1].
constexpr const char* kCount = R"(
kernel @count(%x: device.i32) block(1, 1, 1) {
  %a = load.device.i32 %x + 0
  %a = sub.i32 %a, 1
  store.device.i32 %x + 0, %a
  %b = load.device.i32 %x + 4
  %b = add.i32 %b, 1
  store.device.i32 %x + 4, %b
  %c = add.i32 %b, %b
  store.device.i32 %x + 8, %c
}
kernel @set(%x: device.i32, %v: i32) block(1, 1, 1) {
  store.device.i32 %x + 0, %v
}
kernel @add(%x: device.i32, %y: device.i32) block(1, 1, 1) {
  %a = load.device.i32 %x + 0
  %b = load.device.i32 %y + 0
  %a = add.i32 %a, %b
  store.device.i32 %x + 0, %a
}
)";

} // namespace

TEST_CASE("program: operations on values", "[program]") {
  const auto i32 = [](int32_t v) { return static_cast<Bits>(int64_t{v}); };
  const auto f32 = [](float v) { return Bits{std::bit_cast<uint32_t>(v)}; };
  const auto f64 = [](double v) { return std::bit_cast<Bits>(v); };
  const auto eval = [](ir::Opcode code, ir::Type type, Bits a, Bits b = 0, Bits c = 0,
                       uint8_t detail = 0, ir::Type source = {}) {
    ir::Op op;
    op.code = code;
    op.type = type;
    op.detail = detail;
    const Bits in[3] = {a, b, c};
    return program::evaluate(op, source.is_none() ? type : source, in);
  };
  using ir::Opcode;
  using ir::Scalar;
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  CHECK(eval(Opcode::add, Scalar::i32, i32(2147483647), i32(1)) == i32(kLeast));
  CHECK(eval(Opcode::neg, Scalar::i32, i32(kLeast)) == i32(kLeast));
  CHECK(eval(Opcode::abs, Scalar::i32, i32(kLeast)) == i32(kLeast));
  CHECK(eval(Opcode::mul, Scalar::i32, i32(-3), i32(7)) == i32(-21));
  CHECK(eval(Opcode::divu, Scalar::i32, i32(-1), i32(2)) == i32(0x7FFFFFFF));
  CHECK(eval(Opcode::minu, Scalar::i32, i32(-1), i32(2)) == i32(2));
  CHECK(eval(Opcode::min, Scalar::i32, i32(-1), i32(2)) == i32(-1));
  CHECK(eval(Opcode::shl, Scalar::i32, i32(1), i32(31)) == i32(kLeast));
  CHECK(eval(Opcode::shl, Scalar::i32, i32(1), i32(32)) == 0);
  CHECK(eval(Opcode::shr, Scalar::i32, i32(-1), i32(28)) == i32(15));
  CHECK(eval(Opcode::sar, Scalar::i32, i32(-8), i32(99)) == i32(-1));
  CHECK(eval(Opcode::clz, Scalar::i32, i32(0)) == 32);
  CHECK(eval(Opcode::clz, Scalar::i64, 0) == 64);
  CHECK(eval(Opcode::popc, Scalar::i32, i32(-1)) == 32);
  CHECK(eval(Opcode::brev, Scalar::i32, i32(1)) == i32(kLeast));
  CHECK(eval(Opcode::fma, Scalar::f32, f32(1 + 0x1p-12f), f32(1 + 0x1p-12f), f32(-1)) ==
        f32(std::fma(1 + 0x1p-12f, 1 + 0x1p-12f, -1.0f)));
  CHECK(eval(Opcode::sqrt, Scalar::f64, f64(2)) == f64(std::sqrt(2.0)));
  CHECK(eval(Opcode::neg, Scalar::f64, f64(0)) == f64(-0.0));
  const auto less = [&](ir::Comparison how, Bits a, Bits b, ir::Type type) {
    return eval(Opcode::compare, type, a, b, 0, static_cast<uint8_t>(how));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(less(ir::Comparison::ne, f64(nan), f64(nan), Scalar::f64) == 1);
  CHECK(less(ir::Comparison::le, f64(nan), f64(nan), Scalar::f64) == 0);
  CHECK(less(ir::Comparison::eq, f64(0), f64(-0.0), Scalar::f64) == 1);
  CHECK(less(ir::Comparison::ltu, i32(-1), i32(1), Scalar::i32) == 0);
  CHECK(less(ir::Comparison::lt, i32(-1), i32(1), Scalar::i32) == 1);
  const auto convert = [&](ir::Type to, ir::Type from, ir::Conversion how, Bits a) {
    return eval(Opcode::convert, to, a, 0, 0, static_cast<uint8_t>(how), from);
  };
  using ir::Conversion;
  CHECK(convert(Scalar::i32, Scalar::f64, Conversion::floor, f64(-1.5)) == i32(-2));
  CHECK(convert(Scalar::i32, Scalar::f64, Conversion::nearest, f64(2.5)) == i32(2));
  CHECK(convert(Scalar::i32, Scalar::f64, Conversion::truncate, f64(1e300)) == i32(2147483647));
  CHECK(convert(Scalar::i64, Scalar::f64, Conversion::truncate, f64(1e300)) ==
        static_cast<Bits>(std::numeric_limits<int64_t>::max()));
  CHECK(convert(Scalar::i32, Scalar::f32, Conversion::ceil, f32(NAN)) == 0);
  CHECK(convert(Scalar::i64, Scalar::i32, Conversion::zero, i32(-1)) == 0xFFFFFFFF);
  CHECK(convert(Scalar::i64, Scalar::i32, Conversion::sign, i32(-1)) == ~Bits{0});
  CHECK(convert(Scalar::f32, Scalar::i64, Conversion::nearest, Bits{(1u << 24) + 1}) ==
        f32(16777216));
  CHECK(convert(Scalar::f16, Scalar::f32, Conversion::nearest, f32(1.5f)) == 0x3E00);
  CHECK(eval(Opcode::bitcast, Scalar::i32, f32(-0.0f), 0, 0, 0, Scalar::f32) == i32(kLeast));
  CHECK_THROWS_WITH(eval(Opcode::add, Scalar::f16, 0, 0), Catch::Contains("'add' on f16"));
}

TEST_CASE("program: random programs, as the interpreter of integers runs them", "[program]") {
  const unsigned seed = static_cast<unsigned>(Catch::rngSeed());
  unsigned executed = 0;
  for (unsigned round = 0; round < 60; ++round) {
    CAPTURE(seed, round);
    test::RandomProgram random(seed + round);
    const std::string text = random.program(2 + round % 2, 4 + round % 5, true);
    if (random.length > 3000)
      continue;
    const ir::Module module = placed(text);
    INFO(ir::print(module));
    const int64_t n = round % 4;
    ProgramInterpreter interpreter(module, true);
    std::vector<int64_t> given;
    std::vector<Ints> start(random.outputs);
    for (unsigned i = 0; i < random.outputs; ++i) {
      std::vector<ProgramInterpreter::Element> elements;
      for (int64_t k = 0; k < random.length; ++k) {
        start[i].push_back(static_cast<int32_t>(100 * i + k % 50));
        elements.emplace_back(start[i].back());
      }
      given.push_back(interpreter.give(random.output_space[i], std::move(elements)));
    }
    std::vector<int64_t> arguments = given;
    arguments.push_back(n);
    try {
      interpreter.run("program", arguments);
    } catch (const test::UndefinedCondition&) {
      continue;
    }
    ++executed;
    for (const Mode mode : kModes) {
      std::vector<Ints> arrays = start;
      std::vector<Ints*> pointers;
      for (Ints& array : arrays)
        pointers.push_back(&array);
      Scene scene(module, mode);
      scene.run("program", pointers, {static_cast<Bits>(n)});
      bool same = true;
      for (unsigned i = 0; i < random.outputs; ++i)
        for (size_t k = 0; k < arrays[i].size(); ++k)
          if (const auto expected = interpreter.array(given[i]).elements[k])
            same = same && arrays[i][k] == *expected;
      CHECK(same);
      // Copies on the device may be parts of recordings.
      uint64_t times = 0, expected = 0;
      for (const program::CopyCount& copy : scene.executor->copies())
        times += copy.from != copy.to ? copy.times : 0;
      for (const ProgramInterpreter::Copy& copy : interpreter.copies())
        expected += copy.from != copy.to ? 1 : 0;
      CHECK(times == expected);
      scene.executor.reset();
    }
  }
  CHECK(executed > 20);
}

TEST_CASE("program: a loop that the device runs alone", "[program]") {
  const ir::Module module = placed(std::string(kCount) + R"(
host @program(%x: device.i32, %n: i32) {
  %flag = alloc.any.i32 1
  %one = const.i32 1
  launch @set grid(%one, %one, %one) (%x, %n)
  loop {
    launch @count grid(%one, %one, %one) (%x)
    copy %flag, %x, 1
    %left = load.any.i32 %flag + 0
    %more = cmp.gt.i32 %left, 0
  } while %more
})");
  for (const Mode mode : kModes)
    for (const int32_t n : {7, 1, -3}) { // a loop's body runs at least once
      Scene scene(module, mode);
      const int32_t rounds = std::max(n, 1);
      for (int again = 0; again < 3; ++again) {
        Ints x = {9, 0, 0};
        scene.run("program", {&x}, {static_cast<Bits>(int64_t{n})});
        CHECK(x == Ints{n - rounds, rounds, 2 * rounds});
      }
      const auto flags = static_cast<uint64_t>(3 * (mode == Mode::loops ? 1 : rounds));
      CHECK(copied(*scene.executor, Space::device, Space::host) == 4 * flags);
      CHECK(copied(*scene.executor, Space::host, Space::device) == 0);
      CHECK(scene.fake.count("cuGraphAddNode") == (mode == Mode::loops ? 1u : 0u));
      CHECK(scene.executor->recorded() == (mode == Mode::loops ? 1u : 0u));
      CHECK(scene.executor->recordings_launched() == (mode == Mode::loops ? 3u : 0u));
    }
}

TEST_CASE("program: loops in loops, and choices, on the device", "[program]") {
  // y[0]: rounds of the inner loop, 1 to 3; z[0]: sums it up where x[1] is odd, subtracts one else.
  const ir::Module module = placed(std::string(kCount) + R"(
kernel @odd(%x: device.i32, %y: device.i32) block(1, 1, 1) {
  %a = load.device.i32 %x + 4
  %a = and.i32 %a, 1
  store.device.i32 %y + 0, %a
}
host @program(%x: device.i32, %y: device.i32, %z: device.i32) {
  %flag = alloc.any.i32 1
  %odd = alloc.any.i32 1
  %inner = alloc.any.i32 1
  %one = const.i32 1
  %three = const.i32 3
  %minus = const.i32 -1
  %less = alloc.any.i32 1
  launch @set grid(%one, %one, %one) (%less, %minus)
  loop {
    launch @count grid(%one, %one, %one) (%x)
    launch @set grid(%one, %one, %one) (%y, %three)
    loop {
      launch @count grid(%one, %one, %one) (%y)
      copy %inner, %y, 1
      %again = load.any.i32 %inner + 0
      %repeat = cmp.ne.i32 %again, 0
    } while %repeat
    launch @odd grid(%one, %one, %one) (%x, %odd)
    %o = load.any.i32 %odd + 0
    %is_odd = cmp.eq.i32 %o, 1
    if %is_odd {
      launch @add grid(%one, %one, %one) (%z, %x)
      launch @set grid(%one, %one, %one) (%odd, %minus)
    } else {
      launch @add grid(%one, %one, %one) (%z, %less)
    }
    copy %flag, %x, 1
    %left = load.any.i32 %flag + 0
    %more = cmp.gtu.i32 %left, 0
  } while %more
})");
  INFO(ir::print(module));
  // x[0] starts at 5: at x[1] = 1, 3, 5 it is 4, 2, 0.
  for (const Mode mode : kModes) {
    Scene scene(module, mode);
    for (int again = 0; again < 4; ++again) {
      Ints x = {5, 0, 0}, y = {0, 0, 0}, z = {10};
      scene.run("program", {&x, &y, &z});
      CHECK(x == Ints{0, 5, 10});
      CHECK(y == Ints{0, 15, 30});
      CHECK(z == Ints{10 + 4 + 2 + 0 - 2});
    }
    if (mode == Mode::loops) {
      CHECK(scene.executor->recorded() <= 2); // buffers may change places once
      // Outer loop, inner loop behind its first round, the two sides of the choice.
      CHECK(scene.fake.count("cuGraphAddNode") == 4 * scene.executor->recorded());
      CHECK(copied(*scene.executor, Space::device, Space::host) == 4 * 12);
    }
  }
}

TEST_CASE("program: what a loop's condition may be", "[program]") {
  const auto nodes = [](const std::string& condition, const std::string& behind = "") {
    const ir::Module module = placed(std::string(kCount) + R"(
host @program(%x: device.i32, %n: i32) {
  %flag = alloc.any.i32 3
  %one = const.i32 1
  loop {
    launch @count grid(%one, %one, %one) (%x)
    copy %flag, %x, 3
)" + condition + R"(
  } while %more
)" + behind + "\n}");
    Scene scene(module, Mode::loops);
    Ints x = {4, 0, 0};
    scene.run("program", {&x}, {0});
    CHECK(x == Ints{0, 4, 8});
    return scene.fake.count("cuGraphAddNode");
  };
  CHECK(nodes("%v = load.any.i32 %flag + 0\n%more = cmp.ne.i32 %v, 0") == 1);
  CHECK(nodes("%v = load.any.i32 %flag + 0\n%more = cmp.gt.i32 %v, %n") == 1);
  CHECK(nodes("%v = load.any.i32 %flag + 8\n%eight = const.i32 8\n%more = cmp.lt.i32 %v, %eight") ==
        1);
  // The host computes.
  CHECK(nodes("%v = load.any.i32 %flag + 0\n%w = add.i32 %v, 1\n%more = cmp.ne.i32 %w, 1") == 0);
  CHECK(nodes("%v = load.any.i32 %flag + 0\n%m = cmp.ne.i32 %v, 0\n%more = not.pred %m\n"
              "%more2 = not.pred %more\n%more = move.pred %more2") == 0);
  // What was read in the loop is needed behind it.
  CHECK(nodes("%v = load.any.i32 %flag + 0\n%more = cmp.ne.i32 %v, 0",
              "launch @set grid(%one, %one, %one) (%x, %v)") == 0);
}

TEST_CASE("program: a mirror keeps what copies leave as it was", "[program]") {
  // The loop copies one element of three; the host has written the others before. Its first round
  // is decided by what it finds.
  const ir::Module module = placed(std::string(kCount) + R"(
host @program(%x: device.i32, %result: host.i32) {
  %flag = alloc.host.i32 3
  %one = const.i32 1
  %seven = const.i32 7
  %nine = const.i32 9
  store.host.i32 %flag + 0, %one
  store.host.i32 %flag + 4, %seven
  store.host.i32 %flag + 8, %nine
  loop {
    %v = load.host.i32 %flag + 0
    %go = cmp.gt.i32 %v, 0
    if %go {
      launch @count grid(%one, %one, %one) (%x)
    }
    copy %flag, %x, 1
    %w = load.host.i32 %flag + 0
    %more = cmp.gt.i32 %w, 0
  } while %more
  copy %result, %flag, 3
})");
  for (const Mode mode : kModes) {
    Scene scene(module, mode);
    Ints x = {5, 0, 0}, result = {-1, -1, -1};
    scene.run("program", {&x, &result});
    CHECK(x == Ints{0, 5, 10});
    CHECK(result == Ints{0, 7, 9});
    CHECK(scene.executor->recordings_launched() == (mode == Mode::loops ? 1u : 0u));
  }
}

TEST_CASE("program: external work in a loop", "[program]") {
  const std::string text = std::string(kCount) + R"(
host @work(%x: device.i32, %v: i64) external
host @program(%x: device.i32) {
  %flag = alloc.any.i32 1
  %one = const.i32 1
  %v = const.i64 5
  loop {
    launch @count grid(%one, %one, %one) (%x)
    call @work(%x, %v)
    copy %flag, %x, 1
    %left = load.any.i32 %flag + 0
    %more = cmp.gt.i32 %left, 0
  } while %more
})";
  const ir::Module module = placed(text);
  CHECK(ir::print(ir::parse(ir::print(module), "again")) == ir::print(module));
  for (const Mode mode : kModes) {
    Scene* running = nullptr;
    unsigned calls = 0;
    std::map<std::string, program::GpuBindings::Work> work;
    work["work"] = [&](std::span<const Bits> list, const cuda::Stream& stream) {
      ++calls;
      REQUIRE(list.size() == 2);
      CHECK(list[1] == 5);
      const cuda::Kernel kernel = running->code->kernel("count");
      uint64_t argument = list[0];
      void* pointer = &argument;
      cuda::check(running->context->api().cuLaunchKernel(kernel.handle, 1, 1, 1, 1, 1, 1, 0,
                                                         stream.handle(), &pointer, nullptr),
                  "cuLaunchKernel", "working");
    };
    Scene scene(module, mode, work);
    running = &scene;
    Ints x = {6, 0, 0};
    scene.run("program", {&x});
    CHECK(x == Ints{0, 6, 12});
    CHECK(calls == (mode == Mode::loops ? 1u : mode == Mode::sequences ? 1u : 3u));
  }
  cuda::FakeCudaDriver fake;
  const cuda::Context context(std::make_shared<const cuda::Driver>(fake.table()));
  const cuda::Stream stream(context);
  fake.kernels = {"count", "set", "add"};
  const std::string code = "fake";
  const cuda::Module image(context,
                           {reinterpret_cast<const uint8_t*>(code.data()), code.size() + 1});
  CHECK_THROWS_WITH(program::GpuDevice(context, stream, module, {{&image}, {}}),
                    Catch::Contains("@work is external, and nothing is bound to it"));
  CHECK_THROWS_WITH(program::GpuDevice(context, stream, module, {{}, {}}),
                    Catch::Contains("kernel @count is in no code"));
}

TEST_CASE("program: another argument makes another recording, until that is given up",
          "[program]") {
  const ir::Module module = placed(std::string(kCount) + R"(
host @program(%x: device.i32, %y: device.i32, %n: i32) {
  %one = const.i32 1
  for %i = 0 to %n step 1 {
    launch @set grid(%one, %one, %one) (%x, %i)
    launch @add grid(%one, %one, %one) (%y, %x)
  }
})");
  for (const Mode mode : kModes) {
    Scene scene(module, mode);
    Ints x = {0}, y = {0};
    scene.run("program", {&x, &y}, {20});
    CHECK(y[0] == 190);
    CHECK(scene.executor->recorded() == (mode == Mode::one_by_one ? 0u : 4u));
    CHECK(scene.executor->launches() == (mode == Mode::one_by_one ? 40u : 32u));
  }
}

TEST_CASE("program: mistakes are said with their place", "[program]") {
  const ir::Module module = placed(R"(
host @outside(%x: host.i32, %i: i32) {
  %p = index.host.i32 %x, %i, 4
  %v = load.host.i32 %p + 0
  store.host.i32 %x + 0, %v
}
host @long(%x: host.i32, %n: i64) {
  %d = alloc.device.i32 4
  copy %d, %x, %n
  copy %x, %d, %n
}
host @twice(%x: host.i32) {
  free.host.i32 %x
}
host @negative(%n: i64) {
  %d = alloc.host.i32 %n
  %v = load.host.i32 %d + 0
})");
  Scene scene(module, Mode::loops);
  Ints x = {1, 2, 3};
  scene.run("outside", {&x}, {2});
  CHECK(x[0] == 3);
  CHECK_THROWS_WITH(scene.run("outside", {&x}, {3}),
                    Catch::Contains("@outside, operation 2") && Catch::Contains("no array"));
  CHECK_THROWS_WITH(scene.run("outside", {&x}, {static_cast<Bits>(-1)}),
                    Catch::Contains("no array"));
  CHECK_THROWS_WITH(scene.run("long", {&x}, {4}), Catch::Contains("@long, operation 2"));
  CHECK_THROWS_WITH(scene.run("twice", {&x}), Catch::Contains("@twice has not allocated"));
  CHECK_THROWS_WITH(scene.run("negative", {}, {static_cast<Bits>(-1)}),
                    Catch::Contains("-1 elements"));
  CHECK_THROWS_WITH(scene.executor->run("nothing", {}), Catch::Contains("no host function"));
  CHECK_THROWS_WITH(scene.executor->run("long", {}), Catch::Contains("2 parameters"));
  const ir::Module open = ir::parse("host @f() {\n  %x = alloc.any.i32 4\n}\n", "open.sir");
  CHECK_THROWS_WITH(program::Executor(open, *scene.device, {}), Catch::Contains("without a place"));
}

TEST_CASE("program: nothing stays allocated, whatever fails", "[program]") {
  const ir::Module module = placed(std::string(kCount) + R"(
host @program(%x: device.i32) {
  %flag = alloc.any.i32 1
  %one = const.i32 1
  loop {
    launch @count grid(%one, %one, %one) (%x)
    copy %flag, %x, 1
    %left = load.any.i32 %flag + 0
    %more = cmp.gt.i32 %left, 0
  } while %more
})");
  for (uint64_t call = 1;; ++call) {
    cuda::FakeCudaDriver* fake = nullptr;
    std::string failed;
    {
      Scene scene(module, Mode::loops);
      fake = &scene.fake;
      fake->fail_call(call);
      Ints x = {3, 0, 0};
      try {
        scene.run("program", {&x});
        CHECK(x == Ints{0, 3, 6});
      } catch (const RuntimeError&) {
      }
      scene.executor.reset();
      scene.device.reset();
      scene.code.reset();
      scene.stream.reset();
      scene.context.reset();
      failed = fake->failed_call();
      CAPTURE(call, failed);
      // What refused to go is not gone.
      bool refused = false;
      for (const char* word : {"Destroy", "Free", "EndCapture", "Release", "Unload"})
        refused = refused || failed.find(word) != std::string::npos;
      for (const auto& [kind, count] : fake->alive()) {
        CAPTURE(kind);
        CHECK(count == (refused ? 1u : 0u));
      }
    }
    if (failed.empty())
      break;
  }
}

} // namespace sparsertc
