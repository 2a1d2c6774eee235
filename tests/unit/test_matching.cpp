#include "compiler/pattern/block_triangular.h"
#include "compiler/pattern/matching.h"
#include "compiler/pattern/scaled_matching.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace sparsertc {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

bool has(const Pattern& pattern, uint32_t row, uint32_t column) {
  const auto columns = pattern.row(row);
  return std::binary_search(columns.begin(), columns.end(), column);
}

void check_matching(const Pattern& pattern, const Matching& matching) {
  REQUIRE(matching.column_of_row.size() == pattern.rows);
  REQUIRE(matching.row_of_column.size() == pattern.columns);
  uint32_t pairs = 0;
  for (uint32_t row = 0; row < pattern.rows; ++row) {
    const uint32_t column = matching.column_of_row[row];
    if (column == kUnmatched)
      continue;
    ++pairs;
    CHECK(has(pattern, row, column));
    CHECK(matching.row_of_column[column] == row);
  }
  for (uint32_t column = 0; column < pattern.columns; ++column)
    if (matching.row_of_column[column] != kUnmatched)
      CHECK(matching.column_of_row[matching.row_of_column[column]] == column);
  CHECK(matching.size == pairs);
}

/// The structural rank by Hall's theorem in Koenig's form: the least, over all sets of rows, of the
/// rows outside the set and the columns that the set touches.
uint32_t rank_by_subsets(const Pattern& pattern) {
  uint32_t least = pattern.rows;
  for (uint32_t set = 0; set < (1u << pattern.rows); ++set) {
    uint32_t touched = 0, outside = 0;
    for (uint32_t row = 0; row < pattern.rows; ++row) {
      if (!(set >> row & 1)) {
        ++outside;
        continue;
      }
      for (uint32_t column : pattern.row(row))
        touched |= 1u << column;
    }
    least = std::min(least, outside + static_cast<uint32_t>(__builtin_popcount(touched)));
  }
  return least;
}

Pattern random_rectangle(test::Random& random) {
  const uint32_t rows = random.below(9), columns = random.below(9);
  Pattern pattern;
  pattern.rows = rows;
  pattern.columns = columns;
  const double density = random.unit() * random.unit();
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column)
      if (random.chance(density))
        pattern.column_index.push_back(column);
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  return pattern;
}

/// The largest product over all perfect matchings, as a sum of logarithms; -inf where none exists.
double best_by_permutations(const Pattern& square, const std::vector<double>& magnitudes) {
  std::vector<uint32_t> column_of(square.rows);
  std::iota(column_of.begin(), column_of.end(), 0u);
  double best = -std::numeric_limits<double>::infinity();
  do {
    double sum = 0;
    for (uint32_t row = 0; row < square.rows; ++row) {
      const auto columns = square.row(row);
      const auto at = std::lower_bound(columns.begin(), columns.end(), column_of[row]);
      if (at == columns.end() || *at != column_of[row]) {
        sum = -std::numeric_limits<double>::infinity();
        break;
      }
      sum +=
          std::log(magnitudes[square.row_offset[row] + static_cast<size_t>(at - columns.begin())]);
    }
    best = std::max(best, sum);
  } while (std::next_permutation(column_of.begin(), column_of.end()));
  return best;
}

double log_product(const Pattern& square, const std::vector<double>& magnitudes,
                   const Matching& matching) {
  double sum = 0;
  for (uint32_t row = 0; row < square.rows; ++row)
    for (uint64_t k = square.row_offset[row]; k < square.row_offset[row + 1]; ++k)
      if (square.column_index[k] == matching.column_of_row[row])
        sum += std::log(magnitudes[k]);
  return sum;
}

/// Ones on the diagonal and nothing larger: with it, the duals prove that the matching is best.
void check_scaling(const Pattern& square, const std::vector<double>& magnitudes,
                   const ScaledMatching& scaled) {
  double largest_logarithm = 1;
  for (double magnitude : magnitudes)
    if (magnitude > 0)
      largest_logarithm = std::max(largest_logarithm, std::abs(std::log(magnitude)));
  const double tolerance = kEpsilon * (square.rows + 8 * largest_logarithm);
  double worst = 0, worst_pivot = 0;
  for (uint32_t row = 0; row < square.rows; ++row)
    for (uint64_t k = square.row_offset[row]; k < square.row_offset[row + 1]; ++k) {
      const uint32_t column = square.column_index[k];
      const double value = scaled.row_scale[row] * magnitudes[k] * scaled.column_scale[column];
      worst = std::max(worst, value - 1);
      if (scaled.matching.column_of_row[row] == column)
        worst_pivot = std::max(worst_pivot, std::abs(value - 1));
    }
  CHECK(worst <= tolerance);
  CHECK(worst_pivot <= 4 * kEpsilon);
}

std::vector<double> random_magnitudes(test::Random& random, uint64_t count, double zeros,
                                      int exponents) {
  std::vector<double> result(count);
  for (double& value : result)
    value =
        random.chance(zeros)
            ? 0
            : std::ldexp(0.5 + random.unit() / 2,
                         static_cast<int>(random.below(2 * static_cast<uint32_t>(exponents) + 1)) -
                             exponents);
  return result;
}

