// What the PTX printer makes of whole modules, and that ptxas and nvlink take it.
#include "compiler/emit/ptx.h"
#include "compiler/emit/ptx_origin.h"
#include "ir/parser.h"
#include "ir/verifier.h"
#include "tests/support/cuda_programs.h"
#include "tests/unit/emit_ptx_modules.h"

#include <catch2/catch.hpp>

#include <map>
#include <sstream>

using namespace sparsertc;
using namespace sparsertc::ir;
using Catch::Matchers::Contains;
using sparsertc::testing::every_operation;
using sparsertc::testing::spmm_shaped;

namespace {

/// Skips aloud where there is no toolkit.
std::string ptxas_or_skip() {
  std::string path = sparsertc::testing::find_cuda_program("ptxas");
  if (path.empty())
    WARN("SKIPPED: ptxas not found, so the PTX is not assembled");
  return path;
}

std::vector<std::string> gpu_targets() {
  std::vector<std::string> names = known_targets();
  names.pop_back(); // host
  return names;
}

void require_assembles(const std::string& ptxas, const std::string& text, const std::string& target,
                       const std::vector<std::string>& flags = {}) {
  const sparsertc::testing::TemporaryFolder folder;
  std::vector<std::string> command = {
      ptxas, "-O0", "-arch=" + target, "-o", folder.file("out"), folder.write("in.ptx", text)};
  command.insert(command.end(), flags.begin(), flags.end());
  const auto result = sparsertc::testing::run_program(command);
  INFO(target);
  INFO(result.output);
  REQUIRE(result.status == 0);
}

} // namespace

TEST_CASE("the modules of these tests are well formed") {
  CHECK_NOTHROW(verify_or_throw(every_operation(), "every_operation"));
  CHECK_NOTHROW(verify_or_throw(spmm_shaped(5, 9), "spmm_shaped"));
}

TEST_CASE("a switch checks its index and calls through a table") {
  const std::string text = emit_ptx(spmm_shaped(2, 1), find_target("sm_90a"));
  CHECK_THAT(text, Contains("\tsetp.ge.u32 %p1, %r2, 2;\n\t@%p1 bra $L_1;\n"));
  CHECK_THAT(text, Contains("$L_0: .branchtargets\n\t\t$L_2, $L_3;\n\tbrx.idx %r"));
  CHECK_THAT(text, Contains("\tcall.uni tile_1, ($a0, $a1, $a2, $a3, $a4);\n"));
  CHECK_THAT(text, Contains(".visible .entry sparsertc_spmm(\n\t.param .b64 .ptr .global .align 4 "
                            "sparsertc_spmm_param_0,"));
  CHECK_THAT(text, Contains(".reqntid 64, 2, 1\n.maxnreg 128\n{"));
  CHECK_THAT(text, Contains("// op: spmm\n"));
  CHECK_THAT(text, Contains(".version 8.0\n.target sm_90a\n.address_size 64\n"));
  CHECK(text.find(".func tile_0") < text.find(".entry"));
}

TEST_CASE("the same module gives the same bytes") {
  const Target target = find_target("sm_100");
  CHECK(emit_ptx(every_operation(), target) == emit_ptx(every_operation(), target));
}

TEST_CASE("ptxas takes every operation for every target") {
  const std::string ptxas = ptxas_or_skip();
  for (const std::string& name : gpu_targets()) {
    const Target target = find_target(name);
    const std::string text = emit_ptx(every_operation(), target, {true});
    CHECK(text.size() > 10000);
    if (!ptxas.empty())
      require_assembles(ptxas, text, name);
  }
}

