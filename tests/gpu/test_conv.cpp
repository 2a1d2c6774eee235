// Convolutions on the GPU: geometries, layouts, types and strategies by every road, and real
// layers.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "tests/gpu/gpu_spmm.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

using namespace sparsertc;

namespace {

constexpr DataType kTypes[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
constexpr const char* kTiles[] = {
    "",
    "strategy=unrolled,rows=5,vec=2,warps=1,prefetch=2",
    "strategy=unrolled,rows=8,warps=1,splitk=4",
    "strategy=unrolled,rows=4,warps=2,groups=3,splitk=2",
    "strategy=unrolled,rows=8,warps=1,weights=const",
    "strategy=streamed,rows=4,warps=2,prefetch=4",
    "strategy=streamed,rows=2,vec=2,warps=1,groups=2",
    "strategy=streamed,rows=3,warps=1,groups=2,splitk=3",
    "strategy=unrolled,rows=8,warps=1,groups=2,cluster=2",
    "strategy=unrolled,rows=8,warps=1,splitk=2,border=own",
    "strategy=streamed,rows=4,warps=2,border=shared",
};

constexpr const char* kStagedTiles[] = {
    "stage=smem",
    "stage=smem,rows=8,warps=1,chunk=1,prefetch=2",
    "stage=smem,rows=3,vec=2,warps=1,chunk=2",
    "stage=smem,rows=5,vec=4,warps=1,groups=2,chunk=3,prefetch=2",
    "stage=smem,rows=4,warps=3,groups=8,chunk=6",
    "stage=smem,rows=9,warps=1,groups=2,splitk=3,chunk=4",
    "stage=smem,rows=6,vec=2,warps=2,splitk=2,prefetch=2",
};
/// Of kGeometries those with images of even width, and the one that is a product of matrices.
constexpr size_t kEvenWidths[] = {5, 6, 8, 9, 11};
constexpr size_t kProduct = 10;

struct Geometry {
  const char* words; ///< of --conv
  uint32_t filters;
};
constexpr Geometry kGeometries[] = {
    {"N=2,H=17,W=15,C=6,R=3,S=3,pad=1", 20},
    {"N=1,H=7,W=7,C=12,R=3,S=3,pad=1", 24},
    {"N=3,H=12,W=13,C=4,R=3,S=3,pad=1,stride=2", 10},
    {"N=1,H=16,W=19,C=3,R=5,S=5,pad=2,taps=rsc", 9},
    {"N=2,H=15,W=15,C=2,R=7,S=7,pad=3,stride=2", 8},
    {"N=1,H=14,W=20,C=4,R=3,S=3,dilation=2x3,pad_top=2,pad_right=5", 7},
    {"N=2,H=11,W=18,C=5,R=1,S=5,pad=0x2", 6},
    {"N=2,H=18,W=11,C=5,R=4,S=1,pad=2x0", 6},
    {"N=2,H=12,W=12,C=16,R=3,S=3,pad=1,groups=16", 16},
    {"N=2,H=12,W=12,C=8,R=3,S=3,pad=1,groups=4", 12},
    {"N=1,H=12,W=12,C=24,R=1,S=1", 16},
    {"N=3,H=12,W=12,C=24,R=1,S=1", 16},
    {"N=1,H=1,W=1,C=9,R=3,S=3,pad=1", 5},
};

GpuCase make_case(const Geometry& geometry, DataType type, Layout layout, bool fixed,
                  std::string tile) {
  const ConvolutionWords words = parse_convolution(geometry.words);
  const Convolution& conv = words.convolution;
  GpuCase test;
  test.weights =
      random_weights(geometry.filters,
                     conv.channels / conv.groups * conv.filter_height * conv.filter_width, 0.4, 31);
  test.problem.type = type;
  test.problem.layout = layout;
  test.problem.convolution = conv;
  if (fixed)
    test.problem.columns = words.images;
  test.columns = *words.images;
  test.tile = std::move(tile);
  return test;
}

struct Layer {
  const char* path; ///< below SPARSERTC_DATA
  const char* words;
  DataType type = DataType::f32;
  Layout layout = Layout::row_major;
  const char* tile = "";
};
constexpr Layer kLayers[] = {
    {"weights/rn90_3x3_90/filter_bg1.npy.gz", "N=1,H=56,W=56,R=3,S=3,pad=1"},
    {"weights/rn90_3x3_90/filter_bg2.npy.gz", "N=1,H=28,W=28,R=3,S=3,pad=1"},
    {"weights/rn90_3x3_95/filter_bg3.npy.gz", "N=8,H=14,W=14,R=3,S=3,pad=1"},
    {"weights/rn90_3x3_95/filter_bg1.npy.gz", "N=8,H=56,W=56,R=3,S=3,pad=1", DataType::f16},
    {"dlmc/rn50/magnitude_pruning/0.95/bottleneck_2_block_group4_1_1.smtx.gz",
     "N=1,H=7,W=7,R=3,S=3,pad=1"},
    {"dlmc/rn50/magnitude_pruning/0.98/bottleneck_2_block_group4_1_1.smtx.gz",
     "N=8,H=7,W=7,R=3,S=3,pad=1", DataType::f32, Layout::column_major},
    {"weights/rn90_3x3_90/filter_bg2.npy.gz", "N=8,H=28,W=28,R=3,S=3,pad=1", DataType::f32,
     Layout::row_major, "stage=smem,rows=32,warps=8"},
    {"dlmc/rn50/magnitude_pruning/0.95/bottleneck_2_block_group4_1_1.smtx.gz",
     "N=8,H=7,W=7,R=3,S=3,pad=1", DataType::f32, Layout::row_major, "stage=smem,rows=8,warps=7"},
    {"weights/rn90_3x3_90/filter_bg2.npy.gz", "N=8,H=28,W=28,R=3,S=3,pad=1", DataType::f32,
     Layout::column_major, "stage=smem,rows=32,warps=8"},
};

} // namespace

TEST_CASE("convolutions of every geometry") {
  if (!Machine::get().can_test())
    return;
  unsigned number = 0;
  for (const Geometry& geometry : kGeometries)
    for (const char* strategy : {"strategy=unrolled", "strategy=streamed"})
      for (const Layout layout : {Layout::row_major, Layout::column_major}) {
        GpuCase test = make_case(geometry, kTypes[number % 4], layout, number % 3 != 0, strategy);
        test.problem.epilogue = {number % 2 == 0, number % 5 < 2,
                                 number % 4 == 3 ? Activation::silu : Activation::relu};
        check_case(test);
        ++number;
      }
}

TEST_CASE("convolutions by every tile") {
  if (!Machine::get().can_test())
    return;
  for (const char* tile : kTiles)
    for (const DataType type : kTypes)
      check_case(make_case(kGeometries[0], type, Layout::row_major, true, tile));
}

TEST_CASE("convolutions of staged images") {
  if (!Machine::get().can_test())
    return;
  unsigned number = 0;
  for (const char* tile : kStagedTiles)
    for (size_t i = 0; i < std::size(kGeometries); ++i) {
      ++number;
      const bool even = std::count(std::begin(kEvenWidths), std::end(kEvenWidths), i) != 0;
      if (number % 2 == 0 || i == kProduct)
        continue;
      const DataType type = kTypes[even ? number / 2 % 4 : 0];
      const bool can_be_nhwc = type == DataType::f32 || type == DataType::f64;
      const Layout layout = can_be_nhwc && i % 2 == 0 ? Layout::column_major : Layout::row_major;
      GpuCase test = make_case(kGeometries[i], type, layout, number % 3 != 0, tile);
      test.problem.epilogue = {number % 4 == 1, number % 5 < 2, Activation::relu};
      test.nonfinite = number % 4 == 3;
      check_case(test);
    }
}

TEST_CASE("NaN and infinity in images reach the outputs they should") {
  if (!Machine::get().can_test())
    return;
  for (const char* tile : kTiles)
    for (const size_t geometry : {0, 1, 2}) {
      GpuCase test = make_case(kGeometries[geometry], DataType::f32, Layout::row_major, true, tile);
      test.nonfinite = true;
      test.roads = {GpuRoad::direct, GpuRoad::llvm};
      check_case(test);
    }
}

TEST_CASE("convolutions of slices", "[interpret]") {
  if (!Machine::get().can_test())
    return;
  for (const char* tile : {"strategy=unrolled", "strategy=streamed", "stage=smem,rows=5,vec=2"})
    for (const Layout layout : {Layout::row_major, Layout::column_major}) {
      GpuCase test = make_case(kGeometries[0], DataType::f32, layout, true, tile);
      const bool nchw = layout == Layout::row_major;
      test.problem.ldb = nchw ? 9 * 17 * 15 : 9;
      test.problem.ldc = nchw ? 32 * 17 * 15 : 32;
      test.problem.epilogue = {true, true, Activation::relu};
      check_case(test);
    }
}

TEST_CASE("small convolutions for the sanitizer", "[sanitize]") {
  if (!Machine::get().can_test())
    return;
  unsigned number = 0;
  for (size_t i = 0; i < std::size(kStagedTiles); ++i) {
    GpuCase test =
        make_case(kGeometries[i], DataType::f32,
                  i % 2 == 0 ? Layout::column_major : Layout::row_major, true, kStagedTiles[i]);
    test.roads = {GpuRoad::direct};
    check_case(test);
  }
  for (const Geometry& geometry : kGeometries) {
    GpuCase test = make_case(geometry, DataType::f32,
                             number % 2 == 0 ? Layout::row_major : Layout::column_major, true,
                             kTiles[number % std::size(kTiles)]);
    test.roads = {GpuRoad::direct};
    check_case(test);
    ++number;
  }
}

TEST_CASE("real convolutions") {
  Machine& machine = Machine::get();
  const char* folder = std::getenv("SPARSERTC_DATA");
  if (!folder || !*folder) {
    WARN("SKIPPED: SPARSERTC_DATA, the folder of the big test data, is not set");
    return;
  }
  if (!machine.can_test())
    return;
  if (machine.interpreter()) {
    WARN("SKIPPED: too large for the interpreter");
    return;
  }
  constexpr size_t count = std::size(kLayers);
  std::vector<std::optional<PreparedCase>> prepared(count);
  std::vector<std::string> errors(count);
  machine.pool().run(count, [&](uint64_t i) {
    const Layer& layer = kLayers[i];
    try {
      const ConvolutionWords words = parse_convolution(layer.words);
      GpuCase test;
      ReadOptions read;
      read.random_values_seed = 1;
      test.weights = read_matrix(std::string(folder) + "/" + layer.path, read);
      test.problem.type = layer.type;
      test.problem.layout = layer.layout;
      test.problem.convolution = words.convolution;
      test.problem.columns = words.images;
      test.columns = *words.images;
      test.tile = layer.tile;
      // The driver would assemble one long kernel on one core: ptxas does where it is found.
      test.roads = {machine.ptxas() ? GpuRoad::assembled : GpuRoad::direct};
      TaskPool alone(1);
      prepared[i] = prepare(test, alone, 4);
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
    const SpmmSchedule& schedule = prepared[i]->compiled.schedule;
    for (const GpuProgram& program : prepared[i]->programs)
      fmt::print("convolution: {} {} {} | {} interior, {} border pixels | {} | made in {:.1f} s | "
                 "{} registers | {:.2f} us\n",
                 kLayers[i].path, kLayers[i].words, name_of(kLayers[i].type),
                 schedule.pixels.interior_count(), schedule.pixels.border_count(),
                 to_string(schedule.tile), program.seconds, program.registers,
                 machine.gpu() ? time_on_gpu(*prepared[i], program).median_us : 0.0);
  }
}
