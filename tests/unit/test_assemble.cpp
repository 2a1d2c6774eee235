// ptxas and nvlink as subprocesses: what they make, what they say, and what is said when they fail.
#include "compiler/assemble/elf.h"
#include "compiler/assemble/process.h"
#include "compiler/assemble/ptxas.h"
#include "compiler/assemble/ptxas_log.h"
#include "ir/error.h"
#include "tests/support/assemble_scene.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace sparsertc;
using namespace sparsertc::testing;
using Catch::Contains;

namespace {

std::unique_ptr<Ptxas> ptxas_or_skip() {
  std::vector<std::string> refused;
  auto ptxas = Ptxas::find(refused);
  if (!ptxas)
    WARN("SKIPPED: " << refused.at(0));
  return ptxas;
}

} // namespace

TEST_CASE("one unit becomes a cubin") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  CHECK_THAT(ptxas->identity(), Catch::Matches("ptxas [0-9]+\\.[0-9]+\\.[0-9]+"));
  Scene scene;
  const Assembled result = ptxas->assemble(scene.prepare({kWhole}, {"sparsertc_one"}));
  CHECK(result.assembler == ptxas->identity());
  CHECK_THAT(result.log, Contains("Function properties for sparsertc_one"));
  REQUIRE(result.functions.size() == 1);
  const FunctionResources& kernel = find(result, "sparsertc_one");
  CHECK(kernel.is_kernel);
  CHECK(kernel.registers > 0);
  CHECK(kernel.code_bytes > 0);
  CHECK(kernel.spill_store_bytes == 0);
  CHECK(scene.is_clean());
  CHECK(entries_of(scene.kept.path()) == 0);
  // Same input, same bytes.
  CHECK(ptxas->assemble(scene.request).cubin == result.cubin);
}

TEST_CASE("several units are assembled apart and linked") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  Scene scene;
  AssembleRequest& request =
      scene.prepare({caller(4), callee(0), callee(1), callee(2), callee(3)}, {"sparsertc_many"});
  request.jobs = 3;
  request.max_registers = 32;
  const Assembled result = ptxas->assemble(request);
  CHECK(result.functions.size() == 5);
  CHECK(find(result, "sparsertc_many").is_kernel);
  CHECK(find(result, "sparsertc_many").registers > 0);
  CHECK(find(result, "sparsertc_many").registers <= 32);
  CHECK_FALSE(find(result, "tile_3").is_kernel);
  CHECK(find(result, "tile_3").code_bytes > 0);
  CHECK(scene.is_clean());
  request.jobs = 1;
  CHECK(ptxas->assemble(request).cubin == result.cubin);
}

TEST_CASE("a line that is refused is shown, and can be tried again") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  Scene scene;
  // Of several units with an error it is the first that is reported, every time.
  AssembleRequest& request = scene.prepare(
      {caller(3), callee(0), callee(1, "addd.f32"), callee(2, "subb.f32")}, {"sparsertc_many"});
  request.origin_of = [](size_t unit, uint64_t line) {
    return fmt::format("row {}, column {}", unit, line);
  };
  const std::string message = message_of<InternalError>(*ptxas, request);
  CHECK_THAT(message, Contains("assembling PTX for sm_90 (ptxas)"));
  CHECK_THAT(message, Contains("unit 2, line 10: Not a name of any known instruction: 'addd'"));
  CHECK_THAT(message, Contains("10 |   addd.f32 %f1, %f1, 0f3F800000;"));
  CHECK_THAT(message, Contains("note: emitted for the entry at row 2, column 10"));
  CHECK_THAT(message, Contains(scene.kept.path()));
  CHECK(scene.is_clean());

  const std::filesystem::path kept = scene.kept_failure();
  CHECK(text_of(kept / "unit_00002.ptx") == scene.units[2]);
  CHECK_THAT(text_of(kept / "log.txt"), Contains("addd"));
  const ProcessResult again = run_process({"/bin/sh", (kept / "reproduce.sh").string()}, "/");
  CHECK(again.exit_status == 255);
  CHECK_THAT(again.output, Contains("line 10") && Contains("addd"));
}

