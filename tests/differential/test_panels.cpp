// The panels strategy: edge shapes, every way in which B is staged and C is stored, all types.
#include "tests/differential/spmm_roads.h"

#include "ir/error.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

constexpr uint64_t kSeed = 20261201;
/// What tensor cores multiply: tf32, or f32 in parts, of which there is room for two rounds only.
struct Kind {
  DataType type;
  Precision precision;
  bool is_split() const { return type == DataType::f32 && precision == Precision::full; }
};
constexpr Kind kKinds[] = {{DataType::f16, Precision::full},
                           {DataType::f32, Precision::tf32},
                           {DataType::f32, Precision::full},
                           {DataType::bf16, Precision::full}};
std::string tile_for(const Kind& kind, std::string tile) {
  const size_t prefetch = tile.find(",prefetch");
  return kind.is_split() && prefetch != std::string::npos ? tile.substr(0, prefetch) : tile;
}
constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::silu};
constexpr const char* kTiles[] = {
    "strategy=panels",
    "strategy=panels,rows=16,vec=1,groups=1,warps=1",
    "strategy=panels,rows=32,vec=2,groups=2,warps=1,prefetch=2",
    "strategy=panels,rows=64,vec=1,groups=1,warps=2,prefetch=4",
    "strategy=panels,rows=16,vec=4,groups=4,warps=1",
    "strategy=panels,rows=32,vec=2,groups=2,warps=1,splitk=2",
    "strategy=panels,rows=16,vec=1,groups=1,warps=2,splitk=4",
    "strategy=panels,rows=16,vec=2,groups=2,warps=1,splitk=2,chunk=2",
};

SpmmProblem problem_of(Random& random, const Kind& kind, uint32_t columns) {
  SpmmProblem problem;
  problem.type = kind.type;
  problem.precision = kind.precision;
  problem.nonfinite = Nonfinite::dense;
  problem.layout = random.chance(0.8) ? Layout::row_major : Layout::column_major;
  problem.columns = columns;
  problem.epilogue = {random.chance(0.4), random.chance(0.3), random.pick(kActivations)};
  return problem;
}

SpmmCase case_of(Random& random, const SpmmProblem& problem, uint32_t rows, uint32_t inner,
                 RowShape shape, ValueShape values, uint32_t slack) {
  const ptx::FloatFormat format = format_of(problem.type);
  // Three parts of smaller or larger weights are not numbers of bf16.
  const bool is_split = Kind{problem.type, problem.precision}.is_split();
  const int least = is_split ? -70 : format.minimum, largest = is_split ? 126 : format.maximum;
  return make_case(random, random_sparse(random, rows, inner, shape, values, least, largest),
                   problem, *problem.columns, ValueShape::unit, slack);
}

} // namespace

