// The C++ text that is compiled for a residual: our headers (runtime/kernels), the parameters'
// types, the user's text, and the entries that are wanted.
#pragma once

#include "ir/jacobian_tables.h"
#include "runtime/jacobian/parameters.h"
#include "runtime/jacobian/read_ahead.h"
#include "runtime/jacobian/source.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc::jacobian {

/// A function of the compiled program: a kernel on the GPU, a function with C linkage on the host.
struct ProgramEntry {
  std::string name; ///< "sparsertc_local_4"
  std::string call; ///< the struct of its arguments, "LocalCall<4>" (residual_kernels.cuh)
};

struct ProgramOptions {
  bool f32 = false;
  /// Derivatives are float32 while values are float64; on the GPU alone.
  bool f32_values = false;
  /// Vectors of several instances lie entry by entry, or parameters vary.
  bool batch = false;
  /// Indices are compared with the arrays' lengths.
  bool checked = false;
  /// Iterations of a loop; 0: no limit.
  uint32_t loop_limit = kDefaultLoopLimit;
  /// Lanes of a warp share tasks (sum_over): on the GPU alone, for residuals by row, not checked,
  /// no batch.
  bool shared = false;
  /// With an entry that writes down what rows read; checked programs alone.
  bool read_log = false;
  /// What rows read is known beforehand: on the GPU alone, with `shared`.
  std::optional<ReadAheadShape> read_ahead;
  std::vector<ProgramEntry> entries;
};

/// Entries for looking at a residual: its form, its values, its pattern.
/// `read_log`: ProgramOptions::read_log.
std::vector<ProgramEntry> inspection_entries(bool read_log = false);
/// Entries for evaluating it: values, products, and Jacobians by the tasks of these tables; and,
/// where asked for, one that only writes the values. `read_ahead`: that of tasks by terms.
std::vector<ProgramEntry> evaluation_entries(const JacobianTables& tables, bool with_write = false,
                                             const std::optional<ReadAheadShape>& read_ahead = {});

inline constexpr const char* kWriteEntry = "sparsertc_write";
inline constexpr const char* kReadLogEntry = "sparsertc_read_log";
std::string local_entry(uint32_t width);
std::string coloured_entry(uint32_t width);
std::string terms_entry(const TermTasks& tasks);

/// UserError where the source has no residual, or loops that cannot be limited; and as
/// parameter_types().
std::string make_program(const ResidualSource& source, const ParameterSet& parameters,
                         const ProgramOptions& options);

} // namespace sparsertc::jacobian
