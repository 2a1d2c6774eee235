// SpMM on the GPU: every type, strategy and shape of tile by every road, against float64 and the
// host program.
#include "tests/gpu/gpu_spmm.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <optional>

using namespace sparsertc;

namespace {

constexpr DataType kTypes[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
constexpr const char* kUnrolled = "strategy=unrolled";
constexpr const char* kStreamed = "strategy=streamed";

struct TileWords {
  const char* words;
  bool staged = false; ///< needs row-major B, and N in whole copies of 4 bytes
};
constexpr TileWords kTiles[] = {
    {""},
    {"strategy=unrolled,rows=8,vec=1,warps=1"},
    {"strategy=unrolled,rows=5,vec=2,warps=1,prefetch=2"},
    {"strategy=unrolled,rows=16,vec=4,warps=2"},
    {"strategy=unrolled,rows=7,vec=3,warps=1"},
    {"strategy=unrolled,rows=8,warps=1,splitk=4"},
    {"strategy=unrolled,rows=4,warps=2,groups=3,splitk=2"},
    {"strategy=unrolled,rows=8,warps=1,weights=const"},
    {"strategy=unrolled,rows=8,warps=1,groups=4,stage=smem,chunk=16,prefetch=2", true},
    {"strategy=unrolled,rows=8,vec=2,warps=1,groups=4,stage=smem,chunk=8,prefetch=3", true},
    {"strategy=unrolled,rows=5,vec=2,warps=1,groups=2,splitk=2,order=similar"},
    {"strategy=unrolled,rows=8,warps=1,groups=4,stage=smem,chunk=16,prefetch=2,order=similar",
     true},
    {"strategy=streamed,rows=1,warps=1"},
    {"strategy=streamed,rows=4,warps=2,prefetch=4"},
    {"strategy=streamed,rows=2,vec=2,warps=1,groups=2"},
    {"strategy=streamed,rows=4,warps=1,splitk=3"},
    {"strategy=streamed,rows=3,vec=4,warps=1,groups=2,splitk=2"},
    // Clusters: from sm_90 on.
    {"strategy=unrolled,rows=8,warps=1,cluster=2"},
    {"strategy=unrolled,rows=5,vec=2,warps=1,groups=2,splitk=2,cluster=4"},
    {"strategy=unrolled,rows=16,warps=2,cluster=8"},
    {"strategy=streamed,rows=3,warps=1,groups=2,splitk=2,cluster=2"},
};
bool runs_here(const TileWords& tile) {
  constexpr uint32_t kFirstWithClusters = 90;
  return std::string_view(tile.words).find("cluster") == std::string_view::npos ||
         Machine::get().target().compute_capability >= kFirstWithClusters;
}

struct Columns {
  Layout layout;
  uint32_t columns;
  bool fixed;
};
constexpr Columns kWholeBlocks = {Layout::row_major, 128, true};
constexpr Columns kOtherColumns[] = {{Layout::column_major, 37, true},
                                     {Layout::row_major, 45, false},
                                     {Layout::column_major, 45, false},
                                     {Layout::row_major, 50, true}};

GpuCase make_case(Matrix weights, DataType type, const Columns& columns, std::string tile) {
  GpuCase test;
  test.weights = std::move(weights);
  test.problem.type = type;
  test.problem.layout = columns.layout;
  if (columns.fixed)
    test.problem.columns = columns.columns;
  test.columns = columns.columns;
  test.tile = std::move(tile);
  return test;
}

void check_tiles(DataType type) {
  const Matrix weights = random_weights(50, 83, 0.3, 11, true);
  unsigned number = 0;
  for (const TileWords& tile : kTiles) {
    if (!runs_here(tile))
      continue;
    check_case(make_case(weights, type, kWholeBlocks, tile.words));
    const Columns& other = tile.staged ? kOtherColumns[3] : kOtherColumns[number++ % 4];
    check_case(make_case(weights, type, other, tile.words));
  }
}

} // namespace

TEST_CASE("tiles f32") {
  if (Machine::get().can_test())
    check_tiles(DataType::f32);
}
TEST_CASE("tiles f16") {
  if (Machine::get().can_test())
    check_tiles(DataType::f16);
}
TEST_CASE("tiles bf16") {
  if (Machine::get().can_test())
    check_tiles(DataType::bf16);
}
TEST_CASE("tiles f64") {
  if (Machine::get().can_test())
    check_tiles(DataType::f64);
}

TEST_CASE("sizes at the edge") {
  if (!Machine::get().can_test())
    return;
  struct Size {
    uint32_t rows, inner, columns;
    double density;
  };
  constexpr Size sizes[] = {
      {0, 5, 7, 0.5},   {5, 0, 7, 0.5},    {5, 7, 0, 0.5},   {1, 1, 1, 1.0},  {1, 1, 33, 0.0},
      {1, 64, 33, 0.5}, {33, 1, 65, 1.0},  {7, 9, 1, 0.5},   {17, 19, 31, 1}, {9, 40, 129, 0.0},
      {40, 9, 2, 0.02}, {65, 65, 63, 0.1}, {3, 200, 32, 0.9}};
  for (const DataType type : kTypes)
    for (const char* strategy : {kUnrolled, kStreamed})
      for (const Size& size : sizes) {
        const Matrix weights = random_weights(size.rows, size.inner, size.density, 3);
        GpuCase test = make_case(weights, type, {Layout::row_major, size.columns, true}, strategy);
        test.roads = {GpuRoad::direct, GpuRoad::llvm};
        check_case(test);
      }
}

TEST_CASE("one entry in each corner") {
  if (!Machine::get().can_test())
    return;
  for (const char* strategy : {kUnrolled, kStreamed})
    for (const uint32_t row : {0u, 32u})
      for (const uint32_t column : {0u, 40u}) {
        Matrix weights = random_weights(33, 41, 0.0, 1);
        weights.pattern.column_index = {column};
        for (uint32_t i = row + 1; i <= 33; ++i)
          weights.pattern.row_offset[i] = 1;
        weights.values = {-0.75};
        check_case(make_case(weights, DataType::f32, {Layout::row_major, 35, true}, strategy));
      }
}

TEST_CASE("explicit and negative zeros stay") {
  if (!Machine::get().can_test())
    return;
  for (const char* strategy : {kUnrolled, kStreamed}) {
    Matrix weights = random_weights(20, 30, 0.4, 5);
    for (size_t i = 0; i < weights.values.size(); i += 3)
      weights.values[i] = i % 2 == 0 ? 0.0 : -0.0;
    GpuCase test = make_case(weights, DataType::f32, {Layout::row_major, 40, true}, strategy);
    check_case(test);
    // Zero times infinity is NaN: an entry may not be dropped.
    test.nonfinite = true;
    check_case(test);
  }
}

TEST_CASE("epilogues") {
  if (!Machine::get().can_test())
    return;
  const Matrix weights = random_weights(21, 40, 0.3, 7);
  unsigned number = 0;
  for (const DataType type : kTypes)
    for (const Activation activation :
         {Activation::none, Activation::relu, Activation::gelu, Activation::silu})
      for (const auto& [bias, residual] : {std::pair{true, false}, {false, true}, {true, true}}) {
        const bool streamed = number % 2 == 1;
        const Layout layout = number % 3 == 0 ? Layout::column_major : Layout::row_major;
        GpuCase test =
            make_case(weights, type, {layout, 50, number % 4 != 1},
                      streamed ? "strategy=streamed,rows=2" : "strategy=unrolled,rows=8");
        test.problem.epilogue = {bias, residual, activation};
        test.roads = {GpuRoad::direct, GpuRoad::llvm};
        check_case(test);
        ++number;
      }
}

TEST_CASE("epilogues of split and staged tiles") {
  if (!Machine::get().can_test())
    return;
  const Matrix weights = random_weights(21, 40, 0.3, 7);
  for (const DataType type : kTypes)
    for (const char* tile :
         {"strategy=unrolled,rows=8,warps=1,splitk=4", "strategy=streamed,rows=2,splitk=2",
          "strategy=unrolled,rows=8,warps=1,groups=4,stage=smem,chunk=8,prefetch=2"}) {
      GpuCase test = make_case(weights, type, {Layout::row_major, 52, true}, tile);
      test.problem.epilogue = {true, true, Activation::silu};
      check_case(test);
    }
}

TEST_CASE("products gathered in half precision") {
  if (!Machine::get().can_test())
    return;
  const Matrix weights = random_weights(30, 70, 0.4, 13);
  for (const DataType type : {DataType::f16, DataType::bf16})
    for (const uint32_t terms : {1u, 4u, 8u})
      for (const char* tile : {"strategy=unrolled,rows=8,vec=2,warps=1", kUnrolled, kStreamed})
        for (const uint32_t columns : {64u, 37u}) {
          GpuCase test = make_case(weights, type, {Layout::row_major, columns, true}, tile);
          test.problem.half_terms = terms;
          test.roads = {GpuRoad::direct, GpuRoad::llvm};
          check_case(test);
        }
}

TEST_CASE("NaN and infinity reach the outputs they should") {
  if (!Machine::get().can_test())
    return;
  const Matrix weights = random_weights(24, 48, 0.2, 17, true);
  for (const DataType type : kTypes)
    for (const char* tile :
         {"strategy=unrolled,rows=8", "strategy=streamed,rows=2",
          "strategy=unrolled,rows=8,warps=1,splitk=4",
          "strategy=unrolled,rows=8,warps=1,groups=4,stage=smem,chunk=8,prefetch=2"}) {
      GpuCase test = make_case(weights, type, {Layout::row_major, 36, true}, tile);
      test.nonfinite = true;
      test.roads = {GpuRoad::direct, GpuRoad::llvm};
      check_case(test);
      test.problem.epilogue.activation = Activation::gelu;
      check_case(test);
    }
}

TEST_CASE("leading dimensions leave a gap that nobody touches", "[interpret]") {
  if (!Machine::get().can_test())
    return;
  const Matrix weights = random_weights(19, 29, 0.4, 19);
  for (const char* strategy : {kUnrolled, kStreamed}) {
    GpuCase fixed_row = make_case(weights, DataType::f32, {Layout::row_major, 33, true}, strategy);
    fixed_row.problem.ldb = 40;
    fixed_row.problem.ldc = 37;
    fixed_row.problem.epilogue.residual = true;
    check_case(fixed_row);

    GpuCase fixed_column =
        make_case(weights, DataType::f16, {Layout::column_major, 33, true}, strategy);
    fixed_column.problem.ldb = 31;
    fixed_column.problem.ldc = 24;
    check_case(fixed_column);

    GpuCase dynamic = make_case(weights, DataType::f32, {Layout::row_major, 33, false}, strategy);
    dynamic.problem.epilogue.residual = true;
    dynamic.launch_ldb = 48;
    dynamic.launch_ldc = 35;
    check_case(dynamic);
  }
}

TEST_CASE("N given at the launch") {
  if (!Machine::get().can_test())
    return;
  const Matrix weights = random_weights(16, 24, 0.4, 23);
  for (const char* strategy : {kUnrolled, kStreamed})
    for (const uint32_t columns : {0u, 1u, 31u, 32u, 33u, 500u})
      check_case(make_case(weights, DataType::f32, {Layout::row_major, columns, false}, strategy));
}

// Few and small cases of everything that a memory checker can find fault with.
TEST_CASE("small cases for the sanitizer", "[sanitize]") {
  if (!Machine::get().can_test())
    return;
  const Matrix weights = random_weights(19, 43, 0.3, 29, true);
  unsigned number = 0;
  for (const TileWords& tile : kTiles)
    for (const DataType type : {DataType::f32, DataType::f16}) {
      if (!runs_here(tile))
        continue;
      const Columns& columns = tile.staged ? kOtherColumns[3] : kOtherColumns[number++ % 3];
      GpuCase test = make_case(weights, type, columns, tile.words);
      test.problem.epilogue = {true, true, Activation::relu};
      test.roads = {GpuRoad::direct};
      check_case(test);
    }
}

TEST_CASE("compressed streams for few columns", "[interpret][sanitize]") {
  if (!Machine::get().can_test())
    return;
  unsigned number = 0;
  for (const double density : {0.03, 0.4}) {
    const Matrix weights = random_weights(50, 330, density, 37, true);
    for (const uint32_t columns : {1u, 2u, 3u, 7u, 8u, 16u, 31u, 32u, 64u})
      for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
        const Layout layout = number % 3 == 0 ? Layout::column_major : Layout::row_major;
        const char* words = number % 4 == 0   ? "strategy=compressed,splitk=1,prefetch=2"
                            : number % 4 == 1 ? "strategy=compressed,splitk=4,rows=16"
                                              : "strategy=compressed";
        GpuCase test = make_case(weights, type, {layout, columns, true}, words);
        test.nonfinite = number % 2 == 0;
        test.problem.epilogue = {number % 5 == 0, number % 5 == 1, Activation::none};
        test.roads = {GpuRoad::direct};
        if (number % 6 == 0)
          test.roads.push_back(GpuRoad::llvm);
        check_case(test);
        ++number;
      }
  }
}