TEST_CASE("panels of edge shapes") {
  Random random(test_seed(kSeed));
  RoadCounts counts;
  constexpr uint32_t kRows[] = {0, 1, 15, 16, 17, 40, 64, 70};
  constexpr uint32_t kInner[] = {0, 1, 2, 5, 8, 30, 64, 129, 150};
  constexpr uint32_t kColumns[] = {0, 1, 7, 8, 32, 33, 40, 64, 70};
  for (const char* tile : kTiles)
    for (const Kind& kind : kKinds)
      for (const RowShape shape : kRowShapes) {
        const SpmmProblem problem = problem_of(random, kind, random.pick(kColumns));
        const SpmmCase test =
            case_of(random, problem, random.pick(kRows), random.pick(kInner), shape,
                    random.pick(kValueShapes), random.chance(0.4) ? 1 + random.below(9) : 0);
        check_roads(test, tile_for(kind, tile), "sm_90", {random.chance(0.1), random.chance(0.1)},
                    counts);
      }
  report("products", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("panels whose windows move along K, the last round short") {
  Random random(test_seed(kSeed) + 1);
  RoadCounts counts;
  for (const Kind& kind : kKinds)
    for (const uint32_t inner : {600u, 801u}) {
      SpmmProblem problem = problem_of(random, kind, 64);
      problem.layout = Layout::row_major;
      problem.epilogue = {};
      for (const char* tile :
           {"strategy=panels,rows=32,vec=2,warps=1,groups=1,splitk=1,prefetch=2",
            "strategy=panels,rows=16,vec=2,warps=1,groups=2,splitk=1,prefetch=3",
            "strategy=panels,rows=32,vec=1,warps=2,groups=1,splitk=2,prefetch=3",
            "strategy=panels,rows=32,vec=2,warps=1,groups=1,splitk=4,prefetch=2",
            "strategy=panels,rows=32,vec=2,warps=1,groups=1,splitk=1,chunk=1,prefetch=3",
            "strategy=panels,rows=16,vec=1,warps=1,groups=1,splitk=2,chunk=2,prefetch=3"}) {
        const SpmmCase test =
            case_of(random, problem, 40, inner, RowShape::uniform, ValueShape::unit, 0);
        check_roads(test, tile_for(kind, tile), inner == 600 ? "sm_80" : "sm_90", {}, counts);
      }
    }
  report("products", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("panels whose positions leap") {
  Random random(test_seed(kSeed) + 4);
  RoadCounts counts;
  unsigned leaping = 0;
  for (const Kind& kind : kKinds)
    for (const Layout layout : {Layout::row_major, Layout::column_major}) {
      SpmmProblem problem = problem_of(random, kind, 40);
      problem.layout = layout;
      problem.epilogue = {};
      SpmmCase test = case_of(random, problem, 30, 700, RowShape::uniform, ValueShape::unit, 0);
      // Nearly all entries in a fifth of the columns, side by side.
      Pattern& pattern = test.weights.pattern;
      Matrix kept = test.weights;
      kept.pattern.column_index.clear();
      kept.pattern.row_offset = {0};
      kept.values.clear();
      for (uint32_t row = 0; row < pattern.rows; ++row) {
        for (uint64_t i = pattern.row_offset[row]; i < pattern.row_offset[row + 1]; ++i)
          if (const uint32_t column = pattern.column_index[i];
              (column >= 200 && column < 340) || random.chance(0.05)) {
            kept.pattern.column_index.push_back(column);
            kept.values.push_back(test.weights.values[i]);
          }
        kept.pattern.row_offset.push_back(kept.pattern.column_index.size());
      }
      test.weights = kept;
      const char* tile = "strategy=panels,rows=16,vec=1,warps=1,groups=2,splitk=1,chunk=1";
      const SpmmSchedule schedule =
          schedule_spmm(test.weights, problem, find_target("sm_90"), parse_tile_choice(tile));
      leaping += schedule.panels.stride > 1;
      check_roads(test, tile, "sm_90", {}, counts);
    }
  CHECK(leaping >= 6); // of 8
  report("products", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("panels notice wrong metadata, places and values") {
  Random random(test_seed(kSeed) + 2);
  SpmmProblem problem;
  problem.type = DataType::f16;
  problem.nonfinite = Nonfinite::dense;
  problem.columns = 32;
  const SpmmCase test = case_of(random, problem, 16, 40, RowShape::uniform, ValueShape::unit, 0);
  const std::string tile = "strategy=panels,rows=16,vec=1,groups=1,warps=1";
  CHECK(fault_of_edited(test, tile, "sm_90", [](std::string&) {}) == "");
  // The sparsity selector: other lanes' metadata.
  CHECK(fault_of_edited(test, tile, "sm_90", [](std::string& text) {
          const size_t mma = text.find("mma.sp");
          const size_t end = text.find(", 0;", mma);
          REQUIRE(end != std::string::npos);
          text.replace(end, 4, ", 1;");
        }) != "");
  // Without the wait for copies of B.
  CHECK(fault_of_edited(test, tile, "sm_90", [](std::string& text) {
          const size_t wait = text.find("cp.async.wait_group 1;");
          REQUIRE(wait != std::string::npos);
          text.replace(wait, 22, "cp.async.wait_group 9;");
        }) != "");
}

TEST_CASE("panels refuse weights of f32 that three numbers of bf16 cannot add up to") {
  Random random(test_seed(kSeed) + 3);
  SpmmProblem problem;
  problem.nonfinite = Nonfinite::dense;
  problem.columns = 32;
  const std::string tile = "strategy=panels";
  const auto fault_of = [&](double weight) {
    SpmmCase test = case_of(random, problem, 16, 40, RowShape::dense, ValueShape::unit, 0);
    test.weights.values[7] = weight;
    return fault_of_edited(test, tile, "sm_90", [](std::string&) {});
  };
  CHECK(fault_of(1 + 0x1p-23) == "");
  CHECK(fault_of(0x1.8p-126) == "");
  CHECK_THROWS_AS(fault_of(0x1.000002p-110), UsageError);
  CHECK_THROWS_WITH(fault_of(0x1.fffffep127), Catch::Contains("row 0, column 7"));
}
