// nvJitLink and the GPU's driver as assemblers: with fakes, whose calls fail one after the other,
// and with the real nvJitLink where there is one.
#include "compiler/assemble/ptxas.h"
#include "compiler/assemble/ptxas_log.h"
#include "ir/error.h"
#include "runtime/driver/driver_assembler.h"
#include "runtime/driver/nvjitlink_assembler.h"
#include "tests/support/assemble_scene.h"
#include "tests/support/fake_cuda_driver.h"
#include "tests/support/fake_nvjitlink.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <atomic>
#include <thread>

using namespace sparsertc;
using namespace sparsertc::testing;
using Catch::Contains;
using cuda::JitLinkResult;

// Memory that NVIDIA's libraries do not give back is not ours. (Read by the leak checker where a
// build has one.)
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libnvJitLink\nleak:libnvrtc\n";
}

namespace {

struct FakeJit {
  cuda::FakeNvJitLink fake;
  NvJitLinkAssembler assembler{
      std::make_shared<cuda::NvJitLink>(cuda::FakeNvJitLink::table(), "/fake/nvjitlink.so")};
};

struct FakeGpu {
  cuda::FakeCudaDriver fake;
  DriverAssembler assembler{
      std::make_unique<const cuda::Context>(std::make_shared<cuda::Driver>(fake.table()))};
  /// What is alive while nothing is assembled.
  std::map<std::string, uint64_t> idle = fake.alive();
};

std::string row_and_column(size_t unit, uint64_t line) {
  return fmt::format("row {}, column {}", unit, line);
}

/// Three units; "addd" in the last is on line 10.
AssembleRequest& prepare_broken(Scene& scene) {
  AssembleRequest& request =
      scene.prepare({caller(2), callee(0), callee(1, "addd.f32")}, {"sparsertc_many"});
  request.origin_of = row_and_column;
  return request;
}

void check_told_and_kept(const Scene& scene, const std::string& message) {
  CHECK_THAT(message, Contains("unit 2, line 10: Not a name of any known instruction: 'addd'"));
  CHECK_THAT(message, Contains("    10 |   addd.f32 %f1, %f1, 0f3F800000;"));
  CHECK_THAT(message, Contains("note: emitted for the entry at row 2, column 10"));
  CHECK_THAT(message, Contains("reproduce.py are in " + scene.kept.path()));
  const std::filesystem::path kept = scene.kept_failure();
  CHECK(text_of(kept / "unit_00002.ptx") == scene.units[2]);
  CHECK_THAT(text_of(kept / "log.txt"), Contains("'addd'"));
}

} // namespace

// ---- nvJitLink, fake ----

TEST_CASE("nvJitLink: units become one cubin, and options arrive") {
  FakeJit jit;
  CHECK(jit.assembler.identity() == "nvJitLink 13.0");
  Scene scene;
  AssembleRequest& request =
      scene.prepare({kWhole, caller(1), callee(0)}, {"sparsertc_one", "sparsertc_many"});
  request.max_registers = 40;
  jit.fake.added.clear();
  const Assembled result = jit.assembler.assemble(request);
  CHECK(jit.fake.added == scene.units);
  CHECK(jit.fake.options ==
        std::vector<std::string>{"-arch=sm_90", "-verbose", "-O3", "-maxrregcount=40"});
  CHECK(result.assembler == "nvJitLink 13.0");
  REQUIRE(result.functions.size() == 2);
  CHECK(result.functions[0].name == "sparsertc_many");
  CHECK(result.functions[1].is_kernel);
  CHECK(result.functions[1].code_bytes == 128);
  CHECK(result.functions[1].registers == 24);
  CHECK(result.functions[1].barriers == 1);
  CHECK(result.functions[1].spill_store_bytes == 8);
  CHECK(result.functions[1].spill_load_bytes == 16);
  CHECK_THAT(result.log, Contains("Used 24 registers"));
  CHECK(jit.fake.alive() == 0);
  CHECK(scene.is_clean());

  request.optimisation_level = 1;
  request.max_registers = 0;
  jit.assembler.assemble(request);
  CHECK(jit.fake.options == std::vector<std::string>{"-arch=sm_90", "-verbose", "-Xptxas=-O1"});
}

