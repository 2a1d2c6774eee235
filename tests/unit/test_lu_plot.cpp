#include "compiler/inspect/lu_plot.h"
#include "compiler/inspect/lu_schedule.h"
#include "compiler/inspect/lu_statistics.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

namespace sparsertc {
namespace {

struct Factors {
  LuPattern rows;
  LuColumns columns;
  LuLevels gather;
  LuLevels right_looking;
};

Factors factors_of(const Pattern& pattern) {
  Factors factors;
  factors.rows = symbolic_lu(pattern);
  factors.columns = by_columns(factors.rows);
  factors.gather = factor_levels(factors.rows, factors.columns, LevelRule::gather);
  factors.right_looking = factor_levels(factors.rows, factors.columns, LevelRule::right_looking);
  return factors;
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

} // namespace

TEST_CASE("Figures about factors are those of the tables made from them") {
  test::Random random(test::test_seed(61));
  std::vector<test::NamedPattern> shapes = test::hostile_squares(500);
  shapes.push_back({"grid", test::random_grid(random, 12, 12, 0.3)});
  for (const auto& [name, pattern] : shapes) {
    INFO(name);
    const Factors factors = factors_of(pattern);
    const LuStatistics statistics =
        lu_statistics(factors.rows, factors.columns, factors.gather, factors.right_looking);
    LuPlacement placement;
    placement.rows = placement.columns = identity_permutation(pattern.rows);
    const LuTables tables = make_lu_tables(pattern, placement);
    CHECK(statistics.entries() == tables.nnz());
    CHECK(statistics.multiply_adds == multiply_adds(tables));
    CHECK(statistics.gather_levels == factors.gather.count());
    CHECK(statistics.right_looking_levels == factors.right_looking.count());
    CHECK(std::accumulate(statistics.level_width_histogram.begin(),
                          statistics.level_width_histogram.end(),
                          uint64_t{0}) == factors.gather.count());
    CHECK(statistics.narrow_levels <= statistics.gather_levels);
    CHECK(statistics.widest_level <= pattern.rows);
  }
}

TEST_CASE("Level widths are counted in powers of two") {
  // One level of 24 columns.
  const Pattern diagonal = test::hostile_squares(10)[3].pattern;
  const Factors factors = factors_of(diagonal);
  const LuStatistics statistics =
      lu_statistics(factors.rows, factors.columns, factors.gather, factors.right_looking);
  CHECK(statistics.level_width_histogram == std::vector<uint64_t>{0, 0, 0, 0, 1});
  CHECK(statistics.widest_level == 24);
  CHECK(statistics.narrow_levels == 0);
  CHECK(statistics.lower + statistics.upper == 0);
}

TEST_CASE("Plots have one bar a level, one picture, and are the same each time") {
  for (const auto& [name, pattern] : test::hostile_squares(3000)) {
    INFO(name);
    const Factors factors = factors_of(pattern);
    const std::string svg = lu_plot_svg(factors.rows, pattern, factors.gather, "<title> & more");
    CHECK(count(svg, "</svg>") == 1);
    CHECK(count(svg, "&lt;title&gt; &amp; more") == 1);
    CHECK(count(svg, "<image ") == (pattern.rows == 0 ? 0 : 1));
    // Besides the bars: ground, two frames, the legend.
    CHECK(count(svg, "<rect ") == 4 + std::min<uint64_t>(factors.gather.count(), 600));
    CHECK(count(svg, "=\"nan") + count(svg, "=\"-nan") == 0);
    CHECK(svg.size() < 200'000);
    CHECK(lu_plot_svg(factors.rows, pattern, factors.gather, "<title> & more") == svg);
  }
}

} // namespace sparsertc
