// ptxas, nvJitLink and the GPU's driver, each as the assembler of the same PTX: their code gives
// the same bits, and each says what its kernels take.
#include "compiler/assemble/process.h"
#include "ir/error.h"
#include "runtime/driver/driver_assembler.h"
#include "runtime/driver/nvjitlink_assembler.h"
#include "tests/gpu/gpu_spmm.h"
#include "tools/gpu.h"
#include "tools/spmm_check.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

using namespace sparsertc;

namespace {

struct Layer {
  const char* tile;
  DataType type;
};

std::vector<std::unique_ptr<Assembler>> assemblers_of_machine() {
  std::vector<std::string> refused;
  std::vector<std::unique_ptr<Assembler>> assemblers;
  assemblers.push_back(Ptxas::find(refused));
  assemblers.push_back(NvJitLinkAssembler::find(refused));
  assemblers.push_back(DriverAssembler::find(refused));
  std::erase(assemblers, nullptr);
  for (const std::string& reason : refused)
    WARN("without " << reason);
  return assemblers;
}

} // namespace

TEST_CASE("assemblers: the same PTX gives the same bits by each of them") {
  Machine& machine = Machine::get();
  if (!machine.can_test())
    return;
  if (machine.interpreter() != nullptr) {
    WARN("SKIPPED: the interpreter does not run machine code");
    return;
  }
  const cuda::Context* gpu = machine.gpu();
  const std::vector<std::unique_ptr<Assembler>> assemblers = assemblers_of_machine();
  // Several tiles; shared memory that all of them use (splitk) and that each has (stage=smem).
  const Layer layers[] = {
      {"strategy=unrolled,rows=8,vec=1,warps=2,groups=1,splitk=1", DataType::f32},
      {"strategy=unrolled,rows=8,vec=1,warps=2,groups=1,splitk=4", DataType::f32},
      {"strategy=unrolled,rows=16,vec=2,warps=2,groups=1,splitk=1,stage=smem,chunk=16",
       DataType::f16},
      {"strategy=streamed,rows=8", DataType::f32},
  };
  size_t compared = 0;
  for (const Layer& layer : layers) {
    CAPTURE(layer.tile);
    PipelineOptions pipeline;
    pipeline.problem.type = layer.type;
    pipeline.problem.columns = 96;
    pipeline.target = machine.target();
    pipeline.tile = parse_tile_choice(layer.tile);
    pipeline.artefact = Artefact::cubin;
    std::vector<double> first;
    for (const std::unique_ptr<Assembler>& assembler : assemblers) {
      CAPTURE(assembler->identity());
      pipeline.assembler = assembler.get();
      PipelineResult compiled;
      try {
        compiled = compile_spmm([] { return random_weights(96, 128, 0.2, 11); }, pipeline);
      } catch (const RuntimeError& error) {
        // A toolkit older than the GPU, say.
        WARN("without " << assembler->identity() << ": " << error.what());
        continue;
      }
      for (const KernelManifest& kernel : compiled.lowered.kernels) {
        const auto& functions = compiled.assembled.functions;
        const auto found =
            std::find_if(functions.begin(), functions.end(),
                         [&](const FunctionResources& one) { return one.name == kernel.entry; });
        REQUIRE(found != functions.end());
        fmt::print("layer: {} by {}: {} registers, {} spilled, {} shared, {} bytes of code\n",
                   layer.tile, assembler->identity(), found->registers, found->spill_store_bytes,
                   found->shared_bytes, found->code_bytes);
        CHECK(found->is_kernel);
        CHECK(found->registers > 0);
      }
      if (gpu == nullptr)
        continue;
      if (!takes_cubins(*gpu, pipeline.target, assembler->identity())) {
        WARN("not run: the driver is older than " << assembler->identity());
        continue;
      }
      const SpmmOperands operands =
          make_operands(compiled.weights, pipeline.problem, OperandSources{}, 96);
      const SpmmBuffers buffers = lay_out(operands, pipeline.problem);
      run_on_gpu(*gpu, compiled.artefact, compiled.schedule, compiled.lowered.kernels, buffers, 96,
                 1);
      const std::vector<double> result = read_back(buffers, operands, pipeline.problem);
      if (first.empty()) {
        first = result;
        CHECK(check_spmm(compiled.weights, pipeline.problem, compiled.schedule.tile, operands,
                         result, machine.pool())
                  .passed);
      } else {
        CHECK(std::memcmp(first.data(), result.data(), result.size() * sizeof(double)) == 0);
        ++compared;
      }
    }
  }
  if (compared == 0)
    WARN("SKIPPED in part: only one assembler, nothing to compare");
}

TEST_CASE("assemblers: the driver shows the line that it refuses") {
  Machine& machine = Machine::get();
  if (machine.gpu() == nullptr || machine.interpreter() != nullptr) {
    WARN("SKIPPED: no GPU");
    return;
  }
  std::vector<std::string> refused;
  const auto driver = DriverAssembler::find(refused);
  REQUIRE(driver);
  const std::vector<std::string> units = {fmt::format(
      ".version {}\n.target {}\n.address_size 64\n.visible .entry sparsertc_one()\n{{\n  .reg .f32 "
      "%f<2>;\n  addd.f32 %f1, %f1, %f1;\n  ret;\n}}\n",
      machine.target().ptx_version, machine.target().name)};
  const TemporaryDirectory kept;
  AssembleRequest request;
  request.units = units;
  request.target = machine.target().name;
  request.reproduce_directory = kept.path();
  CHECK_THROWS_WITH(driver->assemble(request), Catch::Contains("line 7: ") &&
                                                   Catch::Contains("addd.f32 %f1, %f1, %f1;") &&
                                                   Catch::Contains("reproduce.py are in"));
  CHECK_THROWS_AS(driver->assemble(request), InternalError);
}