TEST_CASE("a target that the assembler does not know is about the machine") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  Scene scene;
  AssembleRequest& request = scene.prepare({kWhole}, {"sparsertc_one"});
  request.target = "sm_20";
  CHECK_THAT(message_of<RuntimeError>(*ptxas, request), Contains("sm_20"));
  request.target = "sm_80"; // the PTX is for sm_90
  CHECK_THAT(message_of<RuntimeError>(*ptxas, request), Contains("sm_80"));
  request.target = "sm_90; true";
  CHECK_THAT(message_of<RuntimeError>(*ptxas, request), Contains("sm_90; true"));
  scene.units[0].replace(scene.units[0].find("8.0"), 3, "99.0");
  request.target = "sm_90";
  CHECK_THAT(message_of<RuntimeError>(*ptxas, request), Contains("99.0"));
  CHECK(scene.is_clean());
}

TEST_CASE("a result without the kernel expected is refused") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  Scene scene;
  CHECK_THAT(message_of<InternalError>(*ptxas,
                                       scene.prepare({kWhole}, {"sparsertc_one", "sparsertc_two"})),
             Contains("does not hold the kernel sparsertc_two, only: sparsertc_one"));
  // A function is no kernel.
  CHECK_THAT(message_of<InternalError>(*ptxas, scene.prepare({caller(1), callee(0)}, {"tile_0"})),
             Contains("does not hold the kernel tile_0, only: sparsertc_many"));
  CHECK(scene.is_clean());
}

TEST_CASE("a failure that cannot be kept is still told") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  Scene scene;
  AssembleRequest& request = scene.prepare({callee(0, "addd.f32")}, {});
  request.reproduce_directory = "/nonexistent";
  CHECK_THAT(message_of<InternalError>(*ptxas, request),
             Contains("'addd'") && Contains("nothing could be kept") && Contains("/nonexistent"));
}

TEST_CASE("linking names the function that is missing") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  Scene scene;
  const std::string message =
      message_of<InternalError>(*ptxas, scene.prepare({caller(2), callee(0)}, {"sparsertc_many"}));
  CHECK_THAT(message, Contains("linking 2 units for sm_90 (nvlink)") &&
                          Contains("Undefined reference to 'tile_1'"));
  const std::filesystem::path kept = scene.kept_failure();
  const ProcessResult again = run_process({"/bin/sh", (kept / "reproduce.sh").string()}, "/");
  CHECK_THAT(again.output, Contains("Undefined reference to 'tile_1'"));
  CHECK(scene.is_clean());
}

TEST_CASE("assembling stops when asked") {
  Scene scene;
  // A stand-in that never ends.
  const std::string slow = scene.root.file("slow_ptxas");
  {
    std::ofstream file(slow);
    file << "#!/bin/sh\n[ \"$1\" = --version ] && echo 'release 1.0, V1.0.1' && exit\n"
            "exec sleep 60\n";
  }
  std::filesystem::permissions(slow, std::filesystem::perms::owner_all);
  const Environment environment("SPARSERTC_PTXAS", slow);
  std::vector<std::string> refused;
  const auto ptxas = Ptxas::find(refused);
  REQUIRE(ptxas);
  CHECK(ptxas->identity() == "ptxas 1.0.1");
  AssembleRequest& request = scene.prepare({kWhole, kWhole}, {});
  std::atomic<bool> stop{false};
  request.stop = &stop;
  std::jthread interrupter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  const auto start = std::chrono::steady_clock::now();
  CHECK_THAT(message_of<RuntimeError>(*ptxas, request), Contains("interrupted"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  CHECK(entries_of(scene.root.path()) == 2); // the stand-in and the folder for what failed
  CHECK(entries_of(scene.kept.path()) == 0);
}

TEST_CASE("a missing assembler says where it was looked for") {
  std::vector<std::string> refused;
  {
    const Environment environment("SPARSERTC_PTXAS", "/nonexistent");
    CHECK_FALSE(Ptxas::find(refused));
  }
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused[0], Contains("SPARSERTC_PTXAS names /nonexistent"));
  {
    const Environment environment("SPARSERTC_PTXAS", "/bin/echo");
    CHECK_FALSE(Ptxas::find(refused));
  }
  REQUIRE(refused.size() == 2);
  CHECK_THAT(refused[1], Contains("/bin/echo --version"));
}

TEST_CASE("a cubin cut or damaged anywhere is read without harm") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  Scene scene;
  const std::vector<uint8_t> cubin =
      ptxas->assemble(scene.prepare({kWhole}, {"sparsertc_one"})).cubin;
  REQUIRE(read_cubin_functions(cubin));
  CHECK(read_cubin_functions(cubin)->size() == 1);
  CHECK_FALSE(read_cubin_functions({}));
  for (size_t length = 0; length < cubin.size(); ++length)
    read_cubin_functions(std::vector<uint8_t>(cubin.begin(), cubin.begin() + length));
  for (size_t at = 0; at < cubin.size(); ++at)
    for (const uint8_t value : {uint8_t{0}, uint8_t{0x7f}, uint8_t{0xff}}) {
      std::vector<uint8_t> damaged = cubin;
      damaged[at] = value;
      read_cubin_functions(damaged);
    }
}

