// Random and edge-shaped SpMMs: types, strategies, tiles, layouts, sizes, epilogues.
#include "tests/differential/spmm_roads.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

constexpr uint64_t kSeed = 20240229;
constexpr DataType kTypes[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::silu};
constexpr uint32_t kSizes[] = {0, 1, 2, 3, 7, 17, 31, 32, 33, 48, 64};
constexpr const char* kTargets[] = {"sm_80", "sm_90", "sm_120"};

const char* const kTiles[] = {
    "",
    "strategy=unrolled",
    "strategy=unrolled,rows=1,vec=1,warps=1,groups=1",
    "strategy=unrolled,rows=5,vec=2,warps=2,groups=2",
    "strategy=unrolled,rows=16,vec=4,warps=1,prefetch=3",
    "strategy=unrolled,rows=7,vec=3,warps=1",
    "strategy=unrolled,rows=8,vec=1,warps=1,splitk=2",
    "strategy=unrolled,rows=6,vec=2,warps=1,groups=3,splitk=3",
    "strategy=unrolled,rows=8,warps=1,weights=const",
    "strategy=unrolled,rows=8,vec=1,warps=1,groups=4,stage=smem,chunk=8,prefetch=2",
    "strategy=unrolled,rows=4,vec=2,warps=1,groups=4,stage=smem,chunk=16,prefetch=3",
    "strategy=streamed",
    "strategy=streamed,rows=1,vec=1,warps=1",
    "strategy=streamed,rows=4,vec=2,warps=1,groups=2,prefetch=4",
    "strategy=streamed,rows=2,vec=4,warps=1,splitk=2",
    "strategy=streamed,rows=3,vec=1,warps=1,groups=2,splitk=4",
    "strategy=unrolled,rows=4,order=similar",
    "strategy=unrolled,rows=5,vec=2,warps=1,groups=2,splitk=2,order=similar",
    "strategy=unrolled,rows=8,vec=1,warps=1,cluster=2",
    "strategy=unrolled,rows=5,vec=2,warps=1,groups=2,splitk=2,cluster=4",
    "strategy=unrolled,rows=3,vec=1,warps=2,groups=3,cluster=8",
    "strategy=streamed,rows=3,vec=2,warps=1,groups=2,splitk=2,cluster=2",
    "strategy=streamed,rows=2,vec=1,warps=1,cluster=4",
};

Matrix random_matrix(Random& random, uint32_t rows, uint32_t inner, DataType type, RowShape shape,
                     ValueShape values) {
  const ptx::FloatFormat format = format_of(type);
  return random_sparse(random, rows, inner, shape, values, format.minimum, format.maximum);
}

SpmmProblem random_problem(Random& random, uint32_t columns) {
  SpmmProblem problem;
  problem.type = random.pick(kTypes);
  problem.layout = random.chance(0.6) ? Layout::row_major : Layout::column_major;
  if (random.chance(0.6))
    problem.columns = columns;
  problem.epilogue = {random.chance(0.4), random.chance(0.3), random.pick(kActivations)};
  return problem;
}

} // namespace

TEST_CASE("random products by all roads") {
  Random random(test_seed(kSeed));
  RoadCounts counts;
  for (uint32_t number = 0; number < 80; ++number) {
    CAPTURE(number);
    const uint32_t rows = random.pick(kSizes), inner = random.pick(kSizes);
    const uint32_t columns = random.pick(kSizes);
    const SpmmProblem problem = random_problem(random, columns);
    const ValueShape values = random.pick(kValueShapes);
    const SpmmCase test = make_case(
        random, random_matrix(random, rows, inner, problem.type, random.pick(kRowShapes), values),
        problem, columns, values, random.chance(0.3) ? 1 + random.below(9) : 0);
    check_roads(test, random.pick(kTiles), random.pick(kTargets),
                {random.chance(0.2), random.chance(0.25)}, counts);
  }
  report("products", counts);
  CHECK(counts.run > 40);
}

