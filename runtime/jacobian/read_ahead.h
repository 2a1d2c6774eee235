// What the rows of a residual read, written down once, as tables that its evaluation reads ahead
// (runtime/kernels/residual_reads.cuh).
#pragma once

#include "ir/jacobian_tables.h"
#include "runtime/jacobian/warp_results.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace sparsertc::jacobian {

enum class ReadKind : uint8_t {
  integer, ///< a parameter of 32 bits
  number,  ///< any other parameter
  unknown
};

/// What rows read, one after the other.
struct ReadLog {
  /// A row looks at values: elsewhere it may read something else.
  bool decides = false;
  std::vector<uint32_t> terms;        ///< by row: of its last sum
  std::vector<uint64_t> offset = {0}; ///< rows + 1
  std::vector<ReadKind> kind;
  std::vector<uint32_t> term; ///< the term's number plus 1, or 0 outside of sums
  std::vector<uint64_t> word; ///< the parameter's bits, or the unknown's number
};

/// What rows read beside their sums, or terms do, at most.
struct ReadsShape {
  uint32_t integers = 0;
  uint32_t words = 0;
  uint64_t unknowns = 0; ///< bit k: word k may be an unknown
  uint64_t numbers = 0;  ///< bit k: word k may be a parameter
};

/// Of which the program must know (program.h).
struct ReadAheadShape {
  uint32_t outer = 0, inner = 0;
  ReadsShape row, term;
  uint32_t terms = 0;  ///< of a thread
  uint32_t often = 0;  ///< of a thread whose row has fewer than 32 lanes
  uint32_t rounds = 0; ///< of stores, of a warp
};

struct ReadAhead {
  ReadAheadShape shape;
  uint64_t threads = 0;      ///< whole warps
  uint32_t kept_numbers = 0; ///< of a thread
  std::vector<uint32_t> row; ///< by task
  /// [read][task]; a word of an unknown has kUnknownWord in the upper half, plus the number of its
  /// tangent, or plus 255.
  std::vector<uint32_t> integers;
  std::vector<uint64_t> words;
  /// [term of the thread][read][thread]
  std::vector<uint32_t> term_integers;
  std::vector<uint64_t> term_words;
  std::vector<ResultStore> stores; ///< [round][thread]
};

/// Of tasks by_lanes() (shared_terms.h) whose rows the log has. Nothing where rows decide, where
/// they read more than a thread keeps in registers, or where an unknown's word could be a
/// parameter's.
std::optional<ReadAhead> read_ahead(const TermTasks& tasks, const ReadLog& log);

} // namespace sparsertc::jacobian