TEST_CASE("logs of ptxas and nvlink are understood") {
  std::vector<FunctionResources> functions;
  add_resources("ptxas info    : Compiling entry function 'k' for 'sm_90'\n"
                "ptxas info    : Function properties for k\n"
                "    16 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads\n"
                "ptxas info    : Used 8 registers, used 1 barriers, 128 bytes smem\n"
                "ptxas info    : Compile time = 2.120 ms\n",
                functions);
  add_resources("nvlink info    : Function properties for 'k':\n"
                "nvlink info    : used 24 registers, used 0 barriers, 8 stack, 256 bytes smem, "
                "536 bytes cmem[0], 0 bytes lmem\n",
                functions);
  REQUIRE(functions.size() == 1);
  CHECK(functions[0].name == "k");
  CHECK(functions[0].registers == 24);
  CHECK(functions[0].barriers == 0);
  CHECK(functions[0].stack_bytes == 8);
  CHECK(functions[0].spill_store_bytes == 24);
  CHECK(functions[0].spill_load_bytes == 40);
  CHECK(functions[0].shared_bytes == 256);

  CHECK_FALSE(first_error("ptxas info    : 0 bytes gmem\n"));
  const auto with_line = first_error("ptxas info    : 0 bytes gmem\n"
                                     "ptxas c.ptx, line 8; error   : Not a name: 'addd'\n"
                                     "ptxas fatal   : Ptx assembly aborted due to errors\n");
  REQUIRE(with_line);
  CHECK(with_line->line == 8);
  CHECK(with_line->message == "Not a name: 'addd'");
  const auto without = first_error("nvlink error   : Undefined reference to 't' in 'a.cubin'\n");
  REQUIRE(without);
  CHECK(without->line == 0);
  CHECK(without->message == "Undefined reference to 't' in 'a.cubin'");
  CHECK(version_in("Cuda compilation tools, release 13.0, V13.0.88\nBuild") == "13.0.88");
  CHECK(version_in("nothing").empty());
}

TEST_CASE("the register limit follows the block") {
  CHECK(register_limit(0) == 255);
  CHECK(register_limit(128) == 255);
  CHECK(register_limit(256) == 255);
  CHECK(register_limit(384) == 168);
  CHECK(register_limit(512) == 128);
  CHECK(register_limit(448) == 128); // 14 warps: four for some scheduler
  CHECK(register_limit(576) == 96);
  CHECK(register_limit(1024) == 64);
}

TEST_CASE("processes: arguments, status, output") {
  const ProcessResult echo = run_process({"/bin/echo", "a b", "$HOME;"}, "/");
  CHECK(echo.succeeded());
  CHECK(echo.output == "a b $HOME;\n");
  CHECK(run_process({"/bin/sh", "-c", "pwd; exit 3"}, "/usr").describe() == "exit status 3");
  CHECK(run_process({"/bin/sh", "-c", "kill -9 $$"}, "/").describe() == "signal 9");
  CHECK(run_process({"/bin/cat"}, "/").output.empty());
  CHECK_THROWS_AS(run_process({"/nonexistent"}, "/"), RuntimeError);
  CHECK_THROWS_AS(run_process({"/bin/echo"}, "/nonexistent"), RuntimeError);
  CHECK(command_line({"/bin/x", "-a=b", "it's", "$x", ""}) == "/bin/x -a=b 'it'\\''s' '$x' ''");
}
