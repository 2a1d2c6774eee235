// Fill-reducing orders, what they cost, and the choice among them.
#include "compiler/inspect/elimination_tree.h"
#include "compiler/inspect/lu_order_choice.h"
#include "compiler/inspect/shallow_order.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>

namespace sparsertc {
namespace {

/// The bound by its definition: eliminate on the dense pattern of A + A^T.
FactorCost cost_by_elimination(const Pattern& a) {
  const uint32_t n = a.rows;
  std::vector<std::vector<bool>> full(n, std::vector<bool>(n, false));
  for (uint32_t i = 0; i < n; ++i) {
    full[i][i] = true;
    for (uint32_t j : a.row(i))
      full[i][j] = full[j][i] = true;
  }
  FactorCost cost;
  std::vector<uint64_t> level(n, 1);
  for (uint32_t k = 0; k < n; ++k) {
    cost.levels = std::max(cost.levels, level[k]);
    uint64_t below = 0;
    for (uint32_t i = k + 1; i < n; ++i)
      if (full[i][k]) {
        ++below;
        level[i] = std::max(level[i], level[k] + 1);
        for (uint32_t j = k + 1; j < n; ++j)
          if (full[k][j])
            full[i][j] = true;
      }
    cost.entries += 1 + 2 * below;
    cost.flops += static_cast<double>(below + 2 * below * below);
  }
  return cost;
}

FactorCost exact_cost(const Pattern& a) {
  const LuPattern rows = symbolic_lu(a);
  const LuColumns columns = by_columns(rows);
  return factor_cost(rows, columns, factor_levels(rows, columns, LevelRule::gather));
}

/// The least height of the elimination tree over all orders that fill no place but those of `a`,
/// which is filled already.
uint64_t least_height(const Pattern& a) {
  Permutation order = identity_permutation(a.rows);
  uint64_t least = a.rows;
  do {
    const FactorCost cost = symmetric_factor_cost(permute(a, order, order));
    if (cost.entries == a.nnz())
      least = std::min(least, cost.levels);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

LuPattern filled_of(const Pattern& a) {
  return symbolic_lu(symmetrized_without_diagonal(a));
}

uint64_t fill(const Pattern& a, FillOrder order) {
  const Permutation p = fill_reducing_order(a, order);
  return symmetric_factor_cost(permute(a, p, p)).entries;
}

} // namespace

TEST_CASE("Every order is a permutation, and the same one again") {
  for (const auto& [name, pattern] : test::hostile_squares(5000)) {
    INFO(name);
    for (FillOrder order : kFillOrders) {
      INFO(name_of(order));
      const Permutation p = fill_reducing_order(pattern, order);
      CHECK(is_permutation(p, pattern.rows));
      CHECK(fill_reducing_order(pattern, order) == p);
    }
  }
}

TEST_CASE("Orders reduce fill") {
  test::Random random(test::test_seed(41));
  const Pattern grid = test::random_grid(random, 40, 40, 0);
  const uint64_t natural = fill(grid, FillOrder::natural);
  CHECK(natural > 100'000);
  CHECK(fill(grid, FillOrder::amd) < natural / 2);
  CHECK(fill(grid, FillOrder::colamd) < natural / 3 * 2);
  CHECK(fill(grid, FillOrder::nested_dissection) < natural / 2);
  for (const auto& [name, pattern] : test::hostile_squares(1000))
    if (name == "arrow that fills") {
      CHECK(fill(pattern, FillOrder::natural) == uint64_t{pattern.rows} * pattern.rows);
      CHECK(fill(pattern, FillOrder::amd) == pattern.nnz());
      CHECK(fill(pattern, FillOrder::nested_dissection) == pattern.nnz());
    }
}

TEST_CASE("Column counts, flops and levels are those of elimination") {
  test::Random random(test::test_seed(42));
  for (int round = 0; round < 300; ++round) {
    const Pattern a = test::random_square(random, random.below(16), 2 * random.unit(), 0.7);
    const FactorCost cost = symmetric_factor_cost(a), expected = cost_by_elimination(a);
    CHECK(cost.entries == expected.entries);
    CHECK(cost.flops == expected.flops);
    CHECK(cost.levels == expected.levels);
  }
  const Pattern grid = test::random_grid(random, 12, 9, 0.3);
  CHECK(symmetric_factor_cost(grid).flops == cost_by_elimination(grid).flops);
}

TEST_CASE("The bound is the cost of symmetric patterns, and no less than that of others") {
  test::Random random(test::test_seed(43));
  for (double missing : {0.0, 0.5}) {
    const Pattern grid = test::random_grid(random, 20, 15, missing);
    const FactorCost bound = symmetric_factor_cost(grid), cost = exact_cost(grid);
    CHECK(cost.entries <= bound.entries);
    CHECK(cost.flops <= bound.flops);
    CHECK(cost.levels <= bound.levels);
    if (missing == 0) {
      CHECK(cost.entries == bound.entries);
      CHECK(cost.flops == bound.flops);
      CHECK(cost.levels == bound.levels);
    }
  }
}

TEST_CASE("Orders in blocks keep blocks together and are the orders of the blocks") {
  test::Random random(test::test_seed(44));
  for (int round = 0; round < 40; ++round) {
    const Pattern square = test::random_square(random, 60, 0.9);
    const BlockTriangularForm blocks = block_triangular_form(square);
    for (FillOrder order : kFillOrders) {
      const Permutation p = order_in_blocks(square, blocks, order);
      REQUIRE(is_permutation(p, square.rows));
      if (order == FillOrder::natural)
        CHECK(p == blocks.order);
      for (uint32_t block = 0; block < blocks.blocks(); ++block) {
        const auto part = [&](const Permutation& all) {
          Permutation members(all.begin() + blocks.block_begin[block],
                              all.begin() + blocks.block_begin[block + 1]);
          std::sort(members.begin(), members.end());
          return members;
        };
        CHECK(part(p) == part(blocks.order));
      }
    }
  }
  // One block: the order of the whole.
  const Pattern grid = test::random_grid(random, 15, 15, 0);
  const BlockTriangularForm one = block_triangular_form(grid);
  REQUIRE(one.blocks() == 1);
  CHECK(order_in_blocks(grid, one, FillOrder::amd) == fill_reducing_order(grid, FillOrder::amd));
}

TEST_CASE("Shallow orders are the least high without more fill") {
  test::Random random(test::test_seed(47));
  for (int round = 0; round < 60; ++round) {
    const LuPattern filled = filled_of(test::random_square(random, 1 + random.below(7), 1.2));
    const Permutation p = shallow_order(filled);
    REQUIRE(is_permutation(p, filled.rows.rows));
    const FactorCost cost = symmetric_factor_cost(permute(filled.rows, p, p));
    CHECK(cost.entries == filled.rows.nnz());
    CHECK(cost.levels == least_height(filled.rows));
  }
}

TEST_CASE("Shallow orders of hostile and large shapes fill nothing more and are no higher") {
  test::Random random(test::test_seed(48));
  std::vector<test::NamedPattern> shapes = test::hostile_squares(100'000);
  shapes.push_back({"grid", test::random_grid(random, 40, 40, 0.2)});
  for (const auto& [name, pattern] : shapes) {
    INFO(name);
    const Permutation amd = fill_reducing_order(pattern, FillOrder::amd);
    const Pattern permuted = permute(pattern, amd, amd);
    const FactorCost before = symmetric_factor_cost(permuted);
    const Permutation p = shallow_order(filled_of(permuted));
    REQUIRE(is_permutation(p, pattern.rows));
    const FactorCost after = symmetric_factor_cost(permute(permuted, p, p));
    CHECK(after.entries <= before.entries);
    CHECK(after.levels <= before.levels);
    if (name == "chain") // both ends at once
      CHECK(after.levels <= 50'001);
  }
}

TEST_CASE("The choice is the candidate with the least predicted time") {
  test::Random random(test::test_seed(45));
  TaskPool pool(2);
  for (double missing : {0.0, 0.4, 0.9}) {
    const Pattern square = test::random_grid(random, 30, 20, missing);
    const BlockTriangularForm blocks = block_triangular_form(square);
    const OrderChoice choice =
        choose_order(square, blocks, std::nullopt, Toggle::automatic, nullptr);
    REQUIRE(is_permutation(choice.order, square.rows));
    REQUIRE(choice.candidates.size() >= 3);
    for (const OrderCandidate& candidate : choice.candidates)
      CHECK(choice.winner().predicted_us <= candidate.predicted_us);
    const FactorCost cost = exact_cost(permute(square, choice.order, choice.order));
    CHECK(choice.winner().exact);
    CHECK(choice.winner().cost.entries == cost.entries);
    CHECK(choice.winner().cost.levels == cost.levels);
    CHECK(choice.winner().predicted_us == predicted_factor_time_us(cost));
    const OrderChoice parallel =
        choose_order(square, blocks, std::nullopt, Toggle::automatic, &pool);
    CHECK(parallel.order == choice.order);
    CHECK(parallel.chosen == choice.chosen);
  }
}

TEST_CASE("Levels decide, not fill alone") {
  // A chain: minimum degree takes it from both ends and has no fill, dissection has some fill and
  // few levels.
  const Pattern chain = test::hostile_squares(20'000).back().pattern;
  const OrderChoice choice =
      choose_order(chain, block_triangular_form(chain), std::nullopt, Toggle::automatic);
  CHECK(choice.winner().cost.levels < 100);
  const auto natural = choice.candidates.front();
  CHECK(natural.name == "natural");
  CHECK(natural.cost.levels == 20'000);
  CHECK(natural.cost.entries < choice.winner().cost.entries);
}

TEST_CASE("Blocks are used where they are asked for, or promise less") {
  // Triangular once permuted: inside its blocks nothing fills and nothing waits.
  test::Random random(test::test_seed(46));
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  constexpr uint32_t n = 300;
  Permutation shuffled = identity_permutation(n);
  for (uint32_t i = n; i > 1; --i)
    std::swap(shuffled[i - 1], shuffled[random.below(i)]);
  for (uint32_t i = 0; i < n; ++i) {
    entries.emplace_back(i, i);
    for (int k = 0; k < 4; ++k)
      if (i + 1 < n)
        entries.emplace_back(i, i + 1 + random.below(n - i - 1));
  }
  const Pattern square = permute(test::pattern_of(n, entries), shuffled, shuffled);
  const BlockTriangularForm blocks = block_triangular_form(square);
  REQUIRE(blocks.blocks() == n);
  const OrderChoice free = choose_order(square, blocks, std::nullopt, Toggle::automatic);
  CHECK(free.winner().cost.entries == square.nnz());
  CHECK(free.winner().cost.flops == 0);
  CHECK(free.winner().in_blocks);
  const OrderChoice on = choose_order(square, blocks, FillOrder::amd, Toggle::on);
  CHECK(on.candidates.size() == 1);
  CHECK(on.winner().name == "btf+amd");
  const OrderChoice off = choose_order(square, blocks, FillOrder::amd, Toggle::off);
  CHECK(off.candidates.size() == 1);
  CHECK(off.winner().name == "amd");
}

} // namespace sparsertc
