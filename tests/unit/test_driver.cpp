// The driver's wrappers over a fake driver: what is called, what is said when a call fails, and
// that nothing is left behind.
#include "ir/error.h"
#include "runtime/driver/launcher.h"
#include "tests/support/fake_cuda_driver.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <unistd.h>

using namespace sparsertc;
using namespace sparsertc::cuda;
using Catch::Contains;

namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// Sets an environment variable for a scope.
class Environment {
public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name))
      old_ = old;
    setenv(name, value, 1);
  }
  ~Environment() {
    if (old_)
      setenv(name_, old_->c_str(), 1);
    else
      unsetenv(name_);
  }

private:
  const char* name_;
  std::optional<std::string> old_;
};

/// Everything the runtime does with a GPU, once.
void whole_session(FakeCudaDriver& fake) {
  const auto driver = std::make_shared<const Driver>(fake.table());
  const Context context(driver);
  context.make_current();
  context.free_memory();
  const Stream stream(context);
  const std::vector<uint8_t> input = {1, 2, 3, 4};
  const DeviceBuffer source(context, input.size());
  const DeviceBuffer target(context, input.size());
  source.upload(input, stream);
  target.fill(0xff, stream);
  LaunchShape shape;
  shape.grid[0] = 2;
  shape.block[0] = 64;
  shape.dynamic_shared_bytes = 100000;
  const Launcher launcher(context, bytes_of(".version 8.0"), "kernel", shape);
  const uint64_t arguments[] = {source.address(), target.address(), 7};
  launcher.launch(arguments, stream);
  stream.synchronize();
  std::vector<uint8_t> output(input.size());
  target.download(output, stream);
  launcher.time_by_events(arguments, stream, 2);
  launcher.time_by_graph(arguments, stream, 3, 4);
}

bool gives_back(const std::string& call) {
  return call == "cuMemFree" || call == "cuModuleUnload" || call == "cuStreamDestroy" ||
         call == "cuEventDestroy" || call == "cuGraphDestroy" || call == "cuGraphExecDestroy" ||
         call == "cuDevicePrimaryCtxRelease";
}

} // namespace

TEST_CASE("a session with the driver leaves nothing behind") {
  FakeCudaDriver fake;
  whole_session(fake);
  CHECK(fake.alive().empty());
  CHECK(fake.count("cuInit") == 1);
  CHECK(fake.count("cuMemAlloc") == 2);
  // 1; warm-up and 2 samples; one before the graph and 4 recorded.
  CHECK(fake.launches.size() == 1 + 3 + 1 + 4);
  CHECK(fake.count("cuGraphLaunch") == 1 + 3);
}

TEST_CASE("each call that fails is named, and nothing is left behind") {
  uint64_t calls = 0;
  {
    FakeCudaDriver fake;
    whole_session(fake);
    calls = fake.calls().size();
  }
  REQUIRE(calls > 40);
  for (uint64_t number = 1; number <= calls; ++number) {
    FakeCudaDriver fake;
    fake.fail_call(number, Result::CUDA_ERROR_ILLEGAL_STATE);
    std::string message;
    try {
      whole_session(fake);
    } catch (const NoGpuError& error) {
      CHECK(number == 1); // cuInit
      message = error.what();
    } catch (const RuntimeError& error) {
      message = error.what();
    }
    const std::string call = fake.failed_call();
    INFO("call " << number << " of " << calls << ": " << call << ": " << message);
    REQUIRE(!call.empty());
    if (gives_back(call)) {
      // The one whose release was refused is all that is left, and nobody is bothered with it.
      CHECK(message.empty());
      CHECK(fake.alive().size() == 1);
      continue;
    }
    CHECK_THAT(message, Contains(call + " failed: CUDA_ERROR_ILLEGAL_STATE (401)"));
    CHECK_THAT(message, Contains("error: "));
    if (call == "cuStreamEndCapture") {
      CHECK(fake.alive() == std::map<std::string, uint64_t>{{"capture", 1}});
      continue;
    }
    CHECK(fake.alive().empty());
  }
}

