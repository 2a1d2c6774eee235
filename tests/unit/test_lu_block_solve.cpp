// The steps of a solve by one block: every product once, and within a step nobody reads what
// another warp writes.
#include "compiler/inspect/lu_block_solve.h"
#include "compiler/inspect/lu_schedule.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

using namespace sparsertc;
using test::Random;

namespace {

void check_steps(const LuTables& tables, uint32_t warps, bool transposed) {
  const LuBlockSolve solve = make_block_solve(tables, {warps}, transposed);
  const uint32_t n = tables.size;
  REQUIRE(solve.end.size() == (uint64_t{solve.steps} + 1 + LuBlockSolve::kReadAhead) * warps);
  REQUIRE(solve.records.size() ==
          solve.shape.size() / 2 * LuBlockSolve::kLanes * LuBlockSolve::kRecordWords);
  std::vector<uint32_t> used(tables.nnz(), 0); // as a product
  const auto half = [&](uint64_t record, uint32_t lane, uint32_t number) {
    const uint32_t word = solve.records[(record * LuBlockSolve::kLanes + lane) * 4 + number / 2];
    return word >> number % 2 * 16 & 0xFFFF;
  };
  for (uint32_t step = 0; step < solve.steps; ++step) {
    std::vector<uint32_t> writer(n, UINT32_MAX), reads;
    uint64_t records = 0;
    for (uint32_t warp = 0; warp < warps; ++warp)
      for (uint32_t r = solve.end[step * warps + warp]; r < solve.end[(step + 1) * warps + warp];
           ++r, ++records)
        for (uint32_t lane = 0; lane < LuBlockSolve::kLanes; ++lane) {
          const bool triangle = solve.shape[2 * r] == LuBlockSolve::kTriangle;
          if (const uint32_t row = half(r, lane, 0); row != n) {
            REQUIRE(row < n);
            // A row of a triangle is its warp's in several records.
            REQUIRE((writer[row] == UINT32_MAX || (triangle && writer[row] == warp)));
            writer[row] = warp;
          }
          for (uint32_t i = 0; i < (triangle ? 8 : 4); ++i) {
            const uint64_t at = (uint64_t{solve.shape[2 * r + 1] + i / 4} * 32 + lane) * 4 + i % 4;
            if (solve.slot[at] == UINT32_MAX) {
              CHECK((triangle || half(r, lane, 2 + i) == n));
              continue;
            }
            ++used[solve.slot[at]];
            if (!triangle)
              reads.push_back(half(r, lane, 2 + i));
          }
        }
    CHECK(records > 0);
    for (const uint32_t row : reads)
      REQUIRE(writer[row] == UINT32_MAX);
  }
  for (const uint64_t slot : tables.diagonal)
    ++used[slot];
  CHECK(std::all_of(used.begin(), used.end(), [](uint32_t times) { return times == 1; }));
}

void check_pattern(const Pattern& pattern) {
  Permutation order(pattern.rows);
  std::iota(order.begin(), order.end(), 0u);
  const LuTables tables = make_lu_tables(pattern, {order, order, {}, {}});
  for (const uint32_t warps : {1u, 4u, 32u})
    for (const bool transposed : {false, true})
      check_steps(tables, warps, transposed);
}

} // namespace

TEST_CASE("block solve: hostile shapes", "[lu]") {
  for (const test::NamedPattern& named : test::hostile_squares(200)) {
    INFO(named.name);
    check_pattern(named.pattern);
  }
}

TEST_CASE("block solve: random patterns", "[lu]") {
  const uint64_t seed = 17;
  INFO("seed " << seed);
  Random random(seed);
  for (const double per_row : {1.5, 3.0, 6.0})
    check_pattern(test::random_square(random, 120, per_row));
  check_pattern(test::random_grid(random, 20, 15, 0.2));
}

TEST_CASE("block solve: a chain takes few steps", "[lu]") {
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < 320; ++i) {
    entries.push_back({i, i});
    if (i > 0)
      entries.push_back({i, i - 1});
  }
  const Pattern chain = test::pattern_of(320, entries);
  Permutation order(320);
  std::iota(order.begin(), order.end(), 0u);
  const LuTables tables = make_lu_tables(chain, {order, order, {}, {}});
  REQUIRE(tables.forward_levels.count() == 320);
  CHECK(make_block_solve(tables, {16}, false).steps <= 3 * 320 / LuBlockSolve::kLanes);
}
