// The cost model: beside measured times, and what follows from it.
#include "compiler/inspect/spmm_cost.h"

#include "tests/support/scattered_matrix.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace sparsertc;

namespace {

/// Rows of `length` entries, spread evenly.
Matrix even_rows(uint32_t rows, uint32_t columns, uint32_t length) {
  Matrix matrix;
  matrix.pattern.rows = rows;
  matrix.pattern.columns = columns;
  for (uint32_t row = 0; row < rows; ++row) {
    std::vector<uint32_t> mine;
    for (uint32_t i = 0; i < length; ++i)
      mine.push_back((i * columns / length + row * 7) % columns);
    std::sort(mine.begin(), mine.end());
    matrix.pattern.column_index.insert(matrix.pattern.column_index.end(), mine.begin(), mine.end());
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  return matrix;
}

SpmmProblem problem_of(uint32_t n) {
  SpmmProblem problem;
  problem.columns = n;
  problem.nonfinite = Nonfinite::dense;
  return problem;
}

std::vector<StrategyPlan> plans_of(const Matrix& matrix, const SpmmProblem& problem) {
  return plan_strategies(matrix, problem, find_target("sm_90"), SpmmTileChoice());
}

const StrategyPlan& plan_of(const std::vector<StrategyPlan>& plans, Strategy strategy) {
  return plans[static_cast<size_t>(strategy)];
}

} // namespace

TEST_CASE("predicted times of layers that were measured on an H200") {
  struct Measured {
    uint32_t n, row_length;
    Strategy strategy;
    double us;
  };
  // 512 x 512, f32, warm.
  constexpr Measured kMeasured[] = {
      {512, 51, Strategy::unrolled, 4.30},  {2048, 51, Strategy::unrolled, 6.88},
      {32, 102, Strategy::unrolled, 4.88},  {2048, 51, Strategy::streamed, 23.99},
      {512, 256, Strategy::streamed, 68.8}, {32, 102, Strategy::compressed, 2.98},
      {8, 256, Strategy::compressed, 3.01}, {2048, 51, Strategy::dense, 28.6},
      {512, 51, Strategy::dense, 12.5},
  };
  for (const Measured& one : kMeasured) {
    INFO(name_of(one.strategy) << " N=" << one.n << ", rows of " << one.row_length);
    const std::vector<StrategyPlan> plans =
        plans_of(even_rows(512, 512, one.row_length), problem_of(one.n));
    const std::optional<double>& us = plan_of(plans, one.strategy).us;
    REQUIRE(us);
    CHECK(*us > one.us / 1.45);
    CHECK(*us < one.us * 1.45);
  }
}

TEST_CASE("the fastest by the model, and from which zeros on") {
  const Matrix matrix = even_rows(512, 512, 25);
  const std::vector<StrategyPlan> plans = plans_of(matrix, problem_of(2048));
  const StrategyPlan* best = predicted_fastest(plans);
  REQUIRE(best);
  CHECK(best->strategy == Strategy::unrolled);
  for (const StrategyPlan& plan : plans)
    if (plan.us)
      CHECK(*plan.us >= *best->us);
  const std::vector<Regime> found = regimes(matrix.pattern, plans);
  REQUIRE(found.size() >= 2);
  // Six products on sparse tensor cores take less than one multiply-add elsewhere.
  CHECK(found.front().strategy == Strategy::panels);
  CHECK(found.front().from == 0);
  CHECK(found.back().strategy == Strategy::unrolled);
  for (size_t i = 1; i < found.size(); ++i) {
    CHECK(found[i].from > found[i - 1].from);
    CHECK(found[i].strategy != found[i - 1].strategy);
  }
}

TEST_CASE("without a model nothing is predicted") {
  const Matrix matrix = scattered_matrix(37, 53, 3);
  SpmmProblem problem = problem_of(64);
  problem.type = DataType::f64;
  CHECK(predicted_fastest(plans_of(matrix, problem)) == nullptr);
  CHECK(regimes(matrix.pattern, plans_of(matrix, problem)).empty());
  problem = problem_of(0);
  CHECK(predicted_fastest(plans_of(matrix, problem)) == nullptr);
  problem.columns.reset();
  CHECK(predicted_fastest(plans_of(matrix, problem)) == nullptr);
  const SpmmSchedule on_host = schedule_spmm(matrix, problem_of(64), find_target("host"));
  CHECK(!predicted_us(matrix.pattern, on_host));
  // Refusals stay with their strategy.
  SpmmProblem exact = problem_of(64);
  exact.nonfinite = Nonfinite::exact;
  const std::vector<StrategyPlan> plans = plans_of(matrix, exact);
  CHECK(plan_of(plans, Strategy::dense).refused.find("strategy=dense multiplies zeros") == 0);
  CHECK(!plan_of(plans, Strategy::dense).us);
}
