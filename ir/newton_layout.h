// How the kernels of runtime/kernels/newton.cu divide vectors among blocks, and how long the arrays
// of the program are that launches them (compiler/lower/newton_program.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace sparsertc {

struct NewtonLayout {
  uint64_t unknowns = 0;
  uint64_t entries = 0; ///< of the Jacobian
  uint64_t instances = 0;
  uint64_t recorded = 0; ///< iterations that the history has room for

  static constexpr uint64_t kThreads = 256; ///< of a block
  static constexpr uint64_t kStateWords = 6;
  static constexpr uint64_t kControlWords = 9;
  static constexpr uint64_t kFlags = 4;

  /// Blocks are 2^log_lanes instances wide, at most 32.
  uint64_t log_lanes() const {
    uint64_t log = 0;
    while (log < 5 && (uint64_t{1} << log) < instances)
      ++log;
    return log;
  }
  /// Entries of a vector for one block.
  uint64_t chunk() const {
    constexpr uint64_t kEntriesOfThread = 8, kMostChunks = 4096;
    const uint64_t most = std::max(unknowns, entries);
    return std::max((kThreads >> log_lanes()) * kEntriesOfThread,
                    (most + kMostChunks - 1) / kMostChunks);
  }
  uint64_t chunks(uint64_t count) const { return (count + chunk() - 1) / chunk(); }
  uint64_t vector() const { return unknowns * instances; }
  uint64_t values() const { return entries * instances; }
  uint64_t partial() const { return chunks(std::max(unknowns, entries)) * instances; }
  uint64_t states() const { return kStateWords * instances; }
  uint64_t history() const { return (2 * recorded + 1) * instances; }
};

} // namespace sparsertc
