// Levels against an exact check of what is read and written, and the tables of the factorization
// against a plain elimination.
#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_schedule.h"
#include "ir/error.h"
#include "tests/support/lu_patterns.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <catch2/catch.hpp>

namespace sparsertc {
namespace {

using test::Random;

std::vector<uint32_t> level_of_member(const LuLevels& levels) {
  std::vector<uint32_t> level(levels.member.size(), UINT32_MAX);
  for (uint64_t l = 0; l < levels.count(); ++l) {
    CHECK(levels.offset[l] < levels.offset[l + 1]);
    CHECK(std::is_sorted(levels.member.begin() + static_cast<ptrdiff_t>(levels.offset[l]),
                         levels.member.begin() + static_cast<ptrdiff_t>(levels.offset[l + 1])));
    for (uint64_t p = levels.offset[l]; p < levels.offset[l + 1]; ++p) {
      CHECK(level[levels.member[p]] == UINT32_MAX);
      level[levels.member[p]] = static_cast<uint32_t>(l);
    }
  }
  return level;
}

/// Places of an n x n array that a column of an algorithm reads and writes.
struct Accesses {
  std::set<uint64_t> read;
  std::set<uint64_t> written;
};

bool meet(const std::set<uint64_t>& a, const std::set<uint64_t>& b) {
  return std::any_of(a.begin(), a.end(), [&](uint64_t place) { return b.count(place) != 0; });
}

/// Column by column, from the definition of the two algorithms.
std::vector<Accesses> accesses_of(const LuPattern& pattern, LevelRule rule) {
  const uint32_t n = pattern.rows.rows;
  std::vector<std::vector<bool>> full(n, std::vector<bool>(n, false));
  for (uint32_t i = 0; i < n; ++i)
    for (const uint32_t j : pattern.rows.row(i))
      full[i][j] = true;
  const auto place = [&](uint32_t i, uint32_t j) { return uint64_t{i} * n + j; };
  std::vector<Accesses> result(n);
  for (uint32_t j = 0; j < n; ++j) {
    Accesses& own = result[j];
    if (rule == LevelRule::gather) {
      for (uint32_t i = 0; i < n; ++i)
        if (full[i][j])
          own.written.insert(place(i, j));
      for (uint32_t k = 0; k < j; ++k)
        if (full[k][j])
          for (uint32_t i = k + 1; i < n; ++i)
            if (full[i][k]) {
              own.read.insert(place(i, k));
              own.read.insert(place(k, k));
            }
    } else {
      own.read.insert(place(j, j));
      for (uint32_t i = j + 1; i < n; ++i)
        if (full[i][j])
          own.written.insert(place(i, j));
      for (uint32_t k = j + 1; k < n; ++k)
        if (full[j][k])
          for (uint32_t i = j + 1; i < n; ++i)
            if (full[i][j]) {
              own.read.insert(place(j, k));
              own.written.insert(place(i, k));
            }
    }
  }
  return result;
}

/// A column that reads what an earlier one writes, or writes what an earlier one reads, stands in a
/// later level. (Two that only add to one place may stand in one level.)
uint32_t violations(const LuPattern& pattern, const LuLevels& levels, LevelRule rule) {
  const std::vector<uint32_t> level = level_of_member(levels);
  const std::vector<Accesses> accesses = accesses_of(pattern, rule);
  uint32_t count = 0;
  for (uint32_t j = 0; j < level.size(); ++j)
    for (uint32_t k = 0; k < j; ++k)
      if (level[j] <= level[k] && (meet(accesses[j].read, accesses[k].written) ||
                                   meet(accesses[j].written, accesses[k].read)))
        ++count;
  return count;
}

/// The longest chain of "waits for" that ends at each vertex, from a full matrix of who waits for
/// whom; `last_first` where vertices wait for larger ones.
template <class WaitsFor>
std::vector<uint32_t> longest_chains(uint32_t n, bool last_first, const WaitsFor& waits_for) {
  std::vector<uint32_t> chain(n, 0);
  for (uint32_t step = 0; step < n; ++step) {
    const uint32_t v = last_first ? n - 1 - step : step;
    for (uint32_t u = 0; u < n; ++u)
      if (u != v && waits_for(v, u))
        chain[v] = std::max(chain[v], chain[u] + 1);
  }
  return chain;
}

bool has(const Pattern& pattern, uint32_t i, uint32_t j) {
  const auto row = pattern.row(i);
  return std::binary_search(row.begin(), row.end(), j);
}

std::vector<Pattern> small_patterns(Random& random) {
  std::vector<Pattern> all;
  for (const test::NamedPattern& shape : test::hostile_squares(30))
    all.push_back(shape.pattern);
  for (int round = 0; round < 30; ++round)
    all.push_back(test::random_square(random, 1 + random.below(40), 0.5 + 2 * random.unit()));
  return all;
}

} // namespace

TEST_CASE("No column of a level meets what another one touches") {
  Random random(test::test_seed(20261201));
  uint32_t violated_by_upper_alone = 0;
  for (const Pattern& a : small_patterns(random)) {
    const LuPattern rows = symbolic_lu(a);
    const LuColumns columns = by_columns(rows);
    const LuLevels gather = factor_levels(rows, columns, LevelRule::gather);
    const LuLevels safe = factor_levels(rows, columns, LevelRule::right_looking);
    CHECK(violations(rows, gather, LevelRule::gather) == 0);
    CHECK(violations(rows, safe, LevelRule::right_looking) == 0);
    CHECK(gather.count() <= safe.count());
    violated_by_upper_alone += violations(rows, gather, LevelRule::right_looking);
  }
  CHECK(violated_by_upper_alone > 0); // the rule of U alone is not safe for right-looking updates
}

TEST_CASE("Levels are the longest chains") {
  Random random(test::test_seed(20261201));
  for (const Pattern& a : small_patterns(random)) {
    const LuPattern rows = symbolic_lu(a);
    const LuColumns columns = by_columns(rows);
    const Pattern& f = rows.rows;
    const uint32_t n = f.rows;
    CHECK(level_of_member(factor_levels(rows, columns, LevelRule::gather)) ==
          longest_chains(n, false, [&](uint32_t v, uint32_t u) {
            bool below = false;
            for (uint32_t i = u + 1; i < n; ++i)
              below |= has(f, i, u);
            return u < v && has(f, u, v) && below;
          }));
    CHECK(level_of_member(forward_levels(columns)) ==
          longest_chains(n, false, [&](uint32_t v, uint32_t u) { return u < v && has(f, v, u); }));
    CHECK(level_of_member(backward_levels(columns)) ==
          longest_chains(n, true, [&](uint32_t v, uint32_t u) { return u > v && has(f, v, u); }));
    CHECK(level_of_member(transposed_forward_levels(rows)) ==
          longest_chains(n, false, [&](uint32_t v, uint32_t u) { return u < v && has(f, u, v); }));
    CHECK(level_of_member(transposed_backward_levels(rows)) ==
          longest_chains(n, true, [&](uint32_t v, uint32_t u) { return u > v && has(f, u, v); }));
  }
}

namespace {

/// A random permutation.
Permutation shuffled(Random& random, uint32_t size) {
  Permutation p = identity_permutation(size);
  for (uint32_t i = size; i > 1; --i)
    std::swap(p[i - 1], p[random.below(i)]);
  return p;
}

} // namespace

TEST_CASE("The tables place every entry of A and pair every multiply-add once") {
  Random random(test::test_seed(20261201));
  TaskPool pool(3);
  for (const Pattern& a : small_patterns(random)) {
    LuPlacement placement{shuffled(random, a.rows), shuffled(random, a.rows), {}, {}};
    std::vector<double> row_scale(a.rows), column_scale(a.rows);
    for (double& s : row_scale)
      s = 1 + random.unit();
    for (double& s : column_scale)
      s = 1 + random.unit();
    placement.row_scale = row_scale;
    placement.column_scale = column_scale;
    const LuTables tables = make_lu_tables(a, placement, &pool);
    const uint32_t n = tables.size;
    REQUIRE(n == a.rows);

    // Every entry of A, at its place and with its factor.
    std::vector<uint32_t> row_of_source(a.nnz());
    for (uint32_t i = 0; i < n; ++i)
      std::fill(row_of_source.begin() + static_cast<ptrdiff_t>(a.row_offset[i]),
                row_of_source.begin() + static_cast<ptrdiff_t>(a.row_offset[i + 1]), i);
    std::vector<uint32_t> times_placed(a.nnz(), 0);
    for (uint32_t j = 0; j < n; ++j)
      for (uint64_t p = tables.input_offset[j]; p < tables.input_offset[j + 1]; ++p) {
        const uint64_t source = tables.input_source[p], slot = tables.input_slot[p];
        ++times_placed[source];
        CHECK(a.column_index[source] == placement.columns[j]);
        CHECK(row_of_source[source] == placement.rows[tables.input_row[p]]);
        CHECK((tables.column_offset[j] <= slot && slot < tables.column_offset[j + 1]));
        CHECK(tables.row_index[slot] == tables.input_row[p]);
        CHECK(tables.input_scale[p] ==
              row_scale[row_of_source[source]] * column_scale[a.column_index[source]]);
      }
    CHECK(std::all_of(times_placed.begin(), times_placed.end(), [](auto t) { return t == 1; }));

    // Rows and columns agree on the slots.
    for (uint32_t i = 0; i < n; ++i) {
      CHECK(tables.row_index[tables.diagonal[i]] == i);
      CHECK(tables.row_slot[tables.row_diagonal[i]] == tables.diagonal[i]);
      for (uint64_t p = tables.row_offset[i]; p < tables.row_offset[i + 1]; ++p) {
        const uint32_t j = tables.column_index[p];
        CHECK(tables.row_index[tables.row_slot[p]] == i);
        CHECK((tables.column_offset[j] <= tables.row_slot[p] &&
               tables.row_slot[p] < tables.column_offset[j + 1]));
      }
    }

    // The gather: each slot once, its pairs complete, everything it reads done in an earlier level.
    const std::optional<LuGather> gather = make_lu_gather(tables, 1 << 20);
    REQUIRE(gather.has_value());
    CHECK(gather->pairs() == multiply_adds(tables));
    REQUIRE(gather->tasks() == tables.nnz());
    std::vector<uint64_t> level_of_slot(tables.nnz(), UINT64_MAX);
    for (uint64_t l = 0; l + 1 < gather->level_offset.size(); ++l)
      for (uint64_t t = gather->level_offset[l]; t < gather->level_offset[l + 1]; ++t)
        level_of_slot[gather->task_slot[t]] = l;
    std::vector<uint32_t> column_of_slot(tables.nnz());
    for (uint32_t j = 0; j < n; ++j)
      std::fill(column_of_slot.begin() + static_cast<ptrdiff_t>(tables.column_offset[j]),
                column_of_slot.begin() + static_cast<ptrdiff_t>(tables.column_offset[j + 1]), j);
    for (uint64_t t = 0; t < gather->tasks(); ++t) {
      const uint64_t slot = gather->task_slot[t];
      const uint32_t i = tables.row_index[slot], j = column_of_slot[slot];
      std::vector<uint32_t> paired, expected;
      uint64_t least_level = 0;
      for (uint64_t p = gather->pair_offset[t]; p < gather->pair_offset[t + 1]; ++p) {
        const uint32_t k = column_of_slot[gather->pair_left[p]];
        paired.push_back(k);
        CHECK(tables.row_index[gather->pair_left[p]] == i);
        CHECK(tables.row_index[gather->pair_right[p]] == k);
        CHECK(column_of_slot[gather->pair_right[p]] == j);
        CHECK(gather->pair_pivot[p] == tables.diagonal[k]);
        for (const uint32_t read :
             {gather->pair_left[p], gather->pair_right[p], gather->pair_pivot[p]})
          least_level = std::max(least_level, level_of_slot[read] + 1);
      }
      CHECK(level_of_slot[slot] == least_level);
      for (uint32_t k = 0; k < std::min(i, j); ++k) {
        const auto in_column = [&](uint32_t row, uint32_t column) {
          return std::binary_search(
              tables.row_index.begin() + static_cast<ptrdiff_t>(tables.column_offset[column]),
              tables.row_index.begin() + static_cast<ptrdiff_t>(tables.column_offset[column + 1]),
              row);
        };
        if (in_column(i, k) && in_column(k, j))
          expected.push_back(k);
      }
      CHECK(paired == expected);
    }
    // The same without threads and with them.
    const std::optional<LuGather> again = make_lu_gather(tables, 1 << 20, &pool);
    REQUIRE(again.has_value());
    CHECK(again->task_slot == gather->task_slot);
    CHECK(again->pair_left == gather->pair_left);
    CHECK(again->pair_right == gather->pair_right);
  }
}

TEST_CASE("A gather that would be too large is not made") {
  Random random(test::test_seed(20261201));
  const Pattern a = test::random_grid(random, 12, 12, 0);
  const LuTables tables =
      make_lu_tables(a, {identity_permutation(144), identity_permutation(144), {}, {}});
  const uint64_t bytes = gather_bytes(tables.nnz(), multiply_adds(tables));
  CHECK(make_lu_gather(tables, bytes).has_value());
  CHECK_FALSE(make_lu_gather(tables, bytes - 1).has_value());
  CHECK_THROWS_AS(make_lu_tables(a, {identity_permutation(143), identity_permutation(144), {}, {}}),
                  UserError);
}

} // namespace sparsertc
