// Rows with similar columns brought together: what may change, what may not, and what is gained.
#include "compiler/inspect/row_order.h"
#include "compiler/inspect/spmm_cost.h"
#include "compiler/inspect/spmm_schedule.h"
#include "ir/error.h"
#include "tests/support/random_sparse.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <set>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

constexpr uint64_t kSeed = 20261201;

Matrix ones_at(uint32_t columns, const std::vector<std::set<uint32_t>>& rows) {
  Matrix matrix;
  matrix.pattern.rows = static_cast<uint32_t>(rows.size());
  matrix.pattern.columns = columns;
  for (const std::set<uint32_t>& row : rows) {
    matrix.pattern.column_index.insert(matrix.pattern.column_index.end(), row.begin(), row.end());
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  matrix.values.assign(matrix.pattern.nnz(), 1.0);
  return matrix;
}

SpmmSchedule schedule(const Matrix& matrix, const std::string& tile) {
  SpmmProblem problem;
  problem.columns = 64;
  return schedule_spmm(matrix, problem, find_target("sm_90"), parse_tile_choice(tile));
}

/// Of each tile the columns that its rows use, counted without the code under test.
struct TileWork {
  uint64_t columns = 0, heaviest = 0, all = 0;
};
TileWork work_of(const Pattern& pattern, const SpmmSchedule& s) {
  TileWork work;
  for (uint32_t tile = 0; tile < s.tile_count(); ++tile) {
    std::set<uint32_t> used;
    uint64_t entries = 0;
    for (uint32_t i = s.tile_begin[tile]; i < s.tile_begin[tile + 1]; ++i) {
      const auto row = pattern.row(s.row_order[i]);
      used.insert(row.begin(), row.end());
      entries += row.size();
    }
    work.columns += used.size();
    work.all += entries + used.size();
    work.heaviest = std::max(work.heaviest, entries + used.size());
  }
  return work;
}

} // namespace

TEST_CASE("rows of the same columns find each other") {
  // 16 kinds of rows, 8 of each kind in a mixed order; a kind has 12 columns of its own.
  Random random(test_seed(kSeed));
  std::vector<uint32_t> kinds(128);
  for (uint32_t i = 0; i < kinds.size(); ++i)
    kinds[i] = i / 8;
  for (size_t i = kinds.size(); i > 1; --i)
    std::swap(kinds[i - 1], kinds[random.below(static_cast<uint32_t>(i))]);
  std::vector<std::set<uint32_t>> rows(kinds.size());
  for (size_t i = 0; i < rows.size(); ++i)
    for (uint32_t c = 0; c < 12; ++c)
      rows[i].insert(kinds[i] + 16 * c);
  const Matrix matrix = ones_at(16 * 12, rows);
  const SpmmSchedule natural = schedule(matrix, "strategy=unrolled,rows=8,vec=1,order=natural");
  const SpmmSchedule similar = schedule(matrix, "strategy=unrolled,rows=8,vec=1,order=similar");
  // At best a tile has one kind, 12 loads. Exchanges of two rows alone come half of the way.
  constexpr uint64_t kBest = 16 * 12;
  CHECK(natural.prediction.loads > 4 * kBest);
  CHECK(2 * similar.prediction.loads < natural.prediction.loads);
  CHECK(similar.prediction.loads >= kBest);
  CHECK(similar.prediction.loads_in_other_order == natural.prediction.loads);
  CHECK(!natural.prediction.loads_in_other_order);
  CHECK(similar.prediction.balance == 1.0);
}

TEST_CASE("similar rows together: the same tiles, no more loads, no heavier tile") {
  Random random(test_seed(kSeed) + 1);
  uint64_t natural_columns = 0, similar_columns = 0;
  for (const RowShape shape : kRowShapes)
    for (const char* rows : {"rows=1", "rows=2", "rows=7", "rows=32", "rows=256"}) {
      const uint32_t m = 1 + random.below(300), k = 1 + random.below(200);
      INFO(name_of(shape) << ' ' << m << " x " << k << ' ' << rows);
      const Matrix matrix = random_sparse(random, m, k, shape, ValueShape::unit, -126, 127);
      const std::string tile = std::string("strategy=unrolled,warps=1,vec=1,") + rows;
      const SpmmSchedule natural = schedule(matrix, tile + ",order=natural");
      const SpmmSchedule similar = schedule(matrix, tile + ",order=similar");
      CHECK(similar.tile_begin == natural.tile_begin);
      std::vector<uint32_t> sorted = similar.row_order, all(m);
      std::sort(sorted.begin(), sorted.end());
      std::iota(all.begin(), all.end(), 0u);
      CHECK(sorted == all);
      for (uint32_t t = 0; t < similar.tile_count(); ++t)
        CHECK(std::is_sorted(similar.row_order.begin() + similar.tile_begin[t],
                             similar.row_order.begin() + similar.tile_begin[t + 1]));
      const TileWork before = work_of(matrix.pattern, natural);
      const TileWork after = work_of(matrix.pattern, similar);
      CHECK(after.columns <= before.columns);
      CHECK(similar.prediction.loads == after.columns);
      CHECK(natural.prediction.loads == before.columns);
      const double mean = static_cast<double>(before.all) / natural.tile_count();
      CHECK(static_cast<double>(after.heaviest) <=
            std::max(static_cast<double>(before.heaviest), 1.02 * mean));
      CHECK(schedule(matrix, tile + ",order=similar").row_order == similar.row_order);
      natural_columns += before.columns;
      similar_columns += after.columns;
    }
  CHECK(similar_columns < natural_columns);
}