TEST_CASE("nvJitLink: a line that is refused is shown with its origin, and kept") {
  FakeJit jit;
  Scene scene;
  const std::string message = message_of<InternalError>(jit.assembler, prepare_broken(scene));
  CHECK_THAT(message, Contains("assembling PTX for sm_90 (nvJitLink): unit 2"));
  check_told_and_kept(scene, message);
  CHECK_THAT(text_of(scene.kept_failure() / "reproduce.py"),
             Contains("/fake/nvjitlink.so") && Contains("b\"-arch=sm_90\""));
  CHECK(jit.fake.alive() == 0);
  CHECK(scene.is_clean());
}

TEST_CASE("nvJitLink: success without code is noticed") {
  FakeJit jit;
  jit.fake.loses_code = true;
  Scene scene;
  CHECK_THAT(message_of<InternalError>(jit.assembler, scene.prepare({kWhole}, {"sparsertc_one"})),
             Contains("verifying the result of nvJitLink: it does not hold the kernel "
                      "sparsertc_one, only: none"));
  CHECK(text_of(scene.kept_failure() / "unit_00000.ptx") == kWhole);
  CHECK(jit.fake.alive() == 0);
}

TEST_CASE("nvJitLink: success with an error in the log is none") {
  FakeJit jit;
  jit.fake.link_error = "error   : Undefined reference to 'tile_7' in 'unit_00000.ptx'\n";
  Scene scene;
  CHECK_THAT(message_of<InternalError>(jit.assembler, scene.prepare({kWhole}, {"sparsertc_one"})),
             Contains("linking 1 units for sm_90 (nvJitLink): Undefined reference to 'tile_7'"));
  CHECK(jit.fake.alive() == 0);
}

TEST_CASE("nvJitLink: a target that it does not know is about the machine, and nothing is kept") {
  FakeJit jit;
  Scene scene;
  AssembleRequest& request = scene.prepare({kWhole}, {});
  request.target = "sm_20";
  CHECK_THAT(message_of<RuntimeError>(jit.assembler, request),
             Contains("assembling PTX for sm_20 (nvJitLink): nvJitLinkCreate failed: "
                      "NVJITLINK_ERROR_UNSUPPORTED_ARCH (17)"));
  CHECK(entries_of(scene.kept.path()) == 0);
}

TEST_CASE("nvJitLink: each call may fail, and nothing leaks") {
  FakeJit jit;
  Scene scene;
  const AssembleRequest& request = scene.prepare({caller(1), callee(0)}, {"sparsertc_many"});
  int failures = 0;
  for (uint64_t number = 1;; ++number) {
    jit.fake.fail_call(number);
    std::string message;
    try {
      const Assembled result = jit.assembler.assemble(request);
      CHECK(result.functions.size() == 1);
    } catch (const RuntimeError& error) {
      message = error.what();
    }
    const std::string failed = jit.fake.failed_call();
    jit.fake.fail_call(0);
    CHECK(jit.fake.alive() == 0);
    if (failed.empty())
      break;
    CAPTURE(number, failed, message);
    // Logs and the destruction of a link are not worth losing a result.
    const bool harmless = failed.find("Log") != std::string::npos || failed == "nvJitLinkDestroy";
    CHECK(message.empty() == harmless);
    if (!harmless) {
      CHECK_THAT(message, Contains(failed + " failed: NVJITLINK_ERROR_INTERNAL (6)"));
      ++failures;
    }
  }
  CHECK(failures == 6); // create, add (2), complete, size, cubin
  CHECK(scene.is_clean());
}

