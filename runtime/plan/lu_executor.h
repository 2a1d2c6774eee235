// Where the numbers of sparse LU are: in device memory, worked on by a GPU's streams, or in host
// memory, worked on by the calling thread. A workspace is a piece of the caller's memory:
//
//   0     the status record (runtime/plan/status_record.h)
//   64    on the host: how the last factorization went
//   256   the numbers of one matrix: values of L'+U, and what executing needs
#pragma once

#include "runtime/lu/factors.h"
#include "runtime/lu/gpu_plan.h"
#include "runtime/lu/gpu_refine.h"
#include "runtime/lu/refine.h"
#include "runtime/plan/execution_context.h"
#include "runtime/plan/lu_manifest.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace sparsertc {

/// An address of device or host memory.
using LuAddress = uint64_t;

struct LuWorkspace {
  LuAddress memory = 0;
  uint64_t bytes = 0;
};

/// Right-hand sides and solutions: columns of n numbers, one behind the other.
struct LuSystem {
  LuAddress b = 0;
  LuAddress x = 0; ///< b itself, or memory that does not overlap it
  uint64_t right_sides = 1;
  bool transposed = false;
};

/// What a refined solve needs beside a system.
struct LuRefinement {
  LuWorkspace memory;   ///< as refinement_bytes() says for the right-hand sides
  LuAddress values = 0; ///< of A
  lu::RefineOptions options;
};

/// What solving with the factors of a matrix is worth.
struct LuAssessment {
  double condition = 0; ///< runtime/lu/condition.h
  bool singular = false;
};

/// Constant: several threads may execute at once, each with a workspace of its own.
class LuExecutor {
public:
  static constexpr uint64_t kNumbersAt = 256; ///< in a workspace

  virtual ~LuExecutor() = default;

  virtual uint64_t workspace_bytes(uint64_t right_sides) const = 0;
  virtual uint64_t workspace_alignment() const = 0;
  /// The most right-hand sides of one solve in a workspace of this size; more go in turns.
  virtual uint64_t right_sides_in(uint64_t workspace_bytes) const = 0;
  /// Of device memory for tables; 0 on the host.
  virtual uint64_t table_bytes() const = 0;

  /// On a GPU these three enqueue and return; the arguments have been checked.
  virtual void initialize(const LuWorkspace& workspace, cuda::StreamHandle stream) const = 0;
  virtual void refactor(const LuWorkspace& workspace, LuAddress values,
                        const lu::FactorOptions& options, cuda::StreamHandle stream) const = 0;
  virtual void solve(const LuWorkspace& workspace, const LuSystem& system,
                     cuda::StreamHandle stream) const = 0;

  /// Whether the bundle has what refines solutions, and the memory of that for so many right-hand
  /// sides.
  virtual bool can_refine() const = 0;
  virtual uint64_t refinement_bytes(uint64_t right_sides) const = 0;
  /// Like solve(); in turns, where the workspace has room for fewer right-hand sides.
  virtual void solve_refined(const LuWorkspace& workspace, const LuSystem& system,
                             const LuRefinement& refinement, cuda::StreamHandle stream) const = 0;
  /// Waits; of the first right-hand sides of the last refined solve there.
  virtual std::vector<lu::RefineResult> refine_results(const LuWorkspace& memory,
                                                       uint64_t right_sides,
                                                       cuda::StreamHandle stream) const = 0;

  /// These wait. UsageError where the workspace was never initialised, or nothing factorized in it.
  virtual lu::FactorStatus status(const LuWorkspace& workspace,
                                  cuda::StreamHandle stream) const = 0;
  /// L'+U by slot, in double precision; of complex numbers the parts beside one another.
  virtual std::vector<double> factors(const LuWorkspace& workspace,
                                      cuda::StreamHandle stream) const = 0;
  /// Numbers of the caller's type, in double precision.
  virtual std::vector<double> read(LuAddress numbers, uint64_t count,
                                   cuda::StreamHandle stream) const = 0;
  /// Solves a few times with the factors of A, whose values are given in double precision.
  virtual LuAssessment assess(const LuWorkspace& workspace, const lu::MatrixPattern& pattern,
                              std::span<const double> values, const lu::FactorStatus& status,
                              cuda::StreamHandle stream) const = 0;
};

/// What a GPU executes.
struct LuGpuParts {
  std::unique_ptr<lu::GpuPlan> plan;
  std::unique_ptr<lu::GpuRefinement> refinement; ///< null where solutions cannot be refined
};

/// The references must outlive it. `pattern` is that of A.
std::unique_ptr<LuExecutor> make_lu_executor(const cuda::Context& context, LuGpuParts parts,
                                             const LuManifest& manifest);
std::unique_ptr<LuExecutor> make_lu_executor(const LuTables& tables,
                                             const lu::MatrixPattern& pattern,
                                             const LuManifest& manifest);

} // namespace sparsertc
