// Newton's method on a user's residual: from its text to the solution, on the CPU or on the GPU.
#pragma once

#include "compiler/assemble/assembler.h"
#include "compiler/lower/lu_batch.h"
#include "runtime/host/task_pool.h"
#include "runtime/newton/gpu_newton.h"
#include "runtime/newton/newton.h"
#include "tools/jacobian_system.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

struct NewtonRequest {
  JacobianRequest jacobian; ///< all instances start at its x0
  newton::Options options;
  /// Solved so often from the start, timed; the median counts. On the GPU once more before that,
  /// and phases are timed, too; 0: solved once.
  unsigned repeat = 1;
  /// Of batches on the GPU.
  const Assembler* assembler = nullptr;
  TaskPool* pool = nullptr;
  /// How the code of a batch's factorization is made, on the GPU; its types are those of `options`.
  LuBatchOptions batch_code;
  /// On the GPU: the iteration is recorded as graphs; else launched kernel by kernel.
  bool graphs = true;
  /// In graphs: the device decides, where the driver has conditional nodes; else the host does.
  bool conditional_nodes = true;
};

struct NewtonResult {
  std::string device; ///< "cpu" or "gpu"
  JacobianFacts facts;
  std::string order; ///< of the factorization
  uint64_t nnz_lu = 0;
  std::vector<newton::Report> reports; ///< by instance
  std::vector<double> x;               ///< [entry][instance]
  /// Wall-clock time of the iteration, all instances together: the median.
  double time_us = 0;
  uint64_t factorizations = 0; ///< on the GPU of all instances at once
  /// Of one step: on the GPU device time, and of a batch all instances; on the CPU the mean of all
  /// steps of all instances. Not on the GPU without repetitions.
  newton::Times phases;
  std::optional<double> step_us; ///< GPU: the phases as one graph
  bool together = false;         ///< residuals are evaluated with their Jacobians
  std::string assembler;         ///< of a batch's code on the GPU
};

/// Throws as make_host_system and prepare_newton_lu; that there is no solution is in the reports.
NewtonResult run_newton_on_cpu(const NewtonRequest& request);
/// The same; and UserError where a batch is too large for the GPU's memory.
NewtonResult run_newton_on_gpu(const cuda::Context& gpu, const NewtonRequest& request);

} // namespace sparsertc
