// Colourings against definitions, written here as plain loops over dense tables.
#include "compiler/pattern/colouring.h"
#include "compiler/pattern/compression.h"
#include "compiler/pattern/conflict_sets.h"
#include "ir/error.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <numeric>

namespace sparsertc {
namespace {

constexpr ColouringSide kSides[] = {ColouringSide::column, ColouringSide::row, ColouringSide::star};
constexpr ColouringOrder kOrders[] = {ColouringOrder::natural, ColouringOrder::largest_first,
                                      ColouringOrder::smallest_last,
                                      ColouringOrder::incidence_degree};

using Dense = std::vector<std::vector<bool>>;

Dense dense_of(const Pattern& pattern) {
  Dense dense(pattern.rows, std::vector<bool>(pattern.columns, false));
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (const uint32_t column : pattern.row(row))
      dense[row][column] = true;
  return dense;
}

Pattern pattern_of(const Dense& dense, uint32_t columns) {
  Pattern pattern;
  pattern.rows = static_cast<uint32_t>(dense.size());
  pattern.columns = columns;
  for (const std::vector<bool>& row : dense) {
    for (uint32_t column = 0; column < columns; ++column)
      if (row[column])
        pattern.column_index.push_back(column);
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  return pattern;
}

template <class Has>
Pattern pattern_where(uint32_t rows, uint32_t columns, const Has& has) {
  Dense dense(rows, std::vector<bool>(columns, false));
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t column = 0; column < columns; ++column)
      dense[row][column] = has(row, column);
  return pattern_of(dense, columns);
}

Pattern random_pattern(test::Random& random, uint32_t rows, uint32_t columns) {
  return test::random_sparse(random, rows, columns, random.pick(test::kRowShapes),
                             test::ValueShape::unit, -126, 127)
      .pattern;
}

/// The definition of a direct recovery, entry by entry.
bool gives_all(const Dense& dense, uint32_t columns, const Colouring& colouring) {
  const auto rows = static_cast<uint32_t>(dense.size());
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t column = 0; column < columns; ++column) {
      if (!dense[row][column])
        continue;
      bool by_column = colouring.side != ColouringSide::row && colouring.column_colour[column] != 0;
      for (uint32_t other = 0; by_column && other < columns; ++other)
        if (other != column && dense[row][other] &&
            colouring.column_colour[other] == colouring.column_colour[column])
          by_column = false;
      bool by_row = colouring.side != ColouringSide::column && colouring.row_colour[row] != 0;
      for (uint32_t other = 0; by_row && other < rows; ++other)
        if (other != row && dense[other][column] &&
            colouring.row_colour[other] == colouring.row_colour[row])
          by_row = false;
      if (!by_column && !by_row)
        return false;
    }
  return true;
}

void check_colouring(const Pattern& pattern, const Colouring& colouring, ColouringSide side) {
  REQUIRE(colouring.side == side);
  CHECK(find_conflict(pattern, colouring) == std::nullopt);
  CHECK(gives_all(dense_of(pattern), pattern.columns, colouring));
  CHECK(colouring.count() >= colouring_lower_bound(pattern, side));
}

/// Which columns have a row in common.
Dense column_graph(const Pattern& pattern) {
  Dense graph(pattern.columns, std::vector<bool>(pattern.columns, false));
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (const uint32_t a : pattern.row(row))
      for (const uint32_t b : pattern.row(row))
        graph[a][b] = a != b;
  return graph;
}

/// First fit, one colour after another, by the definition.
std::vector<uint32_t> first_fit(const Pattern& pattern, const Permutation& order) {
  const Dense graph = column_graph(pattern);
  std::vector<bool> is_empty(pattern.columns, true);
  for (const uint32_t column : pattern.column_index)
    is_empty[column] = false;
  std::vector<uint32_t> colour(pattern.columns, 0);
  for (const uint32_t column : order) {
    if (is_empty[column])
      continue;
    const auto is_taken = [&](uint32_t c) {
      for (uint32_t other = 0; other < pattern.columns; ++other)
        if (graph[column][other] && colour[other] == c)
          return true;
      return false;
    };
    uint32_t c = 1;
    while (is_taken(c))
      ++c;
    colour[column] = c;
  }
  return colour;
}

/// The least number of colours over all assignments; few rows and columns.
uint64_t fewest_colours(const Pattern& pattern, ColouringSide side) {
  const Dense dense = dense_of(pattern);
  Colouring trial;
  trial.side = side;
  if (side != ColouringSide::row)
    trial.column_colour.assign(pattern.columns, 0);
  if (side != ColouringSide::column)
    trial.row_colour.assign(pattern.rows, 0);
  uint64_t best = std::numeric_limits<uint64_t>::max();
  // Each vertex takes the colours in use, one more, or none, so that no two trials differ in names
  // alone.
  const auto search = [&](const auto& self, size_t vertex) -> void {
    if (trial.count() >= best)
      return;
    const bool is_column = vertex < trial.column_colour.size();
    const size_t row = vertex - trial.column_colour.size();
    if (!is_column && row == trial.row_colour.size()) {
      if (gives_all(dense, pattern.columns, trial))
        best = trial.count();
      return;
    }
    uint32_t& colour = is_column ? trial.column_colour[vertex] : trial.row_colour[row];
    uint32_t& colours = is_column ? trial.column_colours : trial.row_colours;
    const uint32_t before = colours;
    for (colour = 0; colour <= before + 1; ++colour) {
      colours = std::max(before, colour);
      self(self, vertex + 1);
    }
    colours = before;
    colour = 0;
  };
  search(search, 0);
  return best;
}

std::vector<double> decompress(const std::vector<double>& compressed,
                               const std::vector<uint64_t>& source) {
  std::vector<double> values;
  for (const uint64_t place : source)
    values.push_back(compressed.at(place));
  return values;
}

/// J * S and S^T * J by their definitions, laid out as compression.h says.
std::vector<double> compress(const Pattern& pattern, const std::vector<double>& values,
                             const Colouring& colouring) {
  std::vector<double> compressed(compressed_size(pattern, colouring), 0);
  const uint64_t begin = uint64_t{colouring.column_colours} * pattern.rows;
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint64_t k = pattern.row_offset[row]; k < pattern.row_offset[row + 1]; ++k) {
      const uint32_t column = pattern.column_index[k];
      if (colouring.side != ColouringSide::row && colouring.column_colour[column] != 0)
        compressed[(colouring.column_colour[column] - 1) * pattern.rows + row] += values[k];
      if (colouring.side != ColouringSide::column && colouring.row_colour[row] != 0)
        compressed[begin + (colouring.row_colour[row] - 1) * pattern.columns + column] += values[k];
    }
  return compressed;
}

} // namespace

