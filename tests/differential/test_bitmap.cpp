// The bitmap strategy: edge shapes, every way in which B is staged and C is stored, parts of K in a
// block and in a cluster, stages beyond the leading ones.
#include "tests/differential/spmm_roads.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

constexpr uint64_t kSeed = 20261202;
constexpr DataType kTypes[] = {DataType::f16, DataType::bf16};
constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::silu};
constexpr const char* kTiles[] = {
    "strategy=bitmap",
    "strategy=bitmap,warps=1,groups=2,splitk=1,cluster=1,chunk=128,prefetch=2",
    "strategy=bitmap,warps=2,splitk=2,cluster=2,vec=2",
    "strategy=bitmap,warps=3,groups=1,cluster=4,vec=1,prefetch=3,chunk=128",
    "strategy=bitmap,chunk=256,warps=1,splitk=1,cluster=1,prefetch=4",
};

SpmmProblem problem_of(Random& random, uint32_t columns) {
  SpmmProblem problem;
  problem.type = random.pick(kTypes);
  problem.nonfinite = Nonfinite::dense;
  problem.layout = random.chance(0.7) ? Layout::row_major : Layout::column_major;
  problem.columns = columns;
  problem.epilogue = {random.chance(0.4), random.chance(0.3), random.pick(kActivations)};
  return problem;
}

SpmmCase case_of(Random& random, const SpmmProblem& problem, uint32_t rows, uint32_t inner,
                 RowShape shape, ValueShape values, uint32_t slack) {
  const ptx::FloatFormat format = format_of(problem.type);
  return make_case(
      random, random_sparse(random, rows, inner, shape, values, format.minimum, format.maximum),
      problem, *problem.columns, ValueShape::unit, slack);
}

} // namespace

TEST_CASE("bitmaps of edge shapes") {
  Random random(test_seed(kSeed));
  RoadCounts counts;
  constexpr uint32_t kRows[] = {0, 1, 15, 16, 17, 40, 64, 70};
  constexpr uint32_t kInner[] = {0, 1, 2, 5, 16, 64, 129, 300};
  constexpr uint32_t kColumns[] = {0, 1, 2, 7, 8, 16, 31, 32, 64};
  for (const char* tile : kTiles)
    for (const RowShape shape : kRowShapes)
      for (int i = 0; i < 2; ++i) {
        const SpmmProblem problem = problem_of(random, random.pick(kColumns));
        const SpmmCase test =
            case_of(random, problem, random.pick(kRows), random.pick(kInner), shape,
                    random.pick(kValueShapes), random.chance(0.4) ? 1 + random.below(9) : 0);
        check_roads(test, tile, "sm_90", {random.chance(0.1), random.chance(0.1)}, counts);
      }
  report("products", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("bitmaps of many stages, dense and sparse by turns") {
  Random random(test_seed(kSeed) + 1);
  RoadCounts counts;
  for (const uint32_t inner : {640u, 801u}) {
    SpmmProblem problem = problem_of(random, 8);
    problem.layout = Layout::row_major;
    problem.epilogue = {};
    for (const char* tile :
         {"strategy=bitmap,warps=1,groups=2,splitk=1,cluster=1,chunk=128,prefetch=2",
          "strategy=bitmap,warps=1,groups=1,splitk=2,cluster=1,chunk=128,prefetch=3"}) {
      const SpmmCase test =
          case_of(random, problem, 40, inner, RowShape::uniform, ValueShape::unit, 0);
      check_roads(test, tile, inner == 640 ? "sm_80" : "sm_90", {}, counts);
    }
  }
  report("products", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("bitmaps notice wrong bits, places and missing waits") {
  Random random(test_seed(kSeed) + 2);
  SpmmProblem problem;
  problem.type = DataType::f16;
  problem.nonfinite = Nonfinite::dense;
  problem.columns = 8;
  const SpmmCase test = case_of(random, problem, 16, 300, RowShape::uniform, ValueShape::unit, 0);
  const std::string tile =
      "strategy=bitmap,warps=1,groups=1,splitk=1,cluster=1,chunk=128,prefetch=2";
  const auto fault = [&](const std::string& from, const std::string& to) {
    return fault_of_edited(test, tile, "sm_90", [&](std::string& text) {
      const size_t at = text.find(from);
      REQUIRE(at != std::string::npos);
      text.replace(at, from.size(), to);
    });
  };
  CHECK(fault("bar.warp.sync", "bar.warp.sync") == "");
  // A bit that is not counted.
  CHECK(fault("252645135", "252645134") != ""); // 0x0f0f0f0f
  // Without the waits for copies.
  CHECK(fault_of_edited(test, tile, "sm_90", [](std::string& text) {
          const std::string wait = "cp.async.wait_group 0;";
          size_t found = 0;
          for (size_t at = text.find(wait); at != std::string::npos; at = text.find(wait)) {
            text.replace(at, wait.size(), "");
            ++found;
          }
          REQUIRE(found == 2);
        }) != "");
}