TEST_CASE("more tiles than exchange rows at a time") {
  // 1200 tiles: three runs, each of which finds something and keeps its rows.
  Random random(test_seed(kSeed) + 2);
  const Matrix matrix =
      random_sparse(random, 2400, 40, RowShape::uniform, ValueShape::unit, -126, 127);
  SpmmSchedule s = schedule(matrix, "strategy=unrolled,rows=2,warps=1,vec=1,order=natural");
  const SpmmSchedule before = s;
  bring_similar_rows_together(matrix.pattern, s.tile_begin, s.row_order);
  constexpr uint32_t kRowsOfRun = 2 * 512;
  for (uint32_t first = 0; first < 2400; first += kRowsOfRun) {
    const uint32_t last = std::min(2400u, first + kRowsOfRun);
    std::vector<uint32_t> is(s.row_order.begin() + first, s.row_order.begin() + last);
    std::vector<uint32_t> was(before.row_order.begin() + first, before.row_order.begin() + last);
    CHECK(is != was);
    std::sort(is.begin(), is.end());
    std::sort(was.begin(), was.end());
    CHECK(is == was);
  }
  CHECK(work_of(matrix.pattern, s).columns < work_of(matrix.pattern, before).columns);
}

TEST_CASE("rows that nobody says anything about are ordered by what the model predicts") {
  Random random(test_seed(kSeed) + 3);
  std::vector<std::set<uint32_t>> rows(512);
  for (std::set<uint32_t>& row : rows)
    while (row.size() < 25)
      row.insert(random.below(512));
  const Matrix sparse = ones_at(512, rows);
  SpmmProblem problem;
  problem.columns = 1024;
  const std::string tile = "strategy=unrolled,rows=8,vec=1,warps=8,splitk=1";
  const auto of = [&](const Matrix& matrix, const std::string& words) {
    return schedule_spmm(matrix, problem, find_target("sm_90"), parse_tile_choice(words));
  };
  const SpmmSchedule natural = of(sparse, tile + ",order=natural");
  const SpmmSchedule chosen = of(sparse, tile);
  CHECK(chosen.tile.order == RowOrder::similar);
  CHECK(*predicted_us(sparse.pattern, chosen) < *predicted_us(sparse.pattern, natural));
  CHECK(chosen.prediction.loads_in_other_order == natural.prediction.loads);
  // Where all rows use all columns there is nothing to gain.
  const Matrix dense = random_sparse(random, 64, 64, RowShape::dense, ValueShape::unit, -126, 127);
  const SpmmSchedule kept = of(dense, tile);
  CHECK(kept.tile.order == RowOrder::natural);
  CHECK(kept.prediction.loads_in_other_order == kept.prediction.loads);
  // What the model does not know keeps its order.
  const SpmmSchedule clusters = of(sparse, tile + ",cluster=2");
  CHECK(clusters.tile.order == RowOrder::natural);
  CHECK(!clusters.prediction.loads_in_other_order);
}

TEST_CASE("an order of rows is for unrolled code") {
  const Matrix matrix = ones_at(3, {{0, 1}, {1, 2}, {}});
  for (const char* tile : {"strategy=streamed,order=similar", "strategy=dense,order=natural"}) {
    INFO(tile);
    CHECK_THROWS_WITH(schedule(matrix, tile),
                      Catch::Contains("order= is for unrolled code, not strategy="));
    CHECK_THROWS_AS(schedule(matrix, tile), UsageError);
  }
  CHECK(schedule(matrix, "strategy=streamed").tile.order == std::nullopt);
  CHECK(schedule(matrix, "strategy=unrolled").tile.order == RowOrder::natural);
}
