// The dense strategy's own kernel: edge shapes, every way in which B is staged and C is stored, all
// types.
#include "tests/differential/spmm_roads.h"

#include "compiler/input/convert.h"
#include "ir/error.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

constexpr uint64_t kSeed = 20261202;
struct Arithmetic {
  DataType type;
  Precision precision;
};
constexpr Arithmetic kArithmetics[] = {{DataType::f32, Precision::full},
                                       {DataType::f32, Precision::tf32},
                                       {DataType::f16, Precision::full},
                                       {DataType::bf16, Precision::full},
                                       {DataType::f64, Precision::full}};
constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::silu};
constexpr const char* kTiles[] = {
    "strategy=dense,dense=own",
    "strategy=dense,dense=own,rows=16,vec=1,groups=1,warps=1,chunk=16,prefetch=2",
    "strategy=dense,dense=own,rows=32,vec=2,groups=2,warps=1,chunk=32",
    "strategy=dense,dense=own,rows=64,vec=1,groups=1,warps=2,prefetch=4,chunk=16",
    "strategy=dense,dense=own,rows=16,vec=4,groups=4,warps=1,chunk=16,prefetch=2",
};

SpmmProblem problem_of(Random& random, const Arithmetic& arithmetic, uint32_t columns) {
  SpmmProblem problem;
  problem.type = arithmetic.type;
  problem.precision = arithmetic.precision;
  problem.nonfinite = Nonfinite::dense;
  problem.layout = random.chance(0.8) ? Layout::row_major : Layout::column_major;
  problem.columns = columns;
  problem.epilogue = {random.chance(0.4), random.chance(0.3), random.pick(kActivations)};
  return problem;
}

SpmmCase case_of(Random& random, const SpmmProblem& problem, uint32_t rows, uint32_t inner,
                 RowShape shape, ValueShape values, uint32_t slack) {
  const ptx::FloatFormat format = format_of(problem.type);
  Matrix weights =
      random_sparse(random, rows, inner, shape, values, format.minimum, format.maximum);
  if (problem.precision == Precision::tf32) // so that cutting their low bits off changes nothing
    for (double& value : weights.values)
      value = from_f32(to_f32(value) & ~0x1fffu);
  return make_case(random, std::move(weights), problem, *problem.columns, ValueShape::unit, slack);
}

} // namespace

TEST_CASE("dense products of edge shapes") {
  Random random(test_seed(kSeed));
  RoadCounts counts;
  constexpr uint32_t kRows[] = {0, 1, 15, 16, 17, 40, 64, 70};
  constexpr uint32_t kInner[] = {0, 1, 2, 5, 15, 16, 33, 70};
  constexpr uint32_t kColumns[] = {0, 1, 7, 8, 32, 33, 40, 64, 70};
  for (const char* tile : kTiles)
    for (const Arithmetic& arithmetic : kArithmetics)
      for (const RowShape shape : {RowShape::uniform, RowShape::gaps}) {
        const SpmmProblem problem = problem_of(random, arithmetic, random.pick(kColumns));
        const SpmmCase test =
            case_of(random, problem, random.pick(kRows), random.pick(kInner), shape,
                    random.pick(kValueShapes), random.chance(0.4) ? 1 + random.below(9) : 0);
        check_roads(test, tile, "sm_90", {random.chance(0.1), random.chance(0.1)}, counts);
      }
  report("products", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("dense products notice a missing wait, and a chunk from elsewhere") {
  Random random(test_seed(kSeed) + 2);
  SpmmProblem problem;
  problem.nonfinite = Nonfinite::dense;
  problem.columns = 32;
  const SpmmCase test = case_of(random, problem, 16, 70, RowShape::uniform, ValueShape::unit, 0);
  const std::string tile = "strategy=dense,dense=own,rows=16,vec=1,groups=1,warps=1,chunk=16";
  CHECK(fault_of_edited(test, tile, "sm_90", [](std::string&) {}) == "");
  CHECK(fault_of_edited(test, tile, "sm_90", [](std::string& text) {
          const size_t wait = text.find("cp.async.wait_group 1;");
          REQUIRE(wait != std::string::npos);
          text.replace(wait, 22, "cp.async.wait_group 9;");
        }) != "");
}