TEST_CASE("ptxas takes SpMM-shaped kernels whole and in units that link") {
  const std::string ptxas = ptxas_or_skip();
  const std::string nvlink = sparsertc::testing::find_cuda_program("nvlink");
  for (const std::string& name : gpu_targets()) {
    const Target target = find_target(name);
    for (bool dynamic : {false, true}) {
      Module module = spmm_shaped(5, 9);
      if (dynamic)
        module.symbols[3].count = 16000;
      const std::vector<std::string> together = emit_ptx_units(module, target);
      REQUIRE(together.size() == 2);
      CHECK_THAT(together[1], Contains(".visible .func tile_0") &&
                                  Contains(".visible .func tile_4") &&
                                  Contains(".global .align 16 .f32 values[5] = {") &&
                                  Contains(".extern .const"));
      PtxOptions apart;
      apart.operations_of_unit = 1;
      const std::vector<std::string> units = emit_ptx_units(module, target, apart);
      REQUIRE(units.size() == 6);
      CHECK_THAT(units[0], Contains(".entry sparsertc_spmm") && Contains(".extern .func tile_4") &&
                               Contains(".visible .const .align 16 .f32 bias[3]") &&
                               !Contains(" values["));
      CHECK_THAT(units[2], Contains(".visible .func tile_1") && Contains(".extern .const") &&
                               Contains(".global .align 16 .f32 values[5] = {"));
      CHECK_THAT(units[5], !Contains("values") && !Contains("bias"));
      if (ptxas.empty())
        continue;
      require_assembles(ptxas, emit_ptx(module, target), name);
      const sparsertc::testing::TemporaryFolder folder;
      std::vector<std::string> link = {nvlink, "-arch=" + name, "-o", folder.file("linked.cubin")};
      if (!dynamic)
        require_assembles(ptxas, together[1], name, {"-c"});
      for (size_t i = 0; i < units.size(); ++i) {
        const std::string object = folder.file("unit" + std::to_string(i) + ".o");
        const auto result =
            sparsertc::testing::run_program({ptxas, "-c", "-O0", "-arch=" + name, "-o", object,
                                             folder.write("unit.ptx", units[i])});
        INFO(units[i]);
        INFO(result.output);
        REQUIRE(result.status == 0);
        link.push_back(object);
      }
      if (nvlink.empty()) {
        WARN("SKIPPED: nvlink not found, so the units are not linked");
        continue;
      }
      const auto result = sparsertc::testing::run_program(link);
      INFO(result.output);
      REQUIRE(result.status == 0);
    }
  }
}

TEST_CASE("every line of the units leads back to the entry that it was emitted for") {
  const Module module = parse("func @one(%b: device.f32) {\n"
                              "  %x0 = load.device.f32.readonly %b + 68  !2,17\n"
                              "  %x1 = const.f32 0\n"
                              "  %x1 = fma.f32 %x0, 0f3F000000, %x1  !3,17\n"
                              "  store.device.f32 %b, %x1\n"
                              "}\n"
                              "func @two(%b: device.bf16) {\n"
                              "  %x0 = load.device.bf16 %b\n"
                              "  %x1 = fma.bf16 %x0, %x0, %x0  !5,1\n"
                              "  store.device.bf16 %b, %x1\n"
                              "}\n",
                              "origins.sir");
  verify_or_throw(module, "origins.sir");
  for (const char* name : {"sm_80", "sm_90"}) { // bf16 takes several lines on the first
    const Target target = find_target(name);
    const std::vector<std::string> units = emit_ptx_units(module, target);
    std::map<std::string, unsigned> lines_of;
    for (size_t unit = 0; unit < units.size(); ++unit) {
      std::istringstream lines(units[unit]);
      uint64_t number = 0;
      for (std::string line; std::getline(lines, line);) {
        const std::string origin = ptx_origin(module, target, {}, unit, ++number);
        ++lines_of[origin];
        INFO(line);
        CHECK((origin == "row 3, column 17") == (line.find("fma.rn.f32 %f1, %f0, 0f3F") == 1));
        CHECK((origin == "row 2, column 17") == (line.find("ld.global.nc.b32") == 1));
        if (line.find("fma.rn.bf16") != std::string::npos)
          CHECK(origin == "row 5, column 1");
      }
      CHECK(ptx_origin(module, target, {}, unit, number + 1).empty());
    }
    CHECK(lines_of.size() == 4); // those three, and none
    CHECK(lines_of["row 5, column 1"] >= 1);
    CHECK(ptx_origin(module, target, {}, units.size(), 1).empty());
  }
}
