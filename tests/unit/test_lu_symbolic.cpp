// Symbolic factorization against elimination on a dense array of booleans, and its two methods
// against each other.
#include "compiler/input/read.h"
#include "compiler/inspect/elimination_tree.h"
#include "compiler/inspect/lu_symbolic.h"
#include "compiler/pattern/permutation.h"
#include "ir/error.h"
#include "tests/support/lu_patterns.h"

#include <cstdlib>
#include <filesystem>

#include <catch2/catch.hpp>

namespace sparsertc {
namespace {

using test::Random;

LuPattern eliminate_densely(const Pattern& a) {
  const uint32_t n = a.rows;
  std::vector<std::vector<bool>> full(n, std::vector<bool>(n, false));
  for (uint32_t i = 0; i < n; ++i) {
    full[i][i] = true;
    for (const uint32_t j : a.row(i))
      full[i][j] = true;
  }
  for (uint32_t k = 0; k < n; ++k)
    for (uint32_t i = k + 1; i < n; ++i)
      if (full[i][k])
        for (uint32_t j = k + 1; j < n; ++j)
          if (full[k][j])
            full[i][j] = true;
  LuPattern result;
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = 0; j < n; ++j)
      if (full[i][j]) {
        if (i == j)
          result.diagonal.push_back(entries.size());
        entries.emplace_back(i, j);
      }
  result.rows = test::pattern_of(n, entries);
  return result;
}

/// Both methods, without threads and with them.
void check_methods(const Pattern& a, const LuPattern& expected) {
  TaskPool pool(3);
  CHECK(symbolic_lu(a) == expected);
  CHECK(symbolic_lu(a, &pool) == expected);
  CHECK(symbolic_lu_fill2(a) == expected);
  CHECK(symbolic_lu_fill2(a, &pool) == expected);
}

} // namespace

TEST_CASE("Symbolic factorization finds what dense elimination finds") {
  Random random(test::test_seed(20261201));
  for (const test::NamedPattern& shape : test::hostile_squares(50)) {
    INFO(shape.name);
    check_methods(shape.pattern, eliminate_densely(shape.pattern));
  }
  for (int round = 0; round < 150; ++round) {
    const uint32_t size = 1 + random.below(90);
    const double per_row = 0.5 + 4 * random.unit();
    const Pattern a = test::random_square(random, size, per_row, random.unit());
    INFO("round " << round << ", n " << size << ", " << per_row << " entries a row");
    check_methods(a, eliminate_densely(a));
  }
}

TEST_CASE("A visited-once search in any order would miss this fill") {
  // From 5: to 4 directly, and from there to 3; 3 is also met at once through 1 alone. The path
  // 5 -> 1 -> 3 makes (5,3); had 3 been visited through 4 first, it would not be there.
  const Pattern a = test::pattern_of(
      6, {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {5, 4}, {4, 3}, {5, 1}, {1, 3}});
  const LuPattern filled = symbolic_lu_fill2(a);
  CHECK(filled == eliminate_densely(a));
  const auto row = filled.rows.row(5);
  CHECK(std::vector<uint32_t>(row.begin(), row.end()) == std::vector<uint32_t>{1, 3, 4, 5});
}