TEST_CASE("no GPU is an error of its own") {
  FakeCudaDriver fake;
  const auto open = [&] { return Driver(fake.table()); };
  SECTION("a stub library") {
    fake.fail_every("cuInit", Result::CUDA_ERROR_STUB_LIBRARY);
    CHECK_THROWS_WITH(open(), Contains("stub") && Contains("CUDA_ERROR_STUB_LIBRARY (34)"));
    CHECK_THROWS_AS(open(), NoGpuError);
  }
  SECTION("no device") {
    fake.fail_every("cuInit", Result::CUDA_ERROR_NO_DEVICE);
    CHECK_THROWS_WITH(open(), Contains("no device") && Contains("CUDA_ERROR_NO_DEVICE (100)"));
    CHECK_THROWS_AS(open(), NoGpuError);
  }
  SECTION("a driver that does not start") {
    fake.fail_every("cuInit", Result::CUDA_ERROR_UNKNOWN);
    CHECK_THROWS_WITH(open(), Contains("CUDA_ERROR_UNKNOWN (999)") && Contains("--device=cpu"));
    CHECK_THROWS_AS(open(), NoGpuError);
  }
  SECTION("a code that we do not know") {
    fake.fail_every("cuInit", static_cast<Result>(12345));
    CHECK_THROWS_WITH(open(), Contains("CUresult (12345)"));
    CHECK_THROWS_AS(open(), NoGpuError);
  }
  SECTION("no memory to start is no missing GPU") {
    fake.fail_every("cuInit", Result::CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_THROWS_AS(open(), RuntimeError);
  }
  SECTION("a driver that counts none") {
    fake.devices = 0;
    CHECK_THROWS_AS(open(), NoGpuError);
  }
  SECTION("the count says so") {
    fake.fail_every("cuDeviceGetCount", Result::CUDA_ERROR_NO_DEVICE);
    CHECK_THROWS_AS(open(), NoGpuError);
  }
}

TEST_CASE("a missing library and a foreign library are told apart") {
  {
    const Environment environment("SPARSERTC_LIBCUDA", "/nonexistent/libcuda.so.1");
    CHECK_THROWS_AS(Driver::open(), NoGpuError);
    CHECK_THROWS_WITH(Driver::open(),
                      Contains("/nonexistent/libcuda.so.1") && Contains("SPARSERTC_LIBCUDA"));
  }
  {
    const Environment environment("SPARSERTC_LIBCUDA", "libm.so.6");
    CHECK_THROWS_AS(Driver::open(), RuntimeError);
    CHECK_THROWS_WITH(Driver::open(), Contains("libm.so.6") && Contains("cuGetProcAddress_v2"));
  }
}

TEST_CASE("the toolkit's stub library is no GPU") {
  const char* const stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (access(stub, R_OK) != 0) {
    WARN("SKIPPED: no " << stub);
    return;
  }
  const Environment environment("SPARSERTC_LIBCUDA", stub);
  CHECK_THROWS_AS(Driver::open(), NoGpuError);
  CHECK_THROWS_WITH(Driver::open(), Contains("stub"));
}

TEST_CASE("a context tells the device's properties") {
  FakeCudaDriver fake;
  const auto driver = std::make_shared<const Driver>(fake.table());
  CHECK(driver->version() == 13000);
  const Context context(driver);
  CHECK(context.properties().name == "Fake GPU");
  CHECK(context.properties().compute_capability == 90);
  CHECK(context.properties().multiprocessors == 132);
  CHECK(context.properties().max_shared_bytes_per_block == 232448);
  CHECK(context.properties().memory_bytes == uint64_t{1} << 30);
  CHECK(context.free_memory() == uint64_t{1} << 29);
  CHECK_THROWS_AS(Context(driver, 1), UsageError);
}

TEST_CASE("device buffers carry bytes, and an empty one takes none") {
  FakeCudaDriver fake;
  const Context context(std::make_shared<const Driver>(fake.table()));
  const Stream stream(context);
  const DeviceBuffer buffer(context, 4);
  const std::vector<uint8_t> input = {1, 2};
  buffer.fill(9, stream);
  buffer.upload(input, stream);
  std::vector<uint8_t> output(4);
  buffer.download(output, stream);
  CHECK(output == std::vector<uint8_t>{1, 2, 9, 9});
  CHECK_THROWS_AS(buffer.upload(std::vector<uint8_t>(5), stream), InternalError);
  std::vector<uint8_t> longer(5);
  CHECK_THROWS_AS(buffer.download(longer, stream), InternalError);

  const uint64_t allocations = fake.count("cuMemAlloc");
  const DeviceBuffer empty(context, 0);
  empty.fill(1, stream);
  empty.upload({}, stream);
  empty.download({}, stream);
  CHECK(empty.address() == 0);
  CHECK(fake.count("cuMemAlloc") == allocations);

  fake.fail_every("cuMemAlloc", Result::CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_THROWS_WITH(DeviceBuffer(context, 64), Contains("allocating 64 bytes of device memory") &&
                                                   Contains("CUDA_ERROR_OUT_OF_MEMORY (2)"));
}

TEST_CASE("a module's PTX ends in a NUL, and the driver's log is in the error") {
  FakeCudaDriver fake;
  const Context context(std::make_shared<const Driver>(fake.table()));
  {
    const Module module(context, bytes_of("ptx"));
    CHECK(fake.last_image == std::vector<uint8_t>{'p', 't', 'x', 0});
    CHECK_THROWS_WITH(module.kernel("other"),
                      Contains("the kernel other") && Contains("CUDA_ERROR_NOT_FOUND (500)"));
  }
  fake.jit_error = "ptxas application ptx input, line 7; error : x";
  CHECK_THROWS_WITH(Module(context, bytes_of("ptx")),
                    Contains("line 7; error") && Contains("CUDA_ERROR_INVALID_PTX (218)"));
  CHECK_THROWS_AS(Module(context, {}), InternalError);
}

TEST_CASE("a launch passes shape and arguments on") {
  FakeCudaDriver fake;
  const Context context(std::make_shared<const Driver>(fake.table()));
  const Stream stream(context);
  LaunchShape shape{{3, 2, 1}, {32, 4, 2}, 1024};
  uint64_t address = 0;
  int32_t number = 0;
  fake.on_launch = [&](const FakeCudaDriver::Launch& launch) {
    std::memcpy(&address, launch.parameters[0], 8);
    std::memcpy(&number, launch.parameters[1], 4);
  };
  const Launcher launcher(context, bytes_of("ptx"), "kernel", shape);
  const uint64_t arguments[] = {0x123456789abcull, static_cast<uint64_t>(int64_t{-5})};
  launcher.launch(arguments, stream);
  REQUIRE(fake.launches.size() == 1);
  CHECK(fake.launches[0].kernel == "kernel");
  CHECK(fake.launches[0].grid == std::array<uint32_t, 3>{3, 2, 1});
  CHECK(fake.launches[0].block == std::array<uint32_t, 3>{32, 4, 2});
  CHECK(fake.launches[0].shared_bytes == 1024);
  CHECK(address == 0x123456789abcull);
  CHECK(number == -5);
  CHECK(fake.count("cuFuncSetAttribute") == 0); // up to 48 KB need no permission

  SECTION("more than 48 KB of shared memory is asked for") {
    shape.dynamic_shared_bytes = 48 * 1024 + 1;
    const Launcher large(context, bytes_of("ptx"), "kernel", shape);
    CHECK(fake.function_attributes[FunctionAttribute::max_dynamic_shared_bytes] == 48 * 1024 + 1);
  }
  SECTION("an empty grid launches nothing") {
    shape.grid[1] = 0;
    const Launcher empty(context, bytes_of("ptx"), "kernel", shape);
    empty.launch(arguments, stream);
    CHECK(fake.launches.size() == 1);
  }
  SECTION("timing") {
    const LaunchTiming events = launcher.time_by_events(arguments, stream, 5);
    CHECK(events.samples == 5);
    CHECK(events.median_us == 500.0);
    const LaunchTiming graph = launcher.time_by_graph(arguments, stream, 4, 10);
    CHECK(graph.samples == 4);
    CHECK(graph.median_us == 50.0);
    CHECK(std::count_if(fake.launches.begin(), fake.launches.end(),
                        [](const auto& launch) { return launch.captured; }) == 10);
  }
}

TEST_CASE("shapes that the device cannot run are refused before the launch") {
  FakeCudaDriver fake;
  const Context context(std::make_shared<const Driver>(fake.table()));
  const auto load = [&](const LaunchShape& shape) {
    Launcher(context, bytes_of("ptx"), "kernel", shape);
  };
  CHECK_THROWS_WITH(load({{1, 1, 1}, {1024, 2, 1}, 0}), Contains("2048 threads"));
  CHECK_THROWS_WITH(load({{1, 1, 1}, {32, 1, 1}, 300000}), Contains("300000 bytes"));
  CHECK_THROWS_WITH(load({{1, 65536, 1}, {32, 1, 1}, 0}), Contains("65536 blocks along axis 1"));
  fake.function_attributes[FunctionAttribute::max_threads_per_block] = 256;
  fake.function_attributes[FunctionAttribute::registers] = 255;
  CHECK_THROWS_WITH(load({{1, 1, 1}, {512, 1, 1}, 0}),
                    Contains("512 threads") && Contains("255 registers"));
  CHECK(fake.alive().count("module") == 0);
}

TEST_CASE("this machine's driver opens, or says why not") {
  try {
    const Context context(Driver::open());
    CHECK(context.properties().multiprocessors > 0);
  } catch (const NoGpuError& error) {
    WARN("SKIPPED: " << error.what());
  }
}