TEST_CASE("every tile with every type") {
  Random random(test_seed(kSeed) + 1);
  RoadCounts counts;
  for (const char* tile : kTiles)
    for (const DataType type : kTypes) {
      SpmmProblem problem;
      problem.type = type;
      const uint32_t columns = random.chance(0.5) ? 64 : 44; // both allow vectors and staging
      problem.columns = columns;
      problem.epilogue = {random.chance(0.5), random.chance(0.5), random.pick(kActivations)};
      const SpmmCase test =
          make_case(random, random_matrix(random, 37, 45, type, RowShape::gaps, ValueShape::zeros),
                    problem, columns, ValueShape::unit, random.chance(0.5) ? 4 : 0);
      check_roads(test, tile, "sm_90", {false, type == DataType::bf16}, counts);
    }
  report("products", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("sums that are exact agree with exact arithmetic") {
  // Integers of small magnitude: any order and any fusing gives the same, so the result is the
  // reference itself.
  Random random(test_seed(kSeed) + 2);
  RoadCounts counts;
  for (const DataType type : kTypes) {
    SpmmProblem problem;
    problem.type = type;
    const SpmmCase test = make_case(
        random, random_matrix(random, 13, 15, type, RowShape::uniform, ValueShape::integers),
        problem, 33, ValueShape::integers, 0);
    for (const char* tile : {"strategy=unrolled,rows=4,splitk=3", "strategy=streamed"})
      check_roads(test, tile, "sm_90", {true, true}, counts);
  }
  report("products", counts);
}

TEST_CASE("NaN and infinity reach the outputs that mathematics says, and no others") {
  Random random(test_seed(kSeed) + 3);
  RoadCounts counts;
  for (const char* tile : kTiles)
    for (const bool fixed : {true, false}) {
      SpmmProblem problem;
      problem.type = random.pick(kTypes);
      const uint32_t columns = fixed ? 36 : 35;
      if (fixed)
        problem.columns = columns;
      problem.epilogue.activation = random.pick(kActivations);
      const SpmmCase test =
          make_case(random,
                    random_matrix(random, 33, 40, problem.type,
                                  random.chance(0.5) ? RowShape::gaps : RowShape::heavy_rows,
                                  ValueShape::zeros),
                    problem, columns, ValueShape::unit, 0, 9);
      check_roads(test, tile, "sm_90", {}, counts);
    }
  report("products", counts);
}

TEST_CASE("products gathered in half precision") {
  Random random(test_seed(kSeed) + 4);
  RoadCounts counts;
  for (const DataType type : {DataType::f16, DataType::bf16})
    for (const uint32_t terms : {1u, 3u, 8u})
      for (const char* tile :
           {"strategy=unrolled,rows=8,vec=1,warps=1", "strategy=unrolled,rows=8,vec=2,warps=1",
            "strategy=streamed,vec=1", "strategy=unrolled,rows=4,vec=1,warps=1,splitk=2",
            "strategy=unrolled,rows=4,vec=2,warps=1,cluster=2"}) {
        SpmmProblem problem;
        problem.type = type;
        problem.half_terms = terms;
        problem.columns = 34;
        const SpmmCase test = make_case(
            random, random_matrix(random, 20, 50, type, RowShape::uniform, ValueShape::unit),
            problem, 34, ValueShape::unit, 0);
        check_roads(test, tile, random.pick(kTargets), {false, terms == 3}, counts);
      }
  report("products", counts);
}

TEST_CASE("rows of B further apart than an instruction's offset reaches") {
  Random random(test_seed(kSeed) + 5);
  RoadCounts counts;
  for (const bool streamed : {false, true}) {
    SpmmProblem problem;
    problem.columns = 5;
    problem.ldb = problem.ldc = 150000; // 600 KB a row; 24 bits of offset reach 14 rows
    SpmmCase test = make_case(
        random, random_matrix(random, 20, 40, DataType::f32, RowShape::uniform, ValueShape::unit),
        problem, 5, ValueShape::unit, 0);
    test.ldb = test.ldc = 150000;
    check_roads(test, streamed ? "strategy=streamed" : "strategy=unrolled,rows=8", "sm_90", {},
                counts);
  }
  report("products", counts);
}

TEST_CASE("random products in clusters of blocks") {
  constexpr uint32_t kRows[] = {1, 2, 5, 33, 64}, kColumns[] = {1, 31, 33, 64, 100};
  constexpr uint32_t kInner[] = {3, 8, 40, 97}, kTileRows[] = {1, 3, 4, 7, 16};
  constexpr const char* kNewTargets[] = {"sm_90", "sm_90a", "sm_100", "sm_120"};
  Random random(test_seed(kSeed) + 6);
  RoadCounts counts;
  for (uint32_t number = 0; number < 24; ++number) {
    CAPTURE(number);
    const uint32_t columns = random.pick(kColumns);
    const SpmmProblem problem = random_problem(random, columns);
    const SpmmCase test =
        make_case(random,
                  random_matrix(random, random.pick(kRows), random.pick(kInner), problem.type,
                                random.pick(kRowShapes), ValueShape::zeros),
                  problem, columns, ValueShape::unit, random.chance(0.3) ? 1 + random.below(9) : 0);
    const std::string tile = fmt::format(
        "strategy={},rows={},vec={},warps=1,groups={},splitk={},cluster={}",
        random.chance(0.7) ? "unrolled" : "streamed", random.pick(kTileRows), 1 + random.below(2),
        1 + random.below(3), 1 + random.below(3), 2u << (number % 3));
    check_roads(test, tile, random.pick(kNewTargets), {random.chance(0.3), random.chance(0.3)},
                counts);
  }
  report("products", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("the checks can fail") {
  Random random(1);
  SpmmProblem problem;
  const SpmmCase test = make_case(
      random, random_matrix(random, 4, 6, DataType::f32, RowShape::dense, ValueShape::unit),
      problem, 3, ValueShape::unit, 0);
  std::vector<uint64_t> c(12);
  for (uint32_t row = 0; row < 4; ++row)
    for (uint32_t column = 0; column < 3; ++column) {
      double sum = 0;
      for (uint32_t k = 0; k < 6; ++k)
        sum += test.weights.values[row * 6 + k] * test.b[k * 3 + column];
      c[row * 3 + column] = ptx::round_to_format(sum, ptx::kF32, ptx::Rounding::nearest);
    }
  CHECK(compare_with_reference(test, c, 1) == "");
  std::vector<uint64_t> wrong = c;
  wrong[5] += 64; // 64 units in the last place
  CHECK(compare_with_reference(test, wrong, 1) != "");
  CHECK(first_difference(test, c, wrong) != "");
  wrong[5] = 0x7fc00000;
  CHECK(compare_with_reference(test, wrong, 1) != "");
  GuardedBuffer buffer(8);
  CHECK(buffer.guards_intact());
  buffer.data()[8] = 0;
  CHECK_FALSE(buffer.guards_intact());
}

TEST_CASE("kernels that lack a barrier, a wait, a guard or a term are found") {
  Random random(2);
  SpmmProblem problem;
  problem.columns = 36;
  const SpmmCase test = make_case(
      random, random_matrix(random, 16, 40, DataType::f32, RowShape::uniform, ValueShape::unit),
      problem, 36, ValueShape::unit, 0);
  const auto fault = [&](const char* tile, const std::string& opcode) {
    bool found = false;
    const std::string result = fault_of_edited(test, tile, "sm_90", [&](std::string& text) {
      for (size_t at = text.find(opcode); at != std::string::npos; at = text.find(opcode, at + 2)) {
        text.replace(at, 2, "//"); // the rest of the line becomes a comment
        found = true;
      }
    });
    CHECK(found);
    return result;
  };
  const char* split = "strategy=unrolled,rows=4,vec=1,warps=1,groups=2,splitk=2";
  const char* staged = "strategy=unrolled,rows=4,vec=1,warps=1,groups=4,stage=smem,chunk=8,"
                       "prefetch=2";
  const auto unchanged = [](std::string&) {};
  CHECK(fault_of_edited(test, split, "sm_90", unchanged) == "");
  CHECK(fault_of_edited(test, staged, "sm_90", unchanged) == "");
  CHECK_THAT(fault(split, "bar"), Catch::Contains("shared memory"));
  CHECK_THAT(fault(staged, "barrier.sync"), Catch::Contains("shared memory"));
  CHECK_THAT(fault(staged, "cp.async.wait_group"), Catch::Contains("stale copy"));
  CHECK_THAT(fault(split, "st.shared"), Catch::Contains("never written"));
  const char* cluster = "strategy=unrolled,rows=4,vec=1,warps=1,groups=2,cluster=2";
  const auto without = [&](unsigned first, unsigned step) {
    return fault_of_edited(test, cluster, "sm_90", [&](std::string& text) {
      unsigned number = 0;
      for (size_t at = text.find("\tbarrier.cluster"); at != std::string::npos;
           at = text.find("\tbarrier.cluster", at + 3), ++number)
        if (number / 2 % step == first)
          text.replace(at, 3, "\t//");
    });
  };
  CHECK(fault_of_edited(test, cluster, "sm_90", unchanged) == "");
  CHECK_THAT(without(0, 1), Catch::Contains("shared memory"));
  CHECK_THAT(without(0, 2), Catch::Contains("shared memory")); // before the exchange
  CHECK_THAT(without(1, 2), Catch::Contains("has ended"));     // after it
  CHECK(fault(split, "st.global") != "");
  CHECK(fault(split, "fma.rn.f32") != "");
}
