// `sparsertc compile --op=lu`: a matrix becomes a bundle of sparse LU.
#pragma once

#include "tools/assemblers.h"
#include "tools/lu_options.h"
#include "tools/options.h"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

namespace sparsertc {

/// What only --op=lu has.
struct CompileLuOptions {
  LuOptions lu;
  std::string numbers = "f64"; ///< "f64", "f32", "mixed"
  double pivot_threshold = 0;
  uint32_t multiprocessors = 0; ///< 0: the GPU's, or the target's
  bool no_transposed = false;
  bool batch = false;
  uint64_t batch_budget = 300000;
};
void declare(CLI::App& parser, CompileLuOptions& options);

struct CompileLuRequest {
  const InputOptions& input;
  const CompileLuOptions& lu;
  const CacheOptions& cache;
  const JobOptions& jobs;
  bool verbose = false; ///< prints what was decided on standard error
  std::string target;   ///< empty: sm_90
  std::string output;
  const Assembler* assembler = nullptr; ///< null: PTX only
};
/// UsageError for options that are not for --op=lu. `parser` is the command's.
void check_lu_options(const CLI::App& parser);
/// The same for options of --op=lu alone, where another one was chosen.
void check_no_lu_options(const CLI::App& parser);
int compile_lu_file(const CompileLuRequest& request);

} // namespace sparsertc