TEST_CASE("bitmaps on tensor cores for few columns", "[interpret][sanitize]") {
  if (!Machine::get().can_test())
    return;
  unsigned number = 0;
  for (const double density : {0.03, 0.5}) {
    const Matrix weights = random_weights(50, 530, density, 41, true);
    for (const uint32_t columns : {1u, 2u, 7u, 8u, 16u, 31u, 32u, 64u})
      for (const DataType type : {DataType::f16, DataType::bf16}) {
        const Layout layout = number % 3 == 0 ? Layout::column_major : Layout::row_major;
        constexpr const char* kTiles[] = {
            "strategy=bitmap",
            "strategy=bitmap,warps=1,groups=2,splitk=1,cluster=1,chunk=128,prefetch=2",
            "strategy=bitmap,warps=2,splitk=2,cluster=1,prefetch=3",
            "strategy=bitmap,warps=2,splitk=1,cluster=2,chunk=128",
        };
        const char* words = kTiles[number % 4];
        if (number % 4 == 3 && !runs_here({words}))
          words = kTiles[0];
        GpuCase test = make_case(weights, type, {layout, columns, true}, words);
        test.problem.nonfinite = Nonfinite::dense;
        test.problem.epilogue = {number % 5 == 0, number % 5 == 1, Activation::none};
        test.roads = {GpuRoad::direct};
        if (number % 6 == 0)
          test.roads.push_back(GpuRoad::llvm);
        check_case(test);
        ++number;
      }
  }
}
