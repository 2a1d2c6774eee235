// A sparse Jacobian's pattern, and how it is evaluated: plain arrays, filled by the compiler's
// inspector, used by the runtime on the CPU and on the GPU.
//
// A residual F: R^n -> R^n is evaluated with dual numbers, which carry up to W directional
// derivatives ("tangents") along with a value. A *task* is one evaluation with W tangents:
//
//   local      of one row i: tangent k is the derivative by the row's own column columns[W t + k]
//   terms      of one row whose unknowns are many because it sums over many terms (sum_over) that
//              read few of them each: O tangents for the columns read beside the sum or by several
//              of its terms, and I that are each term's own. What the terms' own give is multiplied
//              afterwards with the row's derivative by the sum
//   coloured   of all rows: tangent k is the derivative by all columns of colour W t + k at once;
//              no row has two columns of one colour, so each derivative belongs to one entry
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace sparsertc {

/// Where a tangent of a task is not used.
inline constexpr uint32_t kNoTangent = UINT32_MAX;

/// Derivatives of terms that a thread keeps until that by the sum is known: terms times I. A GPU's
/// threads do so in shared memory.
inline constexpr uint32_t kMostKeptNumbers = 36;
inline constexpr uint32_t kMostKeptNumbersOfCpu = 1024;

/// Structural non-zeros in compressed rows, columns ascending.
struct JacobianPattern {
  uint32_t rows = 0;
  uint32_t columns = 0;
  std::vector<uint64_t> row_offset = {0}; ///< rows + 1
  std::vector<uint32_t> column_index;

  uint64_t nnz() const { return column_index.size(); }
  bool operator==(const JacobianPattern&) const = default;
};

/// How many threads of a GPU's warp share a task: the first task_end[0] tasks have 32, those up to
/// task_end[1] have 16, then 8, 4, 2 and 1. All 0: one each.
struct TaskLanes {
  std::array<uint32_t, 6> task_end{};

  bool shared() const { return task_end[4] > 0; }
};

/// The rows in the order in which they are evaluated; empty: from the first to the last, by one
/// thread each.
struct RowTasks {
  std::vector<uint32_t> row;
  TaskLanes lanes;
};

/// Tasks of one width W, each for W entries of one row.
struct LocalTasks {
  uint32_t width = 0;            ///< W
  std::vector<uint32_t> row;     ///< by task
  std::vector<uint32_t> columns; ///< W a task; kNoTangent where there are fewer
  std::vector<uint32_t> places;  ///< W a task: where the derivative is stored
  TaskLanes lanes;

  uint64_t count() const { return row.size(); }
};

/// Tasks of rows with one sum each.
struct TermTasks {
  uint32_t outer = 0;                 ///< O
  uint32_t inner = 0;                 ///< I
  std::vector<uint32_t> row;          ///< by task
  std::vector<uint32_t> columns;      ///< O a task; kNoTangent where there are fewer
  std::vector<uint32_t> places;       ///< O a task: where the derivative is stored; likewise
  std::vector<uint32_t> first = {0};  ///< tasks + 1: task t has the terms [first[t], first[t+1])
  std::vector<uint32_t> term_columns; ///< I a term
  std::vector<uint32_t> term_places;  ///< I a term; kNoTangent where there are fewer
  TaskLanes lanes;
  uint32_t most_terms = 0; ///< of a thread

  uint64_t count() const { return row.size(); }
};

/// What the terms of sums read, by row: unknown column[r] in term term[r] - 1, or outside of sums
/// where term[r] is 0. By term, then column, each once.
struct RowTerms {
  std::vector<uint64_t> offset = {0}; ///< rows + 1
  std::vector<uint32_t> term;
  std::vector<uint32_t> column;
  std::vector<uint32_t> sums;    ///< that a row has
  std::vector<uint32_t> lengths; ///< of a row's last sum, in terms
};

/// Tasks of one width W, each for W colours of all rows.
struct ColouredTasks {
  uint32_t width = 0;           ///< W
  uint32_t colours = 0;         ///< of all columns
  std::vector<uint32_t> colour; ///< by column; kNoTangent for a column without entries

  /// The entries that task t finds stand at [offset[t], offset[t+1]) of the arrays below.
  std::vector<uint64_t> offset = {0};
  std::vector<uint32_t> row;
  std::vector<uint32_t> tangent; ///< below W
  std::vector<uint32_t> places;

  uint64_t count() const { return offset.size() - 1; }
};

/// How a Jacobian is evaluated. Value number k of the pattern is stored at place k of the values,
/// or where `places` says.
struct JacobianTables {
  JacobianPattern pattern;
  std::vector<uint32_t> places;  ///< by entry; empty where value k is stored at k
  std::vector<LocalTasks> local; ///< of different widths; empty where the evaluation is coloured
  TermTasks terms;               ///< beside the local ones: of other rows
  ColouredTasks coloured;        ///< no tasks where it is local
  RowTasks rows;                 ///< for residuals and products, by row
};

} // namespace sparsertc