bool reaches(const Pattern& square, uint32_t from, uint32_t to) {
  std::vector<bool> seen(square.rows, false);
  std::vector<uint32_t> stack = {from};
  seen[from] = true;
  while (!stack.empty()) {
    const uint32_t vertex = stack.back();
    stack.pop_back();
    if (vertex == to)
      return true;
    for (uint32_t next : square.row(vertex))
      if (!seen[next]) {
        seen[next] = true;
        stack.push_back(next);
      }
  }
  return false;
}

} // namespace

TEST_CASE("Maximum matchings have the structural rank") {
  test::Random random(test::test_seed(21));
  for (int round = 0; round < 600; ++round) {
    const Pattern pattern = random_rectangle(random);
    const Matching matching = maximum_matching(pattern);
    check_matching(pattern, matching);
    CHECK(matching.size == rank_by_subsets(pattern));
  }
}

TEST_CASE("A full diagonal is matched along itself") {
  test::Random random(test::test_seed(22));
  const Pattern pattern = test::random_square(random, 200, 5);
  CHECK(row_permutation(maximum_matching(pattern)) == identity_permutation(200));
}

TEST_CASE("Dulmage and Mendelsohn's sets say which rows and columns are in excess") {
  test::Random random(test::test_seed(23));
  for (int round = 0; round < 400; ++round) {
    const Pattern pattern = random_rectangle(random);
    const uint32_t rank = rank_by_subsets(pattern);
    const DulmageMendelsohn sets = dulmage_mendelsohn(pattern, maximum_matching(pattern));
    CHECK(sets.overdetermined_rows.size() - sets.overdetermined_columns.size() ==
          pattern.rows - rank);
    CHECK(sets.underdetermined_columns.size() - sets.underdetermined_rows.size() ==
          pattern.columns - rank);
    // The rows in excess have no entries elsewhere; nor have the columns in excess.
    std::vector<bool> over_column(pattern.columns, false), under_column(pattern.columns, false);
    std::vector<bool> under_row(pattern.rows, false);
    for (uint32_t column : sets.overdetermined_columns)
      over_column[column] = true;
    for (uint32_t column : sets.underdetermined_columns)
      under_column[column] = true;
    for (uint32_t row : sets.underdetermined_rows)
      under_row[row] = true;
    for (uint32_t row : sets.overdetermined_rows)
      for (uint32_t column : pattern.row(row))
        CHECK(over_column[column]);
    for (uint32_t row = 0; row < pattern.rows; ++row)
      for (uint32_t column : pattern.row(row))
        if (under_column[column])
          CHECK(under_row[row]);
    // A row can be spared, its loss leaves the rank, exactly when it is in excess.
    for (uint32_t row = 0; row < pattern.rows; ++row) {
      Pattern without = pattern;
      const auto begin = without.column_index.begin();
      without.column_index.erase(begin + static_cast<ptrdiff_t>(pattern.row_offset[row]),
                                 begin + static_cast<ptrdiff_t>(pattern.row_offset[row + 1]));
      for (uint32_t later = row + 1; later <= pattern.rows; ++later)
        without.row_offset[later] -= pattern.row_length(row);
      const bool spare = maximum_matching(without).size == rank;
      CHECK(spare == std::binary_search(sets.overdetermined_rows.begin(),
                                        sets.overdetermined_rows.end(), row));
    }
  }
}

TEST_CASE("Blocks are the strongly connected components, with nothing below them") {
  test::Random random(test::test_seed(24));
  for (int round = 0; round < 300; ++round) {
    const uint32_t size = random.below(14);
    const Pattern square = test::random_square(random, size, random.unit() * 2, 0.8);
    const BlockTriangularForm form = block_triangular_form(square);
    REQUIRE(is_permutation(form.order, size));
    REQUIRE(form.block_begin.front() == 0);
    REQUIRE(form.block_begin.back() == size);
    std::vector<uint32_t> block_of(size);
    for (uint32_t block = 0; block < form.blocks(); ++block) {
      CHECK(form.block_begin[block] < form.block_begin[block + 1]);
      for (uint32_t place = form.block_begin[block]; place < form.block_begin[block + 1]; ++place)
        block_of[form.order[place]] = block;
    }
    for (uint32_t row = 0; row < size; ++row)
      for (uint32_t column : square.row(row))
        CHECK(block_of[row] <= block_of[column]);
    for (uint32_t i = 0; i < size; ++i)
      for (uint32_t j = 0; j < size; ++j)
        CHECK((block_of[i] == block_of[j]) == (reaches(square, i, j) && reaches(square, j, i)));
  }
}