TEST_CASE("Both methods agree on larger patterns") {
  Random random(test::test_seed(20261201));
  TaskPool pool(4);
  for (const double missing : {0.0, 0.3, 1.0}) {
    const Pattern grid = test::random_grid(random, 40, 30, missing);
    const LuPattern fast = symbolic_lu(grid);
    CHECK(symbolic_lu(grid, &pool) == fast);
    CHECK(symbolic_lu_fill2(grid, &pool) == fast);
  }
  // 4096 numbers share a bit of the upper level of a set: more than one of these here.
  const Pattern sparse = test::random_square(random, 9000, 0.9);
  CHECK(symbolic_lu_fill2(sparse) == symbolic_lu(sparse, &pool));
  const Pattern chain = test::hostile_squares(100'000).back().pattern;
  CHECK(symbolic_lu(chain, &pool).rows == chain);
  // Here fill2 walks back to the beginning from every row.
  const Pattern short_chain = test::hostile_squares(2000).back().pattern;
  CHECK(symbolic_lu_fill2(short_chain, &pool).rows == short_chain);
}

TEST_CASE("L+U by columns holds the same entries") {
  Random random(test::test_seed(20261201));
  const LuPattern rows = symbolic_lu(test::random_square(random, 60, 3));
  const LuColumns columns = by_columns(rows);
  REQUIRE(find_fault(columns.columns) == std::nullopt);
  for (uint32_t j = 0; j < 60; ++j) {
    CHECK(columns.columns.column_index[columns.diagonal[j]] == j);
    for (uint64_t p = columns.columns.row_offset[j]; p < columns.columns.row_offset[j + 1]; ++p) {
      const uint64_t place = columns.place_in_rows[p];
      const uint32_t i = columns.columns.column_index[p];
      CHECK(rows.rows.column_index[place] == j);
      CHECK((rows.rows.row_offset[i] <= place && place < rows.rows.row_offset[i + 1]));
    }
  }
}

TEST_CASE("A matrix that is not square has no LU factorization") {
  Pattern wide = test::pattern_of(2, {{0, 0}});
  wide.columns = 3;
  CHECK_THROWS_AS(symbolic_lu(wide), UserError);
  CHECK_THROWS_AS(symbolic_lu_fill2(wide), UserError);
}

TEST_CASE("A cut tree has every vertex once and no part depends on another") {
  Random random(test::test_seed(20261201));
  for (const uint32_t size : {0u, 1u, 300u}) {
    const Pattern a = test::random_square(random, size, 1.2);
    const std::vector<uint32_t> parent = elimination_tree(a);
    const TreeParts cut = cut_tree(parent, std::vector<uint64_t>(size, 1), 8);
    std::vector<uint32_t> part(size, kNoVertex), seen(size, 0);
    for (size_t p = 0; p < cut.parts.size(); ++p)
      for (const uint32_t v : cut.parts[p]) {
        part[v] = static_cast<uint32_t>(p);
        ++seen[v];
      }
    for (const uint32_t v : cut.top)
      ++seen[v];
    CHECK(std::all_of(seen.begin(), seen.end(), [](uint32_t count) { return count == 1; }));
    for (uint32_t v = 0; v < size; ++v)
      if (parent[v] != kNoVertex) {
        CHECK(parent[v] > v);
        CHECK((part[parent[v]] == kNoVertex || part[parent[v]] == part[v]));
      }
  }
}

TEST_CASE("A postorder keeps the fill and each subtree in one piece") {
  Random random(test::test_seed(20261201));
  for (const uint32_t size : {0u, 1u, 2u, 200u}) {
    const Pattern a = test::random_square(random, size, 1);
    const std::vector<uint32_t> parent = elimination_tree(a);
    const Permutation order = postorder(parent);
    REQUIRE(is_permutation(order, size));
    const Permutation place = inverse(order);
    std::vector<uint32_t> below(size, 1); // vertices of the subtree
    for (uint32_t v = 0; v < size; ++v)
      if (parent[v] != kNoVertex)
        below[parent[v]] += below[v];
    for (uint32_t v = 0; v < size; ++v)
      if (parent[v] != kNoVertex) {
        CHECK(place[v] < place[parent[v]]);
        CHECK(place[v] + below[parent[v]] > place[parent[v]]);
      }
    CHECK(symbolic_lu(permute(a, order, order)).rows == permute(symbolic_lu(a).rows, order, order));
  }
}

TEST_CASE("Both methods agree on the real matrices") {
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA names no folder");
    return;
  }
  TaskPool pool;
  size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(folder) + "/lu")) {
    const Matrix a = read_matrix(file.path());
    if (a.pattern.rows > 2500)
      continue;
    INFO(a.name);
    ++count;
    const LuPattern fast = symbolic_lu(a.pattern);
    CHECK(symbolic_lu(a.pattern, &pool) == fast);
    CHECK(symbolic_lu_fill2(a.pattern, &pool) == fast);
  }
  CHECK(count > 30);
}

} // namespace sparsertc