TEST_CASE("Patterns with known numbers of colours have them in every order") {
  struct Known {
    std::string name;
    Pattern pattern;
    uint64_t column, row, star;
  };
  const uint32_t n = 40;
  const auto distance = [](uint32_t a, uint32_t b) { return a > b ? a - b : b - a; };
  const std::vector<Known> known = {
      {"nothing at all", Pattern{}, 0, 0, 0},
      {"rows without columns", {3, 0, {0, 0, 0, 0}, {}}, 0, 0, 0},
      {"columns without rows", {0, 3, {0}, {}}, 0, 0, 0},
      {"no entries", {2, 3, {0, 0, 0}, {}}, 0, 0, 0},
      {"one", {1, 1, {0, 1}, {0}}, 1, 1, 1},
      {"one row", pattern_where(1, n, [](auto, auto) { return true; }), n, 1, 1},
      {"one column", pattern_where(n, 1, [](auto, auto) { return true; }), 1, n, 1},
      {"diagonal", pattern_where(n, n, [](auto i, auto j) { return i == j; }), 1, 1, 1},
      {"dense", pattern_where(n, 9, [](auto, auto) { return true; }), 9, n, 9},
      {"tridiagonal", pattern_where(n, n, [&](auto i, auto j) { return distance(i, j) <= 1; }), 3,
       3, 3},
      {"pentadiagonal", pattern_where(n, n, [&](auto i, auto j) { return distance(i, j) <= 2; }), 5,
       5, 5},
      {"lower triangle", pattern_where(n, n, [](auto i, auto j) { return j <= i; }), n, n, n},
      {"arrow", pattern_where(n, n, [](auto i, auto j) { return i == 0 || j == 0 || i == j; }), n,
       n, 3},
      {"arrow up",
       pattern_where(n, n, [](auto i, auto j) { return i == n - 1 || j == n - 1 || i == j; }), n, n,
       3},
      {"empty rows and columns",
       pattern_where(
           n, n,
           [&](auto i, auto j) { return i % 2 == 1 && j % 3 == 1 && distance(i / 2, j / 3) == 0; }),
       1, 1, 1},
  };
  for (const Known& k : known)
    for (const ColouringOrder order : kOrders) {
      CAPTURE(k.name, to_string(order));
      const uint64_t expected[] = {k.column, k.row, k.star};
      for (const ColouringSide side : kSides) {
        CAPTURE(to_string(side));
        const Colouring colouring = colour_pattern(k.pattern, side, order);
        check_colouring(k.pattern, colouring, side);
        CHECK(colouring.count() == expected[static_cast<size_t>(side)]);
      }
    }
}

