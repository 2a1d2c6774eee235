// What the PTX printer makes of whole modules, and that ptxas and nvlink take it.
#include "compiler/emit/ptx.h"
#include "ir/verifier.h"
#include "tests/support/cuda_programs.h"
#include "tests/unit/emit_ptx_modules.h"

#include <catch2/catch.hpp>

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
