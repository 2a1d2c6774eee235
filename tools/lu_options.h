// The options of the commands about sparse LU.
#pragma once

#include "compiler/inspect/lu_analysis.h"

#include <CLI/CLI.hpp>

#include <string>

namespace sparsertc {

/// How a matrix is put before it is factorized.
struct LuOptions {
  std::string matching = "auto";
  std::string order = "auto";
  std::string blocks = "auto";
};
void declare(CLI::App& parser, LuOptions& options);
/// Without pool and progress, which the command adds.
LuAnalysisOptions to_analysis_options(const LuOptions& options);

} // namespace sparsertc
