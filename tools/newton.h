// `sparsertc jacobian F.cu --newton`: its options, and what it reports.
#pragma once

#include "tools/assemblers.h"
#include "tools/newton_run.h"
#include "tools/options.h"
#include "tools/session.h"

#include <cstdint>
#include <string>

namespace sparsertc {

struct NewtonOptions {
  bool newton = false;
  double tolerance = newton::Options{}.tolerance;
  uint32_t iterations = newton::Options{}.maximum_iterations;
  std::string damping = "on";
  uint32_t halvings = newton::Options{}.maximum_halvings;
  double divergence_ratio = newton::Options{}.divergence_ratio;
  uint32_t refactor_every = newton::Options{}.refactor_every;
  std::string factors = "f64";
  std::string solution;
  bool dump_program = false;
  AssemblerOptions assembler;
  JobOptions jobs;
};
void declare(CLI::App& parser, NewtonOptions& options);

/// What the command has besides.
struct NewtonCommand {
  JacobianRequest jacobian;
  const cuda::Context* gpu = nullptr; ///< null: on the CPU
  CacheOptions cache;
  bool json = false;
  unsigned repeat = 0; ///< NewtonRequest::repeat
  Progress* progress = nullptr;
};
/// Solves, writes the solution and prints the report. The exit code: 1 where an instance has not
/// converged, with a line on standard error that says how it ended.
int run_newton(const NewtonOptions& options, NewtonCommand command);

} // namespace sparsertc
