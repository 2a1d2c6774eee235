// Real pruned layers by every road, and times of a few shapes.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "tests/gpu/gpu_spmm.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>

using namespace sparsertc;

namespace {

struct Layer {
  const char* path; ///< below SPARSERTC_DATA
  uint32_t columns; ///< N: the layer's image, 256 for transformers
  DataType type = DataType::f32;
  bool bias = false;
  const char* tile = "";
};
constexpr Layer kLayers[] = {
    {"weights/mobilenet/contraction_1x1_0.npy.gz", 12544, DataType::f32, true},
    {"weights/mobilenet/contraction_1x1_3.npy.gz", 784, DataType::f32, true},
    {"weights/mobilenet/contraction_1x1_7.npy.gz", 196, DataType::f16, true},
    {"weights/rn90_3x3_90/filter_bg1.npy.gz", 3136},
    {"dlmc/rn50/magnitude_pruning/0.8/bottleneck_1_block_group1_1_1.smtx.gz", 3136},
    {"dlmc/rn50/magnitude_pruning/0.98/bottleneck_1_block_group4_1_1.smtx.gz", 49},
    {"dlmc/rn50/variational_dropout/0.9/bottleneck_1_block_group3_1_1.smtx.gz", 196,
     DataType::bf16},
    {"dlmc/rn50/random_pruning/0.9/bottleneck_2_block_group2_1_1.smtx.gz", 784},
    {"dlmc/transformer/magnitude_pruning/0.9/"
     "body_encoder_layer_0_self_attention_multihead_attention_q_fully_connected.smtx.gz",
     256},
    {"dlmc/transformer/l0_regularization/0.9/body_encoder_layer_0_ffn_conv2.smtx.gz", 256,
     DataType::f32, false, "strategy=streamed"},
    {"dlmc/transformer/variational_dropout/0.95/body_encoder_layer_0_ffn_conv1.smtx.gz", 256,
     DataType::f64},
    {"dlmc/transformer/variational_dropout/0.98/body_encoder_layer_0_ffn_conv2.smtx.gz", 256},
    {"dlmc/transformer/random_pruning/0.95/"
     "body_encoder_layer_0_self_attention_multihead_attention_q_fully_connected.smtx.gz",
     2048, DataType::f16},
};

std::optional<std::string> data_folder() {
  const char* folder = std::getenv("SPARSERTC_DATA");
  if (folder && *folder)
    return folder;
  WARN("SKIPPED: SPARSERTC_DATA, the folder of the big test data, is not set");
  return std::nullopt;
}

} // namespace

TEST_CASE("real layers") {
  Machine& machine = Machine::get();
  const auto folder = data_folder();
  if (!folder || !machine.can_test())
    return;
  if (machine.interpreter()) {
    WARN("SKIPPED: too large for the interpreter");
    return;
  }
  constexpr size_t count = std::size(kLayers);
  std::vector<std::optional<PreparedCase>> prepared(count);
  std::vector<std::string> errors(count);
  // Compiling takes far longer than running, so it is done for all layers at once.
  machine.pool().run(count, [&](uint64_t i) {
    const Layer& layer = kLayers[i];
    try {
      GpuCase test;
      ReadOptions read;
      read.random_values_seed = 1;
      test.weights = read_matrix(*folder + "/" + layer.path, read);
      test.problem.type = layer.type;
      test.problem.columns = layer.columns;
      test.problem.epilogue.bias = layer.bias;
      if (layer.bias)
        test.problem.epilogue.activation = Activation::relu;
      test.columns = layer.columns;
      test.tile = layer.tile;
      // The driver would assemble one long kernel on one core: ptxas does where it is found.
      test.roads = {GpuRoad::llvm};
      test.roads.push_back(machine.ptxas() ? GpuRoad::assembled : GpuRoad::direct);
      TaskPool alone(1);
      prepared[i] = prepare(test, alone, 2);
    } catch (const Error& error) {
      errors[i] = error.what();
    }
  });
  for (size_t i = 0; i < count; ++i) {
    INFO(kLayers[i].path);
    CHECK(errors[i] == "");
    if (!prepared[i])
      continue;
    run_and_check(*prepared[i]);
    const PipelineResult& compiled = prepared[i]->compiled;
    for (const GpuProgram& program : prepared[i]->programs)
      fmt::print("layer: {} {}x{} N={} {} | {} | {} | made in {:.1f} s | {:.2f} us\n",
                 kLayers[i].path, compiled.schedule.rows, compiled.schedule.inner,
                 kLayers[i].columns, name_of(kLayers[i].type), to_string(compiled.schedule.tile),
                 name_of(program.road), program.seconds,
                 machine.gpu() ? time_on_gpu(*prepared[i], program).median_us : 0.0);
  }
}

// Prints a table; nothing is required of the numbers, but the results must be right.
TEST_CASE("times") {
  Machine& machine = Machine::get();
  if (!machine.can_test())
    return;
  if (!machine.ptxas() || machine.interpreter()) {
    WARN("SKIPPED: needs ptxas and a GPU");
    return;
  }
  struct Shape {
    uint32_t columns;
    std::vector<const char*> tiles;
  };
  const Shape shapes[] = {
      {256,
       {"", "strategy=unrolled,rows=8,warps=2,splitk=4", "strategy=unrolled,rows=16,warps=4",
        "strategy=unrolled,rows=4,warps=4,splitk=2", "strategy=streamed"}},
      {2048,
       {"", "strategy=unrolled,rows=32,warps=8", "strategy=unrolled,rows=16,warps=16",
        "strategy=unrolled,rows=16,warps=8",
        "strategy=unrolled,rows=32,warps=8,groups=4,stage=smem,chunk=32,prefetch=2",
        "strategy=streamed"}},
  };
  const Matrix weights = random_weights(512, 512, 0.1, 1);
  for (const Shape& shape : shapes)
    for (const char* tile : shape.tiles)
      for (const uint32_t cap : {128u, 96u}) {
        GpuCase test;
        test.weights = weights;
        test.problem.columns = shape.columns;
        test.columns = shape.columns;
        test.tile = tile;
        test.roads = {};
        PreparedCase prepared = prepare(test, machine.pool(), 0);
        prepared.programs.push_back(
            assemble_units(prepared.compiled.lowered, machine.target(), *machine.ptxas(), cap, 0));
        run_and_check(prepared);
        const GpuProgram& program = prepared.programs.front();
        const cuda::LaunchTiming timing =
            machine.gpu() ? time_on_gpu(prepared, program) : cuda::LaunchTiming{};
        fmt::print("time: 512x512x{} 90 % f32 | {} | cap {} | {} registers | made in {:.1f} s | "
                   "{:.2f} us ({:.2f} to {:.2f})\n",
                   shape.columns, to_string(prepared.compiled.schedule.tile), cap,
                   program.registers, program.seconds, timing.median_us, timing.minimum_us,
                   timing.maximum_us);
      }
}