TEST_CASE("nvJitLink: a library that does not work is refused when it is opened") {
  cuda::FakeNvJitLink fake;
  const auto open = [] {
    return std::make_unique<NvJitLinkAssembler>(
        std::make_shared<cuda::NvJitLink>(cuda::FakeNvJitLink::table()));
  };
  fake.fail_call(1, static_cast<JitLinkResult>(77));
  CHECK_THROWS_WITH(open(), Contains("nvJitLinkVersion failed: nvJitLinkResult (77)"));
  const Scene scene;                        // an empty kernel that fails is kept
  for (uint64_t number : {2, 3, 4, 6, 7}) { // 5 asks for the log
    fake.fail_call(number);
    CHECK_THROWS_AS(open(), RuntimeError);
    CHECK(fake.alive() == 0);
  }
}

TEST_CASE("nvJitLink: assembling stops when asked") {
  FakeJit jit;
  Scene scene;
  AssembleRequest& request = scene.prepare({kWhole}, {});
  const std::atomic<bool> stop = true;
  request.stop = &stop;
  CHECK_THAT(message_of<RuntimeError>(jit.assembler, request), Contains("interrupted"));
  CHECK(jit.fake.alive() == 0);
}

TEST_CASE("nvJitLink: where it was looked for") {
  std::vector<std::string> refused;
  {
    const Environment environment("SPARSERTC_LIBNVJITLINK", "/nonexistent.so");
    CHECK_FALSE(NvJitLinkAssembler::find(refused));
  }
  {
    const Environment environment("SPARSERTC_LIBNVJITLINK", "libm.so.6");
    CHECK_FALSE(NvJitLinkAssembler::find(refused));
  }
  REQUIRE(refused.size() == 2);
  CHECK_THAT(refused[0], Contains("nvJitLink: opening nvJitLink: SPARSERTC_LIBNVJITLINK names "
                                  "/nonexistent.so: "));
  CHECK_THAT(refused[1], Contains("nvJitLink: looking up nvJitLinkVersion in libm.so.6") &&
                             Contains("12.3 or newer"));
}

// ---- the driver, fake ----

TEST_CASE("driver: units become one cubin, and options arrive") {
  FakeGpu gpu;
  CHECK_THAT(gpu.assembler.identity(), Catch::StartsWith("driver 13.0"));
  Scene scene;
  AssembleRequest& request = scene.prepare({caller(1), callee(0)}, {"sparsertc_many"});
  request.target = "sm_90a";
  request.max_registers = 40;
  const Assembled result = gpu.assembler.assemble(request);
  REQUIRE(result.functions.size() == 1);
  CHECK(result.functions[0].name == "sparsertc_many");
  CHECK(result.functions[0].registers == 24);
  CHECK(result.assembler == gpu.assembler.identity());
  CHECK_THAT(result.log, Contains("Used 24 registers"));
  std::map<cuda::JitOption, uintptr_t> options;
  for (size_t i = 0; i < gpu.fake.last_link.options.size(); ++i)
    options[gpu.fake.last_link.options[i]] =
        reinterpret_cast<uintptr_t>(gpu.fake.last_link.values[i]);
  CHECK(options[cuda::JitOption::target] == cuda::kAcceleratedTarget + 90);
  CHECK(options[cuda::JitOption::max_registers] == 40);
  CHECK(options[cuda::JitOption::optimization_level] == 3);
  CHECK(options[cuda::JitOption::log_verbose] == 1);
  CHECK(gpu.fake.alive() == gpu.idle);
  CHECK(scene.is_clean());
}

TEST_CASE("driver: a line that is refused is shown with its origin, and kept") {
  FakeGpu gpu;
  Scene scene;
  const std::string message = message_of<InternalError>(gpu.assembler, prepare_broken(scene));
  CHECK_THAT(message, Contains("assembling PTX for sm_90 (driver): unit 2"));
  check_told_and_kept(scene, message);
  CHECK(gpu.fake.alive() == gpu.idle);
}

