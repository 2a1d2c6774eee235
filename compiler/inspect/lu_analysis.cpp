#include "compiler/inspect/lu_analysis.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace sparsertc {
namespace {

/// So many rows or columns are named in a message.
constexpr size_t kNamed = 8;

std::string list_of(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < std::min(numbers.size(), kNamed); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", numbers[i]);
  if (numbers.size() > kNamed)
    text += ", ...";
  return text;
}

/// "row 3", "rows 3, 5".
std::string named(const char* what, const std::vector<uint32_t>& numbers) {
  return fmt::format("{}{} {}", what, numbers.size() == 1 ? "" : "s", list_of(numbers));
}

std::vector<uint32_t> unmatched(const std::vector<uint32_t>& partner) {
  std::vector<uint32_t> result;
  for (uint32_t i = 0; i < partner.size(); ++i)
    if (partner[i] == kUnmatched)
      result.push_back(i);
  return result;
}

/// Rows that a set too small to serve them all has to share; both sides read alike.
std::string describe_shortage(const char* many, const std::vector<uint32_t>& members,
                              const char* few, size_t partners) {
  if (partners == 0)
    return fmt::format("without entries: {}", named(many, members));
  return fmt::format("{} {}s have their entries in {} {}{}: {}", members.size(), many, partners,
                     few, partners == 1 ? "" : "s", list_of(members));
}

[[noreturn]] void throw_singular(const Pattern& square, const Matching& matching,
                                 const std::string& name, bool zeros_dropped) {
  const DulmageMendelsohn sets = dulmage_mendelsohn(square, matching);
  const std::string message =
      fmt::format("singular: {}rank {} of {}; no pivot is left for {} and {} (counted from 0)",
                  zeros_dropped ? "without its zeros the matrix has structural " : "structural ",
                  matching.size, square.rows, named("row", unmatched(matching.column_of_row)),
                  named("column", unmatched(matching.row_of_column)));
  throw UserError(Place{name, 0, 0, {}}, message,
                  describe_shortage("row", sets.overdetermined_rows, "column",
                                    sets.overdetermined_columns.size()) +
                      "; " +
                      describe_shortage("column", sets.underdetermined_columns, "row",
                                        sets.underdetermined_rows.size()) +
                      (zeros_dropped
                           ? "; --matching=off takes zeros for entries whose values are to come"
                           : ""));
}

/// The pattern without entries of magnitude 0.
Pattern without_zeros(const Pattern& pattern, const std::vector<double>& magnitudes) {
  Pattern result;
  result.rows = pattern.rows;
  result.columns = pattern.columns;
  result.row_offset.assign(1, 0);
  for (uint32_t row = 0; row < pattern.rows; ++row) {
    for (uint64_t k = pattern.row_offset[row]; k < pattern.row_offset[row + 1]; ++k)
      if (magnitudes[k] > 0)
        result.column_index.push_back(pattern.column_index[k]);
    result.row_offset.push_back(result.column_index.size());
  }
  return result;
}

void check_finite(const Matrix& matrix, const std::vector<double>& magnitudes) {
  for (uint32_t row = 0; row < matrix.pattern.rows; ++row)
    for (uint64_t k = matrix.pattern.row_offset[row]; k < matrix.pattern.row_offset[row + 1]; ++k)
      if (!std::isfinite(magnitudes[k]))
        throw UserError(Place{matrix.name, 0, 0, {}},
                        fmt::format("the entry in row {}, column {} (counted from 0) is not finite",
                                    row, matrix.pattern.column_index[k]),
                        "a matrix with infinite values or NaN has no factorization");
}

void check_user(const std::optional<Permutation>& p, const char* what, uint32_t size) {
  if (p && !is_permutation(*p, size))
    throw UserError(fmt::format("the {} permutation does not hold each of 0 to {} once", what,
                                int64_t{size} - 1));
}

class Analysis {
public:
  Analysis(const Matrix& matrix, const LuAnalysisOptions& options)
      : matrix_(matrix), options_(options), size_(matrix.pattern.rows) {}

  LuAnalysis run() {
    step("structure", [&] { check_structure(); });
    step("matching", [&] { choose_pivots(); });
    step("blocks", [&] { find_blocks(); });
    step("order", [&] { choose(); });
    return std::move(result_);
  }

private:
  template <class Work>
  void step(const char* name, const Work& work) {
    if (options_.before_step)
      options_.before_step(name);
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - start;
    result_.steps.push_back({name, wall.count()});
  }