TEST_CASE("Columns and rows without entries have colour 0") {
  // . x . x
  // . . . .
  // . x . .
  const Pattern pattern{3, 4, {0, 2, 2, 3}, {1, 3, 1}};
  const Colouring columns =
      colour_pattern(pattern, ColouringSide::column, ColouringOrder::smallest_last);
  CHECK(columns.row_colour.empty());
  CHECK(columns.column_colours == 2);
  CHECK(columns.column_colour[0] == 0);
  CHECK(columns.column_colour[2] == 0);
  const Colouring rows = colour_pattern(pattern, ColouringSide::row, ColouringOrder::natural);
  CHECK(rows.column_colour.empty());
  CHECK(rows.row_colour == std::vector<uint32_t>{1, 0, 2});
}

TEST_CASE("Natural order gives what first fit by the definition gives") {
  test::Random random(test::test_seed(11));
  for (int round = 0; round < 120; ++round) {
    const uint32_t rows = 1 + random.below(40), columns = 1 + random.below(300);
    const Pattern pattern = random_pattern(random, rows, columns);
    CAPTURE(round, rows, columns);
    CHECK(colour_pattern(pattern, ColouringSide::column, ColouringOrder::natural).column_colour ==
          first_fit(pattern, identity_permutation(columns)));
  }
}

TEST_CASE("Colours beyond the bits of a short row are seen") {
  // Two long rows give their columns colours up to 350 each. The other rows have bits for 64 to 256
  // colours, and columns from both.
  test::Random random(test::test_seed(12));
  for (int round = 0; round < 4; ++round) {
    const uint32_t columns = 700, rows = 120;
    const Pattern pattern = pattern_where(rows, columns, [&](uint32_t row, uint32_t column) {
      return row < 2 ? column / 350 == row : random.chance(0.01 + 0.0002 * row);
    });
    Permutation order = identity_permutation(columns);
    for (uint32_t k = columns; k > 1; --k)
      std::swap(order[k - 1], order[random.below(k)]);
    const Pattern transposed = transpose(pattern);
    uint32_t count = 0;
    CAPTURE(round);
    const std::vector<uint32_t> expected = first_fit(pattern, order);
    CHECK(colour_greedily({pattern, transposed, transposed}, order, count) == expected);
    CHECK(count == *std::max_element(expected.begin(), expected.end()));
  }
}

