// How a sparse Jacobian is to be evaluated: which tasks (ir/jacobian_tables.h), of which width.
//
// A residual that is given row by row is evaluated for each row with tangents for the row's own
// columns: there are as few of them as the row has entries. Where it sums over terms that read a
// few unknowns each, every term needs tangents for those and for what is read beside the sum,
// however long the row is. An opaque residual, which gives all rows at once, needs one tangent for
// each colour of the columns, that is at least as many as the widest row has entries, in every row.
#pragma once

#include "compiler/pattern/colouring.h"
#include "compiler/pattern/pattern.h"
#include "ir/jacobian_tables.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sparsertc {

enum class JacobianCompression : uint8_t { local, terms, coloured };
std::string_view to_string(JacobianCompression compression);

/// What evaluates. Work is in units of one tangent of one entry, time in cycles of the machine.
struct JacobianMachine {
  double units_per_cycle = 1;
  double entry_cycles = 0;  ///< from one entry of a task to the next
  double launch_cycles = 0; ///< of starting a kernel
  uint64_t instances = 1;
  bool shares_tasks = false;                     ///< several threads can take part in a task
  uint32_t kept_numbers = kMostKeptNumbersOfCpu; ///< of tasks by terms, for each thread

  static JacobianMachine cpu() { return {}; }
  static JacobianMachine gpu(uint32_t multiprocessors, uint64_t instances);
};

struct JacobianScheduleOptions {
  bool by_row = true; ///< the residual's form; else it can only be coloured
  JacobianMachine machine;
  /// Nothing: what takes less predicted time.
  std::optional<JacobianCompression> compression;
  /// Tangents of a task, one of kJacobianWidths; 0: chosen. Not of tasks by terms.
  uint32_t width = 0;
  /// Whether the residual has sums whose terms can be dealt to several threads.
  bool has_sums = false;
  /// What the terms read; null where that is not known.
  const RowTerms* terms = nullptr;
  /// Entries of a row for each thread that shares its task; 0: a task has one. Nothing: chosen, 0
  /// or one of kEntriesPerLane.
  std::optional<uint32_t> entries_per_lane;
  ColouringOrder order = ColouringOrder::smallest_last;
  /// Where value k of the pattern is to be stored; empty: at k.
  std::span<const uint32_t> places;
};

inline constexpr uint32_t kJacobianWidths[] = {1, 2, 4, 8};
inline constexpr uint32_t kEntriesPerLane[] = {2, 3, 4, 6, 8, 16};

/// The predictions for one way of evaluating.
struct JacobianCandidate {
  JacobianCompression compression = JacobianCompression::local;
  uint32_t width = 0;            ///< 0: each row's own
  uint32_t outer = 0, inner = 0; ///< by terms: tangents of a row's own and of its terms' columns
  uint32_t entries_per_lane = 0;
  uint64_t tasks = 0;
  uint64_t term_tasks = 0; ///< among them, those by terms
  uint64_t threads = 0;
  uint64_t kernels = 0;
  double work = 0; ///< units of all threads
  double time = 0; ///< cycles from the start to the end
};

struct JacobianSchedule {
  JacobianTables tables;
  JacobianCandidate chosen;
  /// All that were compared, the chosen one among them.
  std::vector<JacobianCandidate> candidates;
  uint32_t colours = 0;
  uint64_t colours_lower_bound = 0;
};

/// UserError where the pattern is not square, tasks by terms are asked for and no row can be
/// evaluated so, row-local tasks are asked of an opaque residual, or
/// there are more entries than 2^32 - 2. The same input gives the same tables.
JacobianSchedule schedule_jacobian(const Pattern& pattern, const JacobianScheduleOptions& options);

JacobianPattern to_jacobian_pattern(const Pattern& pattern);
Pattern to_pattern(const JacobianPattern& pattern);

} // namespace sparsertc
