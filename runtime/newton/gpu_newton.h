// Newton's method on the GPU, for one system or for many at once: executes the program of
// compiler/lower/newton_program.h. README.md has the iteration; it is that of newton.h, decision by
// decision, for every instance on its own.
#pragma once

#include "ir/newton_layout.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/jacobian/gpu_system.h"
#include "runtime/newton/gpu_solver.h"
#include "runtime/newton/gpu_state.h"
#include "runtime/newton/newton.h"
#include "runtime/program/executor.h"
#include "runtime/program/gpu_device.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc::newton {

/// The PTX of runtime/kernels/newton.cu for a target ("sm_90"), by NVRTC. RuntimeError where that
/// is not there.
std::string compile_gpu_kernels(const std::string& target);

/// How all instances ended.
struct GpuReport {
  std::vector<GpuState> states;
  uint64_t recorded = 0;       ///< iterations that `history` has room for
  std::vector<double> history; ///< [(recorded + 1) norms, recorded step lengths][instance]
  uint64_t factorizations = 0; ///< of all instances at once
  uint64_t trials = 0;         ///< residuals, the first one included
  double time_us = 0;          ///< wall-clock time of the iteration

  uint64_t instances() const { return states.size(); }
  Outcome outcome(uint64_t instance) const {
    return static_cast<Outcome>(states[instance].outcome);
  }
  /// As newton::solve gives it, without times and what a factorization says.
  Report of(uint64_t instance) const;
};

/// What a program for such a system and these options has room for.
NewtonLayout newton_layout(uint64_t unknowns, uint64_t entries, uint64_t instances,
                           const Options& options);
/// Whether every step has a new Jacobian.
bool always_new_jacobian(const Options& options);
/// Whether the residual is evaluated with its Jacobian, in one.
bool evaluates_together(const jacobian::GpuSystem& system, const Options& options);

class GpuNewton {
public:
  struct Settings {
    Options newton;
    /// Record the iteration as CUDA graphs; else launch by launch.
    bool graphs = true;
    /// Let the device decide, where the driver has conditional nodes; else the host after each
    /// trial.
    bool conditional_nodes = true;
  };

  /// Takes the memory for x, J and the report; the rest with the first solve(). `kernels` is PTX or
  /// a cubin of newton.cu, `program` that of lower_newton_program for newton_layout(), what the
  /// functions above say and the options' f32_jacobian, placed; all but `settings` must outlive it.
  /// UserError where the memory does not suffice or the system's numbers are not float64.
  GpuNewton(const cuda::Context& context, std::span<const uint8_t> kernels,
            const ir::Module& program, const jacobian::GpuSystem& system,
            const GpuLinearSolver& solver, const Settings& settings, const cuda::Stream& stream);

  /// n * instances numbers, [entry][instance]: the start, to be filled in before solve(), and the
  /// last accepted iterates after it.
  const cuda::DeviceBuffer& iterate() const { return x_; }
  /// The Jacobians of the last step, nnz * instances numbers of GpuSystem::value_bytes(); where
  /// they are evaluated with residuals, those of the last trial.
  const cuda::DeviceBuffer& jacobian() const { return values_; }

  /// Iterates. Throws what GpuSystem::check throws; that there is no solution is in the report.
  GpuReport solve();
  /// The copies so far, and what was launched.
  const program::Executor& executor() const { return executor_; }

  /// Device time of each phase of a step with a new Jacobian, and of all of them as one graph;
  /// where the residual is evaluated with it, its own time is 0: medians of `samples` replays at
  /// what solve() left. solve() starts afresh after it.
  struct PhaseTimes : Times {
    double step_us = 0;
  };
  PhaseTimes time_phases(unsigned samples);

private:
  program::GpuBindings bindings() const;

  const cuda::Context& context_;
  const jacobian::GpuSystem& system_;
  const GpuLinearSolver& solver_;
  Settings settings_;
  const cuda::Stream& stream_;
  NewtonLayout layout_;
  cuda::Module module_;
  program::GpuDevice device_;
  program::Executor executor_;
  cuda::DeviceBuffer x_, values_, states_, history_, control_;
  GpuControl options_; ///< what the program is given
};

} // namespace sparsertc::newton
