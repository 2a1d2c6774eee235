#include "runtime/newton/gpu_newton.h"

#include "ir/error.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/kernels/kernel_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

namespace sparsertc::newton {
namespace {

constexpr uint32_t kThreads = 256; // of newton.cu
constexpr uint64_t kEntriesOfThread = 8;
constexpr uint64_t kMostChunks = 4096;
/// Step lengths and norms are kept for so many iterations.
constexpr uint32_t kMostRecorded = 200;

uint64_t log_lanes_of(uint64_t instances) {
  uint64_t log = 0;
  while (log < 5 && (uint64_t{1} << log) < instances)
    ++log;
  return log;
}

uint64_t chunk_of(uint64_t log_lanes, uint64_t entries) {
  return std::max((kThreads >> log_lanes) * kEntriesOfThread,
                  (entries + kMostChunks - 1) / kMostChunks);
}

template <class T>
std::span<uint8_t> bytes_of(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// Before memory is taken for it.
void check_memory(const cuda::Context& context, uint64_t n, uint64_t nnz, uint64_t instances) {
  const uint64_t need = (4 * n + nnz) * instances * sizeof(double);
  const uint64_t there = context.free_memory();
  if (need > there)
    throw UserError(fmt::format("{} instances of {} unknowns and {} derivatives take {} bytes of "
                                "the GPU's memory, of which {} are free",
                                instances, n, nnz, need, there),
                    "fewer instances at once");
}

uint32_t recorded_of(const Options& options) {
  return std::min(options.maximum_iterations, kMostRecorded);
}

} // namespace

std::string compile_gpu_kernels(const std::string& target) {
  cuda::CudaSource source;
  source.name = "newton.cu";
  source.text = std::string(kernels::kernel_source(source.name));
  source.target = target;
  source.options = {"-std=c++20", "-fmad=false"}; // the sums of the CPU
  return cuda::Nvrtc::open()->compile(source).ptx;
}

Report GpuReport::of(uint64_t instance) const {
  const GpuState& state = states[instance];
  Report report;
  report.outcome = outcome(instance);
  report.iterations = state.iterations;
  report.factorizations = factorizations;
  const uint64_t kept = std::min<uint64_t>(state.iterations, recorded);
  for (uint64_t i = 0; i <= kept; ++i)
    report.history.push_back(history[i * instances() + instance]);
  for (uint64_t i = 1; i <= kept; ++i)
    report.step_length.push_back(history[(recorded + i) * instances() + instance]);
  return report;
}

GpuNewton::GpuNewton(const cuda::Context& context, std::span<const uint8_t> kernels,
                     const jacobian::GpuSystem& system, const GpuLinearSolver& solver,
                     const Settings& settings, const cuda::Stream& stream)
    : context_(context), system_(system), solver_(solver), settings_(settings), stream_(stream),
      n_(system.unknowns()), instances_(system.instances()), log_lanes_(log_lanes_of(instances_)),
      chunk_(chunk_of(log_lanes_, std::max(n_, system.pattern().nnz()))),
      module_((check_memory(context, n_, system.pattern().nnz(), instances_), context), kernels),
      norm_(module_.kernel("sparsertc_newton_norm")),
      start_(module_.kernel("sparsertc_newton_start")),
      step_(module_.kernel("sparsertc_newton_step")),
      judge_(module_.kernel("sparsertc_newton_judge")),
      classify_(module_.kernel("sparsertc_newton_classify")),
      x_(context, n_ * instances_ * sizeof(double)), base_(context, x_.bytes()),
      f_(context, x_.bytes()), direction_(context, x_.bytes()),
      values_(context, system.pattern().nnz() * instances_ * sizeof(double)),
      partial_(context, chunks(std::max(n_, system.pattern().nnz())) * instances_ * sizeof(double)),
      states_(context, instances_ * sizeof(GpuState)),
      history_(context,
               (2 * uint64_t{recorded_of(settings.newton)} + 1) * instances_ * sizeof(double)),
      control_(context, sizeof(GpuControl)) {
  if (solver.instances() != instances_)
    throw InternalError(
        fmt::format("a solver of {} instances for a system of {}", solver.instances(), instances_));
  if (!solver.keeps_factors() && settings.newton.refactor_every > 1)
    throw InternalError("old factors are to be used, and the solver keeps none");
  if (system.number_bytes() != sizeof(double))
    throw UserError("Newton's method works in float64", "compile the residual for float64");
}

void GpuNewton::launch(const cuda::Kernel& kernel, uint64_t blocks_x, uint64_t blocks_y,
                       std::span<const uint64_t> arguments) const {
  std::array<void*, 13> pointers{};
  for (size_t i = 0; i < arguments.size(); ++i)
    pointers[i] = const_cast<uint64_t*>(&arguments[i]); // the driver only reads
  cuda::check(context_.api().cuLaunchKernel(kernel.handle, static_cast<uint32_t>(blocks_x),
                                            static_cast<uint32_t>(blocks_y), 1, kThreads, 1, 1, 0,
                                            stream_.handle(), pointers.data(), nullptr),
              "cuLaunchKernel",
              [&] { return fmt::format("launching the kernel {}", kernel.name); });
}

void GpuNewton::enqueue_norm(cuda::DeviceAddress vector, uint64_t entries) const {
  const uint64_t lanes = uint64_t{1} << log_lanes_;
  const uint64_t arguments[] = {vector,     entries, instances_,
                                log_lanes_, chunk_,  partial_.address()};
  launch(norm_, (instances_ + lanes - 1) / lanes, std::max<uint64_t>(chunks(entries), 1),
         arguments);
}

void GpuNewton::enqueue_move(bool begins) const {
  const uint64_t lanes = uint64_t{1} << log_lanes_;
  const GpuLinearSolver::Status status = solver_.status();
  const uint64_t arguments[] = {x_.address(),
                                base_.address(),
                                direction_.address(),
                                n_,
                                instances_,
                                log_lanes_,
                                chunk_,
                                begins ? 1u : 0u,
                                states_.address(),
                                status.record,
                                status.words,
                                status.failed_bit,
                                control_.address()};
  launch(step_, (instances_ + lanes - 1) / lanes, std::max<uint64_t>(chunks(n_), 1), arguments);
}

void GpuNewton::enqueue_judge(bool begins, bool fresh) const {
  const GpuLinearSolver::Status status = solver_.status();
  const uint64_t arguments[] = {partial_.address(), chunks(n_),        instances_,
                                begins ? 1u : 0u,   fresh ? 1u : 0u,   states_.address(),
                                status.record,      status.words,      status.failed_bit,
                                history_.address(), control_.address()};
  launch(judge_, (instances_ + kThreads - 1) / kThreads, 1, arguments);
}

void GpuNewton::enqueue_trial(bool begins, bool fresh) const {
  enqueue_move(begins);
  system_.residual(x_.address(), f_.address(), stream_);
  enqueue_norm(f_.address(), n_);
  enqueue_judge(begins, fresh);
}

void GpuNewton::enqueue_new_direction() const {
  system_.jacobian(x_.address(), values_.address(), stream_);
  solver_.factor_and_solve(values_.address(), f_.address(), direction_.address(), stream_);
}

void GpuNewton::run(std::unique_ptr<cuda::Graph>& graph, const std::function<void()>& enqueue) {
  if (!settings_.graphs || graph == nullptr)
    enqueue(); // the first time loads the code, which a graph would not
  else
    graph->launch();
  if (settings_.graphs && graph == nullptr)
    graph = std::make_unique<cuda::Graph>(context_, stream_, enqueue);
}

void GpuNewton::begin(const Options& options) {
  GpuControl control;
  control.tolerance = options.tolerance;
  control.divergence_ratio = options.divergence_ratio;
  control.maximum_iterations = options.maximum_iterations;
  control.maximum_halvings = options.maximum_halvings;
  control.damping = options.damping ? 1 : 0;
  control.recorded = recorded_of(settings_.newton);
  control_.upload({reinterpret_cast<const uint8_t*>(&control), sizeof control}, stream_);
  history_.fill(0, stream_);
  system_.residual(x_.address(), f_.address(), stream_);
  enqueue_norm(f_.address(), n_);
  const uint64_t arguments[] = {partial_.address(), chunks(n_),         instances_,
                                states_.address(),  history_.address(), control_.address()};
  launch(start_, (instances_ + kThreads - 1) / kThreads, 1, arguments);
  stream_.synchronize("evaluating the residual at the start"); // `control` was copied
}

GpuFlags GpuNewton::read_flags() const {
  GpuFlags flags;
  control_.download({reinterpret_cast<uint8_t*>(&flags), sizeof flags}, stream_);
  return flags;
}

GpuReport GpuNewton::solve() {
  const Options& options = settings_.newton;
  GpuReport report;
  report.recorded = recorded_of(options);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  begin(options);
  report.trials = 1;
  uint32_t age = options.refactor_every; // steps since the Jacobian was new
  for (GpuFlags flags = read_flags(); flags.running > 0; flags = read_flags()) {
    ++report.trials;
    if (flags.trying > 0) {
      run(retry_, [this] { enqueue_trial(false, false); });
    } else if (age >= options.refactor_every || flags.stale > 0) {
      run(new_step_, [this] {
        enqueue_new_direction();
        enqueue_trial(true, true);
      });
      ++report.factorizations;
      age = 1;
    } else {
      run(old_step_, [this] {
        solver_.solve(f_.address(), direction_.address(), stream_);
        enqueue_trial(true, false);
      });
      ++age;
    }
  }
  enqueue_move(false); // back from steps that were not accepted
  stream_.synchronize("iterating");
  report.time_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  system_.check(stream_);

  report.states.resize(instances_);
  states_.download(bytes_of(report.states), stream_);
  const auto is_singular = [](const GpuState& state) {
    return state.outcome == static_cast<uint32_t>(Outcome::singular);
  };
  if (std::any_of(report.states.begin(), report.states.end(), is_singular)) {
    enqueue_norm(values_.address(), system_.pattern().nnz());
    const uint64_t arguments[] = {partial_.address(), chunks(system_.pattern().nnz()), instances_,
                                  states_.address()};
    launch(classify_, (instances_ + kThreads - 1) / kThreads, 1, arguments);
    states_.download(bytes_of(report.states), stream_);
  }
  report.history.resize((2 * report.recorded + 1) * instances_);
  history_.download(bytes_of(report.history), stream_);
  return report;
}

GpuNewton::PhaseTimes GpuNewton::time_phases(unsigned samples) {
  // Every instance takes a full step in every replay, whatever comes of it.
  Options always = settings_.newton;
  always.tolerance = -1;
  always.damping = false;
  always.divergence_ratio = std::numeric_limits<double>::infinity();
  always.maximum_iterations = std::numeric_limits<uint32_t>::max();
  const auto time = [&](const std::function<void()>& enqueue) {
    begin(always);
    return cuda::Graph(context_, stream_, enqueue).time(samples).median_us;
  };
  PhaseTimes times;
  times.residual_us = time([&] { system_.residual(x_.address(), f_.address(), stream_); });
  times.jacobian_us = time([&] { system_.jacobian(x_.address(), values_.address(), stream_); });
  if (solver_.keeps_factors()) {
    times.factor_us = time([&] { solver_.factor(values_.address(), stream_); });
    times.solve_us = time([&] { solver_.solve(f_.address(), direction_.address(), stream_); });
  } else {
    times.factor_us = time([&] {
      solver_.factor_and_solve(values_.address(), f_.address(), direction_.address(), stream_);
    });
  }
  // A step of nothing, so that the iterate stays.
  direction_.fill(0, stream_);
  times.update_us = time([&] {
    enqueue_move(true);
    enqueue_norm(f_.address(), n_);
    enqueue_judge(true, true);
  });
  times.step_us = time([&] {
    enqueue_new_direction();
    enqueue_trial(true, true);
  });
  return times;
}

} // namespace sparsertc::newton
