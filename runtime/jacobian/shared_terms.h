// The tables of tasks by terms that lanes of a warp share, by thread: what neighbouring threads
// need at the same time stands side by side (runtime/kernels/residual_shared_terms.cuh).
#pragma once

#include "ir/jacobian_tables.h"
#include "runtime/jacobian/warp_results.h"

#include <cstdint>
#include <vector>

namespace sparsertc::jacobian {

struct SharedTerms {
  uint64_t threads = 0;      ///< whole warps
  uint32_t most_terms = 0;   ///< of a thread
  uint32_t kept_numbers = 0; ///< of a thread: most_terms times I, and O
  /// [2 + O][thread]: the row; lanes of its task (0: the thread has none), + 64 times the thread's
  /// terms, + 65536 times its warp's rounds of stores; the row's columns.
  std::vector<uint32_t> head;
  std::vector<uint32_t> columns;   ///< [most_terms][I][thread]
  std::vector<ResultStore> stores; ///< [round][thread]: a warp's by their places
};

/// Whether lanes were dealt to the tasks, be it one each.
inline bool by_lanes(const TermTasks& tasks) {
  return tasks.lanes.task_end.back() > 0;
}
/// Of tasks by_lanes().
SharedTerms shared_terms(const TermTasks& tasks);

} // namespace sparsertc::jacobian