TEST_CASE("The matching has the largest product of all") {
  test::Random random(test::test_seed(25));
  int perfect = 0;
  for (int round = 0; round < 600; ++round) {
    const uint32_t size = random.below(7);
    const Pattern square = test::random_square(random, size, 0.5 + 2 * random.unit(), 0.4);
    const std::vector<double> magnitudes =
        random_magnitudes(random, square.nnz(), 0.1, round % 2 == 0 ? 3 : 60);
    const ScaledMatching scaled = maximum_product_matching(square, magnitudes);
    const double best = best_by_permutations(square, magnitudes);
    REQUIRE(scaled.is_perfect() == std::isfinite(best));
    if (!scaled.is_perfect())
      continue;
    ++perfect;
    check_matching(square, scaled.matching);
    CHECK(log_product(square, magnitudes, scaled.matching) == Approx(best).margin(1e-11));
    check_scaling(square, magnitudes, scaled);
  }
  CHECK(perfect > 200);
}

TEST_CASE("Zeros count as no entry, and the rank without them is found") {
  test::Random random(test::test_seed(26));
  for (int round = 0; round < 300; ++round) {
    const Pattern square = test::random_square(random, 8, 2, 0.5);
    const std::vector<double> magnitudes = random_magnitudes(random, square.nnz(), 0.4, 5);
    Pattern kept;
    kept.rows = kept.columns = 8;
    for (uint32_t row = 0; row < 8; ++row) {
      for (uint64_t k = square.row_offset[row]; k < square.row_offset[row + 1]; ++k)
        if (magnitudes[k] != 0)
          kept.column_index.push_back(square.column_index[k]);
      kept.row_offset.push_back(kept.column_index.size());
    }
    const ScaledMatching scaled = maximum_product_matching(square, magnitudes);
    check_matching(kept, scaled.matching);
    CHECK(scaled.matching.size == rank_by_subsets(kept));
  }
}

TEST_CASE("The duals prove large matchings best") {
  test::Random random(test::test_seed(27));
  for (uint32_t size : {100u, 2000u}) {
    for (int exponents : {1, 30, 100}) {
      const Pattern square = test::random_square(random, size, 4);
      const std::vector<double> magnitudes = random_magnitudes(random, square.nnz(), 0, exponents);
      const ScaledMatching scaled = maximum_product_matching(square, magnitudes);
      REQUIRE(scaled.is_perfect());
      check_matching(square, scaled.matching);
      check_scaling(square, magnitudes, scaled);
      const ScaledMatching again = maximum_product_matching(square, magnitudes);
      CHECK(again.row_scale == scaled.row_scale);
      CHECK(again.column_scale == scaled.column_scale);
      CHECK(again.matching.column_of_row == scaled.matching.column_of_row);
    }
  }
}

TEST_CASE("Scaling survives the ends of the range of numbers") {
  // 5e-324 has no reciprocal.
  const Pattern diagonal = test::pattern_of(3, {{0, 0}, {1, 1}, {2, 2}});
  for (const std::vector<double>& magnitudes :
       {std::vector<double>{5e-324, 1, 1.7e308}, std::vector<double>{5e-324, 5e-324, 5e-324},
        std::vector<double>{1.7e308, 1.7e308, 1e-300}}) {
    const ScaledMatching scaled = maximum_product_matching(diagonal, magnitudes);
    REQUIRE(scaled.is_perfect());
    check_scaling(diagonal, magnitudes, scaled);
    for (double factor : scaled.row_scale)
      CHECK((std::isfinite(factor) && factor > 0));
    for (double factor : scaled.column_scale)
      CHECK((std::isfinite(factor) && factor > 0));
  }
}

TEST_CASE("Long alternating paths are found in good time") {
  // Row i has columns i - 1 and i, and the last row only its first: each greedy step is wrong.
  constexpr uint32_t n = 100'000;
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < n; ++i) {
    entries.emplace_back(i, (i + 1) % n);
    if (i + 1 < n)
      entries.emplace_back(i, i);
  }
  const Pattern shifted = test::pattern_of(n, entries);
  const Matching matching = maximum_matching(shifted);
  CHECK(matching.size == n);
  std::vector<double> magnitudes(shifted.nnz(), 1);
  const ScaledMatching scaled = maximum_product_matching(shifted, magnitudes);
  CHECK(scaled.is_perfect());
  const Pattern chain = test::hostile_squares(n).back().pattern;
  CHECK(block_triangular_form(chain).blocks() == 1);
}

TEST_CASE("A strong diagonal is told from a weak one") {
  const Pattern square = test::pattern_of(2, {{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  CHECK(has_strong_diagonal(square, std::vector<double>{1, 9, 9, 1}));
  CHECK_FALSE(has_strong_diagonal(square, std::vector<double>{1, 11, 1, 1}));
  CHECK_FALSE(has_strong_diagonal(square, std::vector<double>{1, 1, 11, 1}));
  CHECK_FALSE(has_strong_diagonal(square, std::vector<double>{1, 0, 0, 0}));
  CHECK_FALSE(has_strong_diagonal(test::pattern_of(2, {{0, 0}}), std::vector<double>{1}));
  CHECK(has_strong_diagonal(Pattern{}, {}));
}

} // namespace sparsertc
