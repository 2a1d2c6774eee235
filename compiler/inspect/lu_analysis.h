// What is decided about a sparse LU factorization before its symbolic phase: which entries are the
// pivots, in which order, and how rows and columns are scaled.
//
//        structure         matching           blocks             order
//   A -> square? rank? --> rows to the   --> strongly       --> candidates,   --> P, Q, R, C
//        deficient         diagonal, R, C    connected          rated by time
//        rows, columns                       components
#pragma once

#include "compiler/input/matrix.h"
#include "compiler/inspect/lu_order_choice.h"
#include "compiler/pattern/scaled_matching.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

struct LuAnalysisOptions {
  /// Whether rows are moved and scaled by a maximum product matching. `automatic`: unless the
  /// diagonal is strong already (has_strong_diagonal).
  Toggle matching = Toggle::automatic;
  /// The fill-reducing order; nothing: the one of all that promises the least time.
  std::optional<FillOrder> order;
  /// Whether the blocks of the block triangular form stay together. `automatic`: where that
  /// promises less time.
  Toggle blocks = Toggle::automatic;
  /// The user's own permutations. With `rows` there is no matching; with `columns` no order is
  /// looked for, and without `rows` the matching decides which row goes with which column.
  std::optional<Permutation> rows;
  std::optional<Permutation> columns;
  /// For work in parallel; may be null.
  TaskPool* pool = nullptr;
  /// Called before each step with its name.
  std::function<void(std::string_view)> before_step;
};

struct LuAnalysisStep {
  std::string name;
  double time_us = 0;
};

struct LuAnalysis {
  /// B = P R A C Q: row i of B is row rows[i] of A, column j is column columns[j].
  Permutation rows;
  Permutation columns;
  /// R and C by the rows and columns of A; both empty for ones.
  std::vector<double> row_scale;
  std::vector<double> column_scale;

  uint32_t structural_rank = 0;
  /// Whether a matching moved or scaled rows and columns.
  bool matched = false;
  /// Why there was a matching, or none.
  std::string matching_reason;
  /// Of the matched matrix.
  BlockTriangularForm blocks;
  OrderChoice order;
  std::vector<LuAnalysisStep> steps;
};

/// |a| of each entry.
std::vector<double> magnitudes_of(const Matrix& matrix);

/// A matching that covers all rows and columns, from the pattern alone. UserError with the word
/// `singular` where there is none: it names the rows and columns at fault.
Matching perfect_matching(const Pattern& square, const std::string& name);

/// All of the above. Without values (StoredType::none) the pattern alone decides: the matching is
/// any perfect one, and nothing is scaled. UserError where the matrix is not square, is
/// structurally singular (also when only its zeros make it so and the matching is on), has infinite
/// values or NaN, or where the user's permutations are none.
LuAnalysis analyse_lu(const Matrix& matrix, const LuAnalysisOptions& options = {});

} // namespace sparsertc
