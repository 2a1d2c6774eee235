// The options of the commands about sparse LU.
#pragma once

#include "compiler/inspect/lu_analysis.h"
#include "compiler/inspect/lu_strategy.h"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace sparsertc {

/// Where the pattern of the factors and their levels are found.
struct LuSymbolicOptions {
  std::string where = "auto";
  uint64_t memory_limit = 0; ///< of device memory, bytes; 0: what is free
  bool verify = false;
};

/// How a matrix is put before it is factorized.
struct LuOptions {
  std::string matching = "auto";
  std::string order = "auto";
  std::string blocks = "auto";
  /// A file with the user's permutations; empty: none.
  std::string placement;
  LuSymbolicOptions symbolic;
  /// How a GPU factorizes: kLuStrategyWords.
  std::string strategy = "auto";
  bool atomics = false;
  std::string dense_tail = "auto"; ///< auto, off, or columns
};
void declare(CLI::App& parser, LuOptions& options);
/// Without pool and progress, which the command adds. Reads the file of permutations.
LuAnalysisOptions to_analysis_options(const LuOptions& options);
/// UsageError for an unknown word.
LuStrategy to_strategy(const LuOptions& options);
/// Of --dense-tail; UsageError where it is no number.
std::optional<uint32_t> to_tail_columns(const LuOptions& options);

/// Writes the permutations of an analysis as --placement reads them: 2 x n, .npy.
void write_placement(const std::string& path, const LuAnalysis& analysis);

} // namespace sparsertc