TEST_CASE("Orders are what they are called") {
  test::Random random(test::test_seed(13));
  bool has_few = false, has_many = false;
  for (int round = 0; round < 60; ++round) {
    // Few wide rows: many more neighbours than entries, which are not stored.
    const bool is_wide = round % 4 == 0;
    const uint32_t rows = is_wide ? 3 : 1 + random.below(30), columns = 1 + random.below(100);
    const Pattern pattern =
        is_wide ? pattern_where(rows, columns, [&](auto, auto) { return random.chance(0.6); })
                : random_pattern(random, rows, columns);
    const Pattern transposed = transpose(pattern);
    const ConflictSets sets{pattern, transposed, transposed};
    const Dense graph = column_graph(pattern);
    uint64_t edges = 0;
    for (const auto& line : graph)
      edges += static_cast<uint64_t>(std::count(line.begin(), line.end(), true));
    (edges > 16 * pattern.nnz() ? has_many : has_few) = true;
    // Neighbours of a column among those that stand at places begin to end - 1.
    const auto neighbours = [&](const Permutation& order, uint32_t column, size_t begin,
                                size_t end) {
      uint32_t count = 0;
      for (size_t k = begin; k < end; ++k)
        count += graph[column][order[k]];
      return count;
    };
    CAPTURE(round, rows, columns);
    for (const ColouringOrder which : kOrders) {
      const Permutation order = colouring_order(sets, which);
      REQUIRE(is_permutation(order, columns));
      bool is_right = true;
      for (size_t k = 0; k < columns; ++k)
        for (size_t other = 0; other < columns; ++other) {
          if (!sets.is_needed(order[k]) || !sets.is_needed(order[other]))
            continue; // anywhere
          if (which == ColouringOrder::largest_first && other > k)
            is_right &= neighbours(order, order[k], 0, columns) >=
                        neighbours(order, order[other], 0, columns);
          if (which == ColouringOrder::smallest_last && other < k)
            is_right &=
                neighbours(order, order[k], 0, k + 1) <= neighbours(order, order[other], 0, k + 1);
          if (which == ColouringOrder::incidence_degree && other > k)
            is_right &= neighbours(order, order[k], 0, k) >= neighbours(order, order[other], 0, k);
        }
      CAPTURE(to_string(which));
      CHECK(is_right);
    }
  }
  CHECK((has_few && has_many));
}

TEST_CASE("Random patterns: valid, within bounds, the same each time, star never worse") {
  test::Random random(test::test_seed(14));
  for (int round = 0; round < 150; ++round) {
    const uint32_t rows = random.below(50), columns = random.below(50);
    const Pattern pattern = random_pattern(random, rows, columns);
    CAPTURE(round, rows, columns);
    for (const ColouringOrder order : kOrders) {
      uint64_t counts[3];
      for (const ColouringSide side : kSides) {
        CAPTURE(to_string(order), to_string(side));
        const Colouring colouring = colour_pattern(pattern, side, order);
        check_colouring(pattern, colouring, side);
        CHECK(colouring == colour_pattern(pattern, side, order));
        counts[static_cast<size_t>(side)] = colouring.count();
      }
      CHECK(counts[2] <= std::min(counts[0], counts[1]));
    }
  }
}

TEST_CASE("Small patterns against all colourings") {
  test::Random random(test::test_seed(15));
  uint64_t excess = 0;
  for (int round = 0; round < 60; ++round) {
    const uint32_t rows = 1 + random.below(4), columns = 1 + random.below(5);
    const double density = random.unit();
    const Pattern pattern =
        pattern_where(rows, columns, [&](auto, auto) { return random.chance(density); });
    for (const ColouringSide side : kSides) {
      const uint64_t fewest = fewest_colours(pattern, side);
      CAPTURE(round, rows, columns, to_string(side));
      CHECK(colouring_lower_bound(pattern, side) <= fewest);
      for (const ColouringOrder order : kOrders) {
        const uint64_t count = colour_pattern(pattern, side, order).count();
        CHECK(count >= fewest);
        CHECK(count <= fewest + 1);
        excess += count - fewest;
      }
    }
  }
  // Of 720 colourings; greedy ones are rarely more than the best.
  CHECK(excess <= 40);
}

TEST_CASE("The check finds what the definition finds") {
  test::Random random(test::test_seed(16));
  int valid = 0, invalid = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t rows = random.below(5), columns = random.below(5);
    const Pattern pattern =
        pattern_where(rows, columns, [&](auto, auto) { return random.chance(0.4); });
    Colouring colouring;
    colouring.side = random.pick(kSides);
    const auto colour = [&](std::vector<uint32_t>& colours, uint32_t& count, uint32_t size) {
      for (uint32_t v = 0; v < size; ++v) {
        colours.push_back(random.below(count + 2));
        count = std::max(count, colours.back());
      }
    };
    if (colouring.side != ColouringSide::row)
      colour(colouring.column_colour, colouring.column_colours, columns);
    if (colouring.side != ColouringSide::column)
      colour(colouring.row_colour, colouring.row_colours, rows);
    const bool is_valid = gives_all(dense_of(pattern), columns, colouring);
    CAPTURE(round);
    CHECK(find_conflict(pattern, colouring).has_value() != is_valid);
    if (is_valid) {
      CHECK_NOTHROW(decompression_source(pattern, colouring));
      ++valid;
    } else {
      CHECK_THROWS_AS(decompression_source(pattern, colouring), InternalError);
      ++invalid;
    }
  }
  CHECK(valid > 100);
  CHECK(invalid > 100);
}

