// A bundle of sparse LU made ready: loaded, checked, and constant from then on.
//
//   bundle --> manifest --> tables --> checks --> GPU's tables and code --> LuPlan
//              (JSON)                             or nothing: the CPU does it
//
// Everything slow happens in the constructor; what a factorization changes lies in its workspace,
// so that several streams and threads may factorize and solve at once, each with its own.
#pragma once

#include "runtime/bundle/bundle.h"
#include "runtime/plan/lu_batch_executor.h"
#include "runtime/plan/lu_executor.h"
#include "runtime/plan/plan.h"

#include <memory>
#include <string>

namespace sparsertc {

/// How the last factorization in a workspace went.
struct LuStatus {
  lu::FactorStatus factor;
  /// Why the pivots do not fit the values any more; empty where they do.
  std::string stale;
};

class LuPlan {
public:
  /// Loads the bundle `name` (for messages). In a context without a GPU addresses are host memory,
  /// and the calling thread does all work. Throws UserError where it is none or damaged,
  /// UnsupportedDeviceError where the device cannot run it, RuntimeError where the driver refuses.
  LuPlan(std::shared_ptr<const ExecutionContext> context, const Bundle& bundle,
         const std::string& name);
  ~LuPlan();
  LuPlan(const LuPlan&) = delete;
  LuPlan& operator=(const LuPlan&) = delete;

  const LuManifest& manifest() const { return manifest_; }
  const std::string& manifest_text() const { return manifest_text_; }
  const LuTables& tables() const { return tables_; }
  Plan::Code code() const { return code_; }
  uint64_t table_bytes() const {
    return executor_->table_bytes() + (batch_ ? batch_->table_bytes() : 0);
  }

  /// For a solve with so many right-hand sides at once; in smaller ones they go in turns.
  uint64_t workspace_bytes(uint64_t right_sides) const;
  uint64_t workspace_alignment() const { return executor_->workspace_alignment(); }

  /// Enqueues what a workspace must hold before its first factorization.
  void initialize_workspace(const LuWorkspace& workspace, cuda::StreamHandle stream) const;

  /// Enqueues the factorization of the matrix with these values, nnz numbers in the order of A's
  /// rows, or of solves with it. Launches alone: nothing is allocated, loaded, locked or waited
  /// for. The device's primary context must be current on the calling thread. `pivot_threshold` of
  /// 0: the default. UsageError for arguments that cannot be, RuntimeError where the driver
  /// refuses.
  void refactor(const LuWorkspace& workspace, LuAddress values, double pivot_threshold,
                cuda::StreamHandle stream) const;
  void solve(const LuWorkspace& workspace, const LuSystem& system, cuda::StreamHandle stream) const;

  /// Whether solutions can be refined; the memory for so many right-hand sides (aligned like a
  /// workspace), a UsageError where they cannot.
  bool can_refine() const { return executor_->can_refine(); }
  uint64_t refinement_bytes(uint64_t right_sides) const;
  /// Like solve, then refines by the rules of runtime/lu/refine.h.
  void solve_refined(const LuWorkspace& workspace, const LuSystem& system,
                     const LuRefinement& refinement, cuda::StreamHandle stream) const;
  /// Waits and says what has come of the first right-hand sides of the last refined solve.
  std::vector<lu::RefineResult> refine_results(const LuWorkspace& memory, uint64_t right_sides,
                                               cuda::StreamHandle stream) const;

  /// Many matrices of the pattern at once, values[entry * instances + instance], right-hand sides
  /// and solutions [row * instances + instance], in a workspace that needs no initialising. A
  /// UsageError where the bundle has no code for that.
  bool has_batch() const { return batch_ != nullptr; }
  uint64_t batch_bytes(uint64_t instances) const;
  void batch_refactor(const LuWorkspace& workspace, uint64_t instances, LuAddress values,
                      double pivot_threshold, cuda::StreamHandle stream) const;
  void batch_solve(const LuWorkspace& workspace, uint64_t instances, LuAddress b, LuAddress x,
                   cuda::StreamHandle stream) const;
  /// Waits and says how the last factorization of each instance went.
  std::vector<lu::BatchStatus> batch_status(const LuWorkspace& workspace, uint64_t instances,
                                            cuda::StreamHandle stream) const;
  /// Whether more pivots were replaced than in the matrix for which they were chosen.
  bool is_stale(const lu::BatchStatus& status) const;

  /// These wait for the stream. UsageError where nothing has been factorized in the workspace.
  LuStatus status(const LuWorkspace& workspace, cuda::StreamHandle stream) const;
  /// An estimate of the condition, and whether the matrix with these values, whose factors the
  /// workspace has, is singular as far as they can tell. A few solves.
  LuAssessment assess(const LuWorkspace& workspace, LuAddress values,
                      cuda::StreamHandle stream) const;
  /// The largest relative residual (runtime/lu/refine.h) of the solutions of a system.
  double residual(const LuSystem& system, LuAddress values, cuda::StreamHandle stream) const;
  /// L without its diagonal of ones and U with its diagonal, by slot (ir/lu_tables.h), in double
  /// precision, complex ones as pairs: P R A C Q = L U.
  std::vector<double> factors(const LuWorkspace& workspace, cuda::StreamHandle stream) const;

private:
  void load_gpu(const Bundle& bundle, const std::string& name);
  void load_batch(const Bundle& bundle, const std::string& name);
  void check_workspace(const LuWorkspace& workspace) const;
  void check_batch(const LuWorkspace& workspace, uint64_t instances) const;
  void check_numbers(const char* what, LuAddress address, uint64_t count) const;
  void check_system(const LuSystem& system) const;
  /// Solutions may not be written over what they are computed from.
  void check_apart(LuAddress x, uint64_t count, const LuWorkspace& memory, const char* what) const;
  void check_has_room(const LuWorkspace& workspace) const;
  void check_refinement(const LuWorkspace& memory, uint64_t right_sides) const;

  std::shared_ptr<const ExecutionContext> context_;
  std::string manifest_text_;
  LuManifest manifest_;
  LuTables tables_;
  lu::MatrixPattern pattern_; ///< of A
  Plan::Code code_ = Plan::Code::none;
  std::unique_ptr<LuExecutor> executor_;
  LuBatchLoop batch_loop_;                 ///< of the host's batches
  std::unique_ptr<LuBatchExecutor> batch_; ///< null where there are none
};

} // namespace sparsertc