TEST_CASE("driver: a target that has no number is about the machine") {
  FakeGpu gpu;
  Scene scene;
  AssembleRequest& request = scene.prepare({kWhole}, {});
  for (const char* target : {"sm_", "sm_90b", "host", "sm_9x"}) {
    request.target = target;
    CHECK_THAT(message_of<RuntimeError>(gpu.assembler, request),
               Contains(std::string("no target of the name ") + target));
  }
  CHECK(gpu.fake.alive() == gpu.idle);
}

TEST_CASE("driver: each call may fail, and nothing leaks") {
  FakeGpu gpu;
  Scene scene;
  const AssembleRequest& request = scene.prepare({caller(1), callee(0)}, {"sparsertc_many"});
  int failures = 0;
  for (uint64_t number = 1;; ++number) {
    gpu.fake.fail_call(number);
    std::string message;
    try {
      const Assembled result = gpu.assembler.assemble(request);
      CHECK(result.functions.size() == 1);
    } catch (const RuntimeError& error) {
      message = error.what();
    }
    const std::string failed = gpu.fake.failed_call();
    gpu.fake.fail_call(0);
    CHECK(gpu.fake.alive() == gpu.idle);
    if (failed.empty())
      break;
    CAPTURE(number, failed, message);
    CHECK(message.empty() == (failed == "cuLinkDestroy"));
    if (!message.empty()) {
      CHECK_THAT(message, Contains(failed + " failed: CUDA_ERROR_UNKNOWN (999)"));
      ++failures;
    }
  }
  CHECK(failures == 5); // current context, create, add (2), complete
  CHECK(scene.is_clean());
}

TEST_CASE("driver: threads that never saw the context may assemble") {
  FakeGpu gpu;
  Scene scene;
  const AssembleRequest& request = scene.prepare({kWhole}, {"sparsertc_one"});
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 3; ++thread)
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i)
          wrong += gpu.assembler.assemble(request).functions.size() != 1;
      });
  }
  CHECK(wrong == 0);
  CHECK(gpu.fake.alive() == gpu.idle);
}

TEST_CASE("driver: where there is none") {
  const Environment environment("SPARSERTC_LIBCUDA", "/nonexistent.so");
  std::vector<std::string> refused;
  CHECK_FALSE(DriverAssembler::find(refused));
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused[0], Contains("driver: no NVIDIA driver: cannot open /nonexistent.so"));
}

// ---- nvJitLink, real ----

namespace {

std::unique_ptr<NvJitLinkAssembler> nvjitlink_or_skip() {
  std::vector<std::string> refused;
  auto found = NvJitLinkAssembler::find(refused);
  if (!found)
    WARN("SKIPPED: " << refused.at(0));
  return found;
}

} // namespace

TEST_CASE("the real nvJitLink makes what ptxas makes") {
  const auto jit = nvjitlink_or_skip();
  if (!jit)
    return;
  CHECK_THAT(jit->identity(), Catch::Matches("nvJitLink [0-9]+\\.[0-9]+(\\.[0-9]+)?"));
  Scene scene;
  const std::vector<std::vector<std::string>> programs = {
      {kWhole}, {caller(4), callee(0), callee(1), callee(2), callee(3)}};
  std::vector<std::string> refused;
  const auto ptxas = Ptxas::find(refused);
  if (!ptxas)
    WARN("SKIPPED in part: " << refused.at(0));
  for (const std::vector<std::string>& program : programs) {
    const std::string kernel = program.size() == 1 ? "sparsertc_one" : "sparsertc_many";
    AssembleRequest& request = scene.prepare(program, {kernel});
    request.max_registers = 32;
    const Assembled result = jit->assemble(request);
    CHECK(find(result, kernel).is_kernel);
    CHECK(find(result, kernel).registers > 0);
    CHECK(find(result, kernel).registers <= 32);
    CHECK(find(result, kernel).code_bytes > 0);
    CHECK(result.functions.size() == program.size());
    CHECK(jit->assemble(request).cubin == result.cubin);
    if (!ptxas)
      continue;
    const Assembled other = ptxas->assemble(request);
    REQUIRE(other.functions.size() == result.functions.size());
    for (size_t i = 0; i < result.functions.size(); ++i) {
      const FunctionResources &ours = result.functions[i], &theirs = other.functions[i];
      CHECK(ours.name == theirs.name);
      CHECK(ours.is_kernel == theirs.is_kernel);
      CHECK(ours.stack_bytes == theirs.stack_bytes);
      CHECK(ours.spill_store_bytes == theirs.spill_store_bytes);
      CHECK(ours.shared_bytes == theirs.shared_bytes);
      // Of different releases it may differ.
      if (jit->identity().substr(jit->identity().find(' ')) ==
          ptxas->identity().substr(ptxas->identity().find(' '))) {
        CHECK(ours.registers == theirs.registers);
        CHECK(ours.code_bytes == theirs.code_bytes);
      }
    }
  }
  CHECK(scene.is_clean());
}