TEST_CASE("The check names the first pair") {
  // x x .
  // . x x
  const Pattern pattern{2, 3, {0, 2, 4}, {0, 1, 1, 2}};
  using Colours = std::vector<uint32_t>;
  const auto columns = [&](Colours colours, uint32_t count) {
    return find_conflict(pattern, {ColouringSide::column, std::move(colours), {}, count, 0})
        .value_or("");
  };
  CHECK(columns({1, 2, 1}, 2) == "");
  CHECK(columns({1, 2, 2}, 2) == "row 1: columns 1 and 2 have colour 2");
  CHECK(columns({1, 1, 1}, 1) == "row 0: columns 0 and 1 have colour 1");
  CHECK(columns({1, 0, 1}, 1) == "row 0: column 1 has no colour");
  CHECK(columns({1, 2}, 2) == "3 columns, but 2 colours of columns");
  CHECK(columns({1, 2, 5}, 2) == "column 2 has colour 5 of 2");
  CHECK(columns({1, 3, 1}, 3) == "no column has colour 2 of 3");
  CHECK(find_conflict(pattern, {ColouringSide::row, {}, {1, 1}, 0, 1}) ==
        "column 1: rows 0 and 1 have colour 1");
  CHECK(find_conflict(pattern, {ColouringSide::row, {1, 2, 1}, {1, 2}, 2, 2}) ==
        "0 columns, but 3 colours of columns");
  CHECK(find_conflict(pattern, {ColouringSide::star, {1, 0, 1}, {1, 2}, 1, 2}) == std::nullopt);
  CHECK(find_conflict(pattern, {ColouringSide::star, {1, 0, 1}, {0, 1}, 1, 1}) ==
        "row 0: column 1 has no colour; column 1: row 0 has no colour");
  CHECK(find_conflict(pattern, {ColouringSide::star, {1, 1, 2}, {1, 1}, 2, 1}) ==
        "row 0: columns 0 and 1 have colour 1; column 1: rows 0 and 1 have colour 1");
}

TEST_CASE("A compressed matrix is recovered by a gather, to the bit") {
  test::Random random(test::test_seed(17));
  for (int round = 0; round < 60; ++round) {
    const uint32_t rows = random.below(60), columns = random.below(60);
    const Matrix matrix = test::random_sparse(random, rows, columns, random.pick(test::kRowShapes),
                                              test::ValueShape::unit, -126, 127);
    CAPTURE(round, rows, columns);
    for (const ColouringSide side : kSides)
      for (const ColouringOrder order : kOrders) {
        const Colouring colouring = colour_pattern(matrix.pattern, side, order);
        const std::vector<double> compressed = compress(matrix.pattern, matrix.values, colouring);
        CHECK(decompress(compressed, decompression_source(matrix.pattern, colouring)) ==
              matrix.values);
      }
  }
}

TEST_CASE("A large arrow takes no quadratic time") {
  const uint32_t n = 300'000;
  Pattern arrow;
  arrow.rows = arrow.columns = n;
  arrow.row_offset.reserve(n + 1);
  for (uint32_t row = 0; row < n; ++row) {
    if (row == 0) {
      arrow.column_index.resize(n);
      std::iota(arrow.column_index.begin(), arrow.column_index.end(), 0u);
    } else {
      arrow.column_index.push_back(0);
      arrow.column_index.push_back(row);
    }
    arrow.row_offset.push_back(arrow.nnz());
  }
  for (const ColouringOrder order : {ColouringOrder::natural, ColouringOrder::smallest_last}) {
    const Colouring colouring = colour_pattern(arrow, ColouringSide::column, order);
    CHECK(colouring.count() == n);
    CHECK(find_conflict(arrow, colouring) == std::nullopt);
  }
  CHECK(colour_pattern(arrow, ColouringSide::star, ColouringOrder::natural).count() == 3);
}

} // namespace sparsertc
