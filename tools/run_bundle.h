// sparsertc run BUNDLE: code that `compile` has made, through the plan that an embedding program
// would use.
#pragma once

#include "runtime/plan/plan_manifest.h"
#include "tools/options.h"
#include "tools/spmm_operands.h"

#include <string>

namespace sparsertc {

struct BundleRun {
  std::string path;    ///< .srtc, or .cubin or .ptx with its manifest beside it (PATH.json)
  std::string weights; ///< the matrix it was compiled from, for the check; may be empty
  std::string tensor;  ///< which tensor of that file
  OperandSources sources;
  ProblemOptions problem; ///< columns, ldb and ldc, where the bundle leaves them open
  std::string output;     ///< C as .npy; may be empty
  bool check = false;
  unsigned repeat = 10;
  unsigned jobs = 0; ///< threads of the check
  bool json = false;
};

/// Throws UsageError for words that say what is computed: the bundle at `path` says that itself.
void refuse_problem(const ProblemOptions& given, const std::string& path);

/// What a bundle computes; what its launches give is open.
SpmmProblem problem_of(const PlanManifest& manifest);

/// Whether the file's name says that it is compiled code.
bool is_compiled_code(const std::string& path);

/// Runs it on the first GPU, prints the report and returns the exit code: 1 where the check failed.
/// Throws UsageError for options that contradict the bundle, UserError where it or another file is
/// damaged, NoGpuError without a GPU (the CPU runs the weights themselves), RuntimeError where the
/// GPU cannot run the code.
int run_bundle(const BundleRun& run);

} // namespace sparsertc