  void check_structure() {
    const Pattern& pattern = matrix_.pattern;
    if (pattern.rows != pattern.columns)
      throw UserError(Place{matrix_.name, 0, 0, {}},
                      fmt::format("{} x {} is not square", pattern.rows, pattern.columns),
                      "LU factorization solves systems with as many equations as unknowns");
    check_user(options_.rows, "row", size_);
    check_user(options_.columns, "column", size_);
    structural_ = perfect_matching(pattern, matrix_.name);
    result_.structural_rank = structural_.size;
    has_values_ = matrix_.values.size() == pattern.nnz() && pattern.nnz() > 0;
    if (has_values_) {
      magnitudes_ = magnitudes_of(matrix_);
      check_finite(matrix_, magnitudes_);
    }
  }

  /// Which row has its pivot in which column: pivot_row_ by columns of A.
  void choose_pivots() {
    pivot_row_ = identity_permutation(size_);
    if (options_.rows) {
      result_.matching_reason = "the rows are in the user's order";
      return;
    }
    if (options_.matching == Toggle::off) {
      result_.matching_reason = "switched off";
      return;
    }
    if (!has_values_) {
      pivot_row_ = row_permutation(structural_);
      result_.matched = pivot_row_ != identity_permutation(size_);
      result_.matching_reason = "there are no values: the pattern alone is matched";
      return;
    }
    if (options_.matching == Toggle::automatic &&
        has_strong_diagonal(matrix_.pattern, magnitudes_)) {
      result_.matching_reason = "the diagonal is strong: each entry is at least a tenth of every "
                                "other in its row and column";
      return;
    }
    ScaledMatching scaled = maximum_product_matching(matrix_.pattern, magnitudes_);
    if (!scaled.is_perfect())
      throw_singular(without_zeros(matrix_.pattern, magnitudes_), scaled.matching, matrix_.name,
                     true);
    pivot_row_ = row_permutation(scaled.matching);
    result_.row_scale = std::move(scaled.row_scale);
    result_.column_scale = std::move(scaled.column_scale);
    result_.matched = true;
    result_.matching_reason =
        options_.matching == Toggle::on ? "switched on" : "the diagonal is not strong";
  }

  /// The blocks of the matrix with its pivots on the diagonal, columns in their own order.
  void find_blocks() {
    if (options_.rows)
      pivot_row_ = *options_.rows;
    if (options_.columns)
      return; // the order is given
    matched_ = permute(matrix_.pattern, pivot_row_, identity_permutation(size_));
    if (options_.blocks != Toggle::off)
      result_.blocks = block_triangular_form(matched_);
    else
      result_.blocks = {identity_permutation(size_), {0, size_}};
  }

  void choose() {
    if (!options_.columns) {
      result_.order =
          choose_order(matched_, result_.blocks, options_.order, options_.blocks, options_.pool);
      result_.rows = compose(pivot_row_, result_.order.order);
      result_.columns = result_.order.order;
      return;
    }
    result_.columns = *options_.columns;
    result_.rows = options_.rows ? *options_.rows : compose(pivot_row_, *options_.columns);
    const Pattern placed = permute(matrix_.pattern, result_.rows, result_.columns);
    result_.order.order = identity_permutation(size_);
    result_.order.candidates.push_back(rate_order(placed, result_.order.order, "user"));
  }

  const Matrix& matrix_;
  const LuAnalysisOptions& options_;
  const uint32_t size_;
  LuAnalysis result_;
  bool has_values_ = false;
  std::vector<double> magnitudes_;
  Matching structural_;
  Permutation pivot_row_;
  Pattern matched_;
};

} // namespace

std::vector<double> magnitudes_of(const Matrix& matrix) {
  std::vector<double> result(matrix.values.size());
  for (size_t k = 0; k < result.size(); ++k)
    result[k] = matrix.imaginary.empty() ? std::abs(matrix.values[k])
                                         : std::hypot(matrix.values[k], matrix.imaginary[k]);
  return result;
}

Matching perfect_matching(const Pattern& square, const std::string& name) {
  Matching matching = maximum_matching(square);
  if (matching.size < square.rows)
    throw_singular(square, matching, name, false);
  return matching;
}

LuAnalysis analyse_lu(const Matrix& matrix, const LuAnalysisOptions& options) {
  return Analysis(matrix, options).run();
}

} // namespace sparsertc