TEST_CASE("the real nvJitLink: a line that is refused is shown, and can be tried again") {
  const auto jit = nvjitlink_or_skip();
  if (!jit)
    return;
  Scene scene;
  const std::string message = message_of<InternalError>(*jit, prepare_broken(scene));
  check_told_and_kept(scene, message);
  const std::string python = "/usr/bin/python3";
  if (!std::filesystem::exists(python)) {
    WARN("SKIPPED in part: no " << python);
    return;
  }
  const ProcessResult again =
      run_process({python, (scene.kept_failure() / "reproduce.py").string()}, "/");
  CHECK_THAT(again.output, Contains("unit_00002.ptx nvJitLinkAddData: 4") && Contains("'addd'"));
}

TEST_CASE("the real nvJitLink: targets and versions that it does not know") {
  const auto jit = nvjitlink_or_skip();
  if (!jit)
    return;
  Scene scene;
  AssembleRequest& request = scene.prepare({kWhole}, {"sparsertc_one"});
  for (const char* target : {"sm_20", "sm_80", "sm_90; true"}) { // the PTX is for sm_90
    request.target = target;
    CHECK_THAT(message_of<RuntimeError>(*jit, request), Contains(target));
  }
  request.target = "sm_90";
  scene.units[0].replace(scene.units[0].find("8.0"), 3, "99.0");
  CHECK_THAT(message_of<RuntimeError>(*jit, request), Contains("99.0"));
  CHECK(entries_of(scene.kept.path()) == 0);
}

TEST_CASE("the real nvJitLink: linking names the function that is missing") {
  const auto jit = nvjitlink_or_skip();
  if (!jit)
    return;
  Scene scene;
  CHECK_THAT(
      message_of<InternalError>(*jit, scene.prepare({caller(2), callee(0)}, {"sparsertc_many"})),
      Contains("linking 2 units for sm_90 (nvJitLink)") &&
          Contains("Undefined reference to 'tile_1'"));
}

TEST_CASE("the real nvJitLink: a fatal error does not hide the next program's errors") {
  const auto jit = nvjitlink_or_skip();
  if (!jit)
    return;
  Scene scene;
  scene.prepare({kWhole}, {"sparsertc_one"});
  scene.units[0].replace(scene.units[0].find("8.0"), 3, "99.0");
  CHECK_THROWS_AS(jit->assemble(scene.request), RuntimeError);
  CHECK_THAT(message_of<InternalError>(*jit, scene.prepare({caller(1)}, {"sparsertc_many"})),
             Contains("Undefined reference to 'tile_0'"));
}

TEST_CASE("the real nvJitLink serves several threads") {
  const auto jit = nvjitlink_or_skip();
  if (!jit)
    return;
  Scene scene;
  const AssembleRequest& request = scene.prepare({caller(1), callee(0)}, {"sparsertc_many"});
  const std::vector<uint8_t> expected = jit->assemble(request).cubin;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i)
          wrong += jit->assemble(request).cubin != expected;
      });
  }
  CHECK(wrong == 0);
}
