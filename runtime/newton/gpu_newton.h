// Newton's method on the GPU, for one system or for many at once: iterates, residuals, Jacobians
// and factors stay there, and after each step the host reads how many instances go on. README.md
// has the iteration; it is that of newton.h, decision by decision, for every instance on its own.
#pragma once

#include "runtime/driver/cuda_objects.h"
#include "runtime/driver/graph.h"
#include "runtime/jacobian/gpu_system.h"
#include "runtime/newton/gpu_solver.h"
#include "runtime/newton/gpu_state.h"
#include "runtime/newton/newton.h"

#include <cstdint>
#include <functional>
#include <memory>
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

class GpuNewton {
public:
  struct Settings {
    Options newton;
    /// Record the work of a step once and launch it as a graph; else launch by launch.
    bool graphs = true;
  };

  /// Takes the memory. `kernels` is PTX or a cubin; all other arguments must outlive it. UserError
  /// where the memory does not suffice or the system's numbers are not float64.
  GpuNewton(const cuda::Context& context, std::span<const uint8_t> kernels,
            const jacobian::GpuSystem& system, const GpuLinearSolver& solver,
            const Settings& settings, const cuda::Stream& stream);

  /// n * instances numbers, [entry][instance]: the start, to be filled in before solve(), and the
  /// last accepted iterates after it.
  const cuda::DeviceBuffer& iterate() const { return x_; }
  /// The Jacobians of the last step, nnz * instances numbers.
  const cuda::DeviceBuffer& jacobian() const { return values_; }

  /// Iterates. Throws what GpuSystem::check throws; that there is no solution is in the report.
  GpuReport solve();

  /// Device time of each phase of a step with a new Jacobian, and of all of them as one graph:
  /// medians of `samples` replays at what solve() left. solve() starts afresh after it.
  struct PhaseTimes : Times {
    double step_us = 0;
  };
  PhaseTimes time_phases(unsigned samples);

private:
  void launch(const cuda::Kernel& kernel, uint64_t blocks_x, uint64_t blocks_y,
              std::span<const uint64_t> arguments) const;
  void enqueue_norm(cuda::DeviceAddress vector, uint64_t entries) const;
  void enqueue_move(bool begins) const;
  void enqueue_judge(bool begins, bool fresh) const;
  void enqueue_trial(bool begins, bool fresh) const;
  void enqueue_new_direction() const;
  /// Runs the work, from its graph where there are graphs.
  void run(std::unique_ptr<cuda::Graph>& graph, const std::function<void()>& enqueue);
  void begin(const Options& options);
  GpuFlags read_flags() const;
  uint64_t chunks(uint64_t entries) const { return (entries + chunk_ - 1) / chunk_; }

  const cuda::Context& context_;
  const jacobian::GpuSystem& system_;
  const GpuLinearSolver& solver_;
  Settings settings_;
  const cuda::Stream& stream_;
  uint64_t n_, instances_, log_lanes_, chunk_;
  cuda::Module module_;
  cuda::Kernel norm_, start_, step_, judge_, classify_;
  cuda::DeviceBuffer x_, base_, f_, direction_, values_, partial_, states_, history_, control_;
  std::unique_ptr<cuda::Graph> new_step_, old_step_, retry_;
};

} // namespace sparsertc::newton
