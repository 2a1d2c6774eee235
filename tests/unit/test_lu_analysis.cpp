#include "compiler/input/permute.h"
#include "compiler/input/read.h"
#include "compiler/inspect/lu_analysis.h"
#include "ir/error.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

namespace sparsertc {
namespace {

using Catch::Matchers::Contains;

Matrix with_values(test::Random& random, Pattern pattern) {
  Matrix matrix;
  matrix.pattern = std::move(pattern);
  matrix.stored = StoredType::f64;
  matrix.name = "random.mtx";
  for (uint64_t k = 0; k < matrix.pattern.nnz(); ++k)
    matrix.values.push_back(random.symmetric());
  return matrix;
}

/// Permutations are permutations, the diagonal of P R A C Q has an entry everywhere, and after a
/// matching it is 1 and nothing is larger.
void check_analysis(const Matrix& matrix, const LuAnalysis& analysis) {
  const uint32_t size = matrix.pattern.rows;
  REQUIRE(is_permutation(analysis.rows, size));
  REQUIRE(is_permutation(analysis.columns, size));
  CHECK(analysis.structural_rank == size);
  CHECK(analysis.row_scale.size() == analysis.column_scale.size());
  const Matrix placed = permute(matrix, analysis.rows, analysis.columns);
  const std::vector<double> magnitudes = magnitudes_of(placed);
  const bool scaled = !analysis.row_scale.empty();
  const double tolerance = std::numeric_limits<double>::epsilon() * (size + 1000.0);
  uint32_t pivots = 0, wrong_pivots = 0, too_large = 0;
  for (uint32_t i = 0; i < size; ++i)
    for (uint64_t k = placed.pattern.row_offset[i]; k < placed.pattern.row_offset[i + 1]; ++k) {
      const uint32_t j = placed.pattern.column_index[k];
      pivots += i == j;
      if (!scaled)
        continue;
      const double value = analysis.row_scale[analysis.rows[i]] * magnitudes[k] *
                           analysis.column_scale[analysis.columns[j]];
      wrong_pivots += i == j && std::abs(value - 1) > tolerance;
      too_large += value > 1 + tolerance;
    }
  if (analysis.matching_reason != "switched off")
    CHECK(pivots == size);
  CHECK(wrong_pivots == 0);
  CHECK(too_large == 0);
}

std::string failure_of(const Matrix& matrix, const LuAnalysisOptions& options = {}) {
  try {
    analyse_lu(matrix, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// A row of lu.csv by the names of its first line; fields in quotes may hold commas.
std::vector<std::map<std::string, std::string>> read_table(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        fields.emplace_back();
      else if (c != '\r')
        fields.back() += c;
    }
    lines.push_back(std::move(fields));
  }
  std::vector<std::map<std::string, std::string>> table;
  for (size_t i = 1; i < lines.size(); ++i) {
    table.emplace_back();
    for (size_t k = 0; k < lines[0].size() && k < lines[i].size(); ++k)
      table.back()[lines[0][k]] = lines[i][k];
  }
  return table;
}

} // namespace

TEST_CASE("Hostile shapes are analysed, or refused with the row or column") {
  test::Random random(test::test_seed(51));
  for (const auto& [name, pattern] : test::hostile_squares(100'000)) {
    INFO(name);
    const Matrix matrix = with_values(random, pattern);
    if (name == "n = 1, empty") {
      CHECK_THAT(failure_of(matrix), Contains("singular: structural rank 0 of 1") &&
                                         Contains("row 0") && Contains("column 0") &&
                                         Contains("without entries"));
      continue;
    }
    if (name == "empty row and column") {
      CHECK_THAT(failure_of(matrix), Contains("singular: structural rank 23 of 24") &&
                                         Contains("row 12") && Contains("column 8"));
      continue;
    }
    for (Toggle matching : {Toggle::automatic, Toggle::on, Toggle::off}) {
      LuAnalysisOptions options;
      options.matching = matching;
      check_analysis(matrix, analyse_lu(matrix, options));
    }
  }
}

TEST_CASE("What is not square, not finite or no permutation is refused") {
  Matrix matrix;
  matrix.name = "wide.mtx";
  matrix.pattern = {1, 2, {0, 1}, {0}};
  matrix.values = {1};
  CHECK_THAT(failure_of(matrix), Contains("wide.mtx: error: 1 x 2 is not square"));
  matrix.pattern = {2, 2, {0, 1, 2}, {0, 1}};
  matrix.values = {1, std::nan("")};
  CHECK_THAT(failure_of(matrix), Contains("row 1, column 1") && Contains("not finite"));
  matrix.values = {1, 1};
  LuAnalysisOptions options;
  options.rows = Permutation{0, 0};
  CHECK_THAT(failure_of(matrix, options), Contains("row permutation"));
  options.rows.reset();
  options.columns = Permutation{0};
  CHECK_THAT(failure_of(matrix, options), Contains("column permutation"));
}

TEST_CASE("Rows that share too few columns are named") {
  // Rows 1, 2 and 4 live in columns 0 and 3; columns 1, 2 and 4 in rows 0 and 3.
  Matrix matrix;
  matrix.name = "short.mtx";
  matrix.pattern =
      test::pattern_of(5, {{1, 0}, {2, 0}, {2, 3}, {4, 3}, {0, 1}, {0, 2}, {3, 2}, {3, 4}});
  matrix.values.assign(matrix.pattern.nnz(), 1);
  CHECK_THAT(failure_of(matrix), Contains("singular: structural rank 4 of 5") &&
                                     Contains("3 rows have their entries in 2 columns: 1, 2, 4") &&
                                     Contains("3 columns have their entries in 2 rows: 1, 2, 4"));
}

TEST_CASE("Zeros that make a matrix singular are told from a singular pattern") {
  Matrix matrix;
  matrix.name = "zeros.mtx";
  matrix.pattern = test::pattern_of(2, {{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  matrix.values = {1, 2, 0, 0};
  CHECK_THAT(failure_of(matrix), Contains("singular") && Contains("without its zeros") &&
                                     Contains("row 1") && Contains("--matching=off"));
  LuAnalysisOptions options;
  options.matching = Toggle::off;
  CHECK(failure_of(matrix, options).empty());
}

TEST_CASE("A strong diagonal stays where it is unless the matching is asked for") {
  test::Random random(test::test_seed(52));
  Matrix matrix = with_values(random, test::random_grid(random, 10, 10, 0.3));
  for (uint32_t i = 0; i < 100; ++i)
    for (uint64_t k = matrix.pattern.row_offset[i]; k < matrix.pattern.row_offset[i + 1]; ++k)
      if (matrix.pattern.column_index[k] == i)
        matrix.values[k] = 4;
  const LuAnalysis left = analyse_lu(matrix);
  CHECK_FALSE(left.matched);
  CHECK(left.row_scale.empty());
  CHECK(left.rows == left.columns);
  LuAnalysisOptions options;
  options.matching = Toggle::on;
  const LuAnalysis on = analyse_lu(matrix, options);
  CHECK(on.matched);
  check_analysis(matrix, on);
}

TEST_CASE("The user's permutations are followed") {
  test::Random random(test::test_seed(53));
  const Matrix matrix = with_values(random, test::random_grid(random, 8, 8, 0.3));
  Permutation backward = identity_permutation(64);
  std::reverse(backward.begin(), backward.end());
  LuAnalysisOptions options;
  options.columns = backward;
  const LuAnalysis columns = analyse_lu(matrix, options);
  CHECK(columns.columns == backward);
  CHECK(columns.order.winner().name == "user");
  check_analysis(matrix, columns);
  options.rows = backward;
  const LuAnalysis both = analyse_lu(matrix, options);
  CHECK(both.columns == backward);
  CHECK(both.rows == backward);
  CHECK_FALSE(both.matched);
  options.columns.reset();
  const LuAnalysis rows = analyse_lu(matrix, options);
  // Rows went to columns as the user said; both then went to their places together.
  for (uint32_t i = 0; i < 64; ++i)
    CHECK(rows.rows[i] == 63 - rows.columns[i]);
}

TEST_CASE("Without values the pattern alone is matched") {
  Matrix matrix;
  matrix.name = "pattern.mtx";
  matrix.pattern = test::pattern_of(3, {{0, 1}, {1, 2}, {2, 0}});
  const LuAnalysis analysis = analyse_lu(matrix);
  CHECK(analysis.matched);
  CHECK(analysis.row_scale.empty());
  CHECK(analysis.blocks.blocks() == 3);
  check_analysis(matrix, analysis);
}

TEST_CASE("Analysis is the same each time, on any number of threads") {
  test::Random random(test::test_seed(54));
  const Matrix matrix = with_values(random, test::random_square(random, 500, 3));
  const LuAnalysis once = analyse_lu(matrix);
  for (unsigned threads : {1u, 2u}) {
    TaskPool pool(threads);
    LuAnalysisOptions options;
    options.pool = &pool;
    const LuAnalysis again = analyse_lu(matrix, options);
    CHECK(again.rows == once.rows);
    CHECK(again.columns == once.columns);
    CHECK(again.row_scale == once.row_scale);
    CHECK(again.column_scale == once.column_scale);
  }
  std::vector<std::string> steps;
  LuAnalysisOptions options;
  options.before_step = [&](std::string_view step) { steps.emplace_back(step); };
  const LuAnalysis watched = analyse_lu(matrix, options);
  CHECK(steps == std::vector<std::string>{"structure", "matching", "blocks", "order"});
  CHECK(watched.steps.size() == 4);
}

TEST_CASE("Complex magnitudes decide about complex matrices") {
  Matrix matrix;
  matrix.name = "complex.mtx";
  matrix.stored = StoredType::c128;
  matrix.pattern = test::pattern_of(2, {{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  matrix.values = {1, 0, 0, 1};
  matrix.imaginary = {0, 50, -50, 0};
  const LuAnalysis analysis = analyse_lu(matrix);
  CHECK(analysis.matched);
  check_analysis(matrix, analysis);
  CHECK(analysis.rows[0] != analysis.columns[0]);
}

TEST_CASE("Every real matrix is analysed, and the singular ones are reported") {
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA names no folder");
    return;
  }
  size_t analysed = 0, singular = 0;
  for (auto& row : read_table(std::string(folder) + "/lu.csv")) {
    const std::string& name = row["name"];
    std::string path = std::string(folder) + "/lu/" + name + ".mtx.gz";
    if (!std::filesystem::exists(path))
      continue;
    INFO(name);
    const Matrix matrix = read_matrix(path);
    const uint32_t size = matrix.pattern.rows;
    const uint32_t rank = static_cast<uint32_t>(std::stoul(row["structural_rank"]));
    CHECK(maximum_matching(matrix.pattern).size == rank);
    if (rank < size) {
      ++singular;
      CHECK_THAT(failure_of(matrix), Contains("singular: structural rank " + std::to_string(rank) +
                                              " of " + std::to_string(size)));
      continue;
    }
    ++analysed;
    LuAnalysisOptions options;
    // One order each is enough here; choosing is tested above.
    options.order = FillOrder::amd;
    check_analysis(matrix, analyse_lu(matrix, options));
    options.matching = Toggle::on;
    check_analysis(matrix, analyse_lu(matrix, options));
  }
  CHECK(analysed >= 60);
  CHECK(singular == 2);
}

} // namespace sparsertc
