// The compressed strategy: few columns, every way in which B is staged, both widths of distances.
#include "tests/differential/spmm_roads.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

constexpr uint64_t kSeed = 20241105;
constexpr DataType kTypes[] = {DataType::f32, DataType::f16, DataType::bf16};
constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::silu};
constexpr uint32_t kColumns[] = {1, 2, 3, 7, 8, 16, 31, 32, 64};
constexpr const char* kTiles[] = {
    "strategy=compressed",
    "strategy=compressed,splitk=1,prefetch=2",
    "strategy=compressed,splitk=8,rows=8",
    "strategy=compressed,splitk=4,vec=1,prefetch=4",
    "strategy=compressed,vec=2,rows=3",
    "strategy=compressed,cluster=2",
    "strategy=compressed,cluster=4,splitk=2,rows=8",
};

SpmmProblem problem_of(Random& random, uint32_t columns) {
  SpmmProblem problem;
  problem.type = random.pick(kTypes);
  problem.layout = random.chance(0.6) ? Layout::row_major : Layout::column_major;
  problem.columns = columns;
  problem.epilogue = {random.chance(0.4), random.chance(0.3), random.pick(kActivations)};
  return problem;
}

Matrix matrix_of(Random& random, uint32_t rows, uint32_t inner, DataType type, RowShape shape,
                 ValueShape values) {
  const ptx::FloatFormat format = format_of(type);
  return random_sparse(random, rows, inner, shape, values, format.minimum, format.maximum);
}

/// One entry in each of `rows` rows, and some far apart.
Matrix far_entries(uint32_t rows, uint32_t inner) {
  Matrix matrix;
  matrix.name = "far entries";
  matrix.pattern.rows = rows;
  matrix.pattern.columns = inner;
  for (uint32_t row = 0; row < rows; ++row) {
    for (const uint32_t column : {row % inner, inner / 2, inner - 1})
      if (matrix.pattern.column_index.size() == matrix.pattern.row_offset.back() ||
          column > matrix.pattern.column_index.back())
        matrix.pattern.column_index.push_back(column);
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  for (size_t i = 0; i < matrix.pattern.column_index.size(); ++i)
    matrix.values.push_back(1.0 + static_cast<double>(i % 7));
  return matrix;
}

} // namespace

TEST_CASE("compressed products of edge shapes, with NaN and infinity in B") {
  Random random(test_seed(kSeed));
  RoadCounts counts;
  for (const char* tile : kTiles)
    for (const uint32_t columns : kColumns) {
      const SpmmProblem problem = problem_of(random, columns);
      constexpr uint32_t kSizes[] = {0, 1, 2, 17, 33, 48, 64, 300};
      const uint32_t rows = random.pick(kSizes) % 70, inner = random.pick(kSizes);
      const SpmmCase test = make_case(
          random,
          matrix_of(random, rows, inner, problem.type, random.pick(kRowShapes), ValueShape::zeros),
          problem, columns, ValueShape::unit, random.chance(0.3) ? 1 + random.below(9) : 0,
          random.chance(0.5) ? 5 : 0);
      check_roads(test, tile, "sm_90", {random.chance(0.1), random.chance(0.3)}, counts);
    }
  report("products", counts);
  CHECK(counts.refused < counts.run / 4);
}

TEST_CASE("compressed products with entries far apart") {
  Random random(test_seed(kSeed) + 1);
  RoadCounts counts;
  for (const uint32_t columns : {1u, 8u, 5u})
    for (const uint32_t inner : {1000u, 1024u}) {
      SpmmProblem problem = problem_of(random, columns);
      problem.type = DataType::f16;
      const SpmmCase test =
          make_case(random, far_entries(21, inner), problem, columns, ValueShape::unit, 0, 40);
      check_roads(test, "strategy=compressed", "sm_90", {}, counts);
      check_roads(test, "strategy=compressed,splitk=2,rows=4", "sm_80", {true, true}, counts);
    }
  report("products", counts);
  CHECK(counts.refused == 0);
}
