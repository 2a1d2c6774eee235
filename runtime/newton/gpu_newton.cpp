#include "runtime/newton/gpu_newton.h"

#include "ir/error.h"
#include "runtime/driver/graph.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/kernels/kernel_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

namespace sparsertc::newton {
namespace {

/// Step lengths and norms are kept for so many iterations.
constexpr uint32_t kMostRecorded = 200;

template <class T>
std::span<uint8_t> bytes_of(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// Before memory is taken for it.
void check_memory(const cuda::Context& context, const NewtonLayout& layout, uint32_t value_bytes) {
  const uint64_t need = 4 * layout.vector() * sizeof(double) + layout.values() * value_bytes;
  const uint64_t there = context.free_memory();
  if (need > there)
    throw UserError(fmt::format("{} instances of {} unknowns and {} derivatives take {} bytes of "
                                "the GPU's memory, of which {} are free",
                                layout.instances, layout.unknowns, layout.entries, need, there),
                    "fewer instances at once");
}

GpuControl control_of(const Options& options, const NewtonLayout& layout) {
  GpuControl control;
  control.tolerance = options.tolerance;
  control.divergence_ratio = options.divergence_ratio;
  control.maximum_iterations = options.maximum_iterations;
  control.maximum_halvings = options.maximum_halvings;
  control.damping = options.damping ? 1 : 0;
  control.recorded = static_cast<uint32_t>(layout.recorded);
  control.refactor_every = options.refactor_every;
  control.age = options.refactor_every; // the first step has a new one
  control.trials = 1;                   // the residual at the start
  return control;
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

NewtonLayout newton_layout(uint64_t unknowns, uint64_t entries, uint64_t instances,
                           const Options& options) {
  NewtonLayout layout;
  layout.unknowns = unknowns;
  layout.entries = entries;
  layout.instances = instances;
  layout.recorded = std::min(options.maximum_iterations, kMostRecorded);
  return layout;
}

bool always_new_jacobian(const Options& options) {
  return options.refactor_every <= 1;
}

bool evaluates_together(const jacobian::GpuSystem& system, const Options& options) {
  return always_new_jacobian(options) && system.evaluates_together();
}

GpuNewton::GpuNewton(const cuda::Context& context, std::span<const uint8_t> kernels,
                     const ir::Module& program, const jacobian::GpuSystem& system,
                     const GpuLinearSolver& solver, const Settings& settings,
                     const cuda::Stream& stream)
    : context_(context), system_(system), solver_(solver), settings_(settings), stream_(stream),
      layout_(newton_layout(system.unknowns(), system.pattern().nnz(), system.instances(),
                            settings.newton)),
      module_((check_memory(context, layout_, system.value_bytes()), context), kernels),
      device_(context, stream, program, bindings(), settings.conditional_nodes),
      executor_(program, device_,
                {.record = settings.graphs, .host_code = nullptr, .every_round = {}}),
      x_(context, layout_.vector() * sizeof(double)),
      values_(context, layout_.values() * system.value_bytes()),
      states_(context, layout_.states() * sizeof(uint64_t)),
      history_(context, layout_.history() * sizeof(double)), control_(context, sizeof(GpuControl)) {
  if (solver.instances() != layout_.instances)
    throw InternalError(fmt::format("a solver of {} instances for a system of {}",
                                    solver.instances(), layout_.instances));
  if (system.number_bytes() != sizeof(double))
    throw UserError("Newton's method works in float64", "compile the residual for float64");
  const bool f32 = settings.newton.f32_jacobian;
  if (system.value_bytes() != (f32 ? sizeof(float) : sizeof(double)) ||
      solver.value_bytes() != system.value_bytes())
    throw InternalError(fmt::format("Jacobians of {} bytes a number, a solver of {}",
                                    system.value_bytes(), solver.value_bytes()));
  executor_.bind_host(&options_, sizeof options_);
}

program::GpuBindings GpuNewton::bindings() const {
  using Arguments = std::span<const program::Bits>;
  program::GpuBindings result;
  result.modules = {&module_};
  result.work["residual"] = [this](Arguments list, const cuda::Stream& stream) {
    system_.residual(list[0], list[1], stream);
  };
  result.work["jacobian"] = [this](Arguments list, const cuda::Stream& stream) {
    system_.jacobian(list[0], list[1], stream);
  };
  result.work["evaluate"] = [this](Arguments list, const cuda::Stream& stream) {
    system_.evaluate(list[0], list[1], list[2], stream);
  };
  result.work["factor_and_solve"] = [this](Arguments list, const cuda::Stream& stream) {
    solver_.factor(list[0], stream);
    solver_.solve(list[1], list[2], stream);
  };
  result.work["solve"] = [this](Arguments list, const cuda::Stream& stream) {
    solver_.solve(list[0], list[1], stream);
  };
  return result;
}

GpuReport GpuNewton::solve() {
  GpuReport report;
  report.recorded = layout_.recorded;
  options_ = control_of(settings_.newton, layout_);
  const GpuLinearSolver::Status status = solver_.status();
  const program::Bits arguments[] = {
      x_.address(),       values_.address(),  states_.address(),
      history_.address(), control_.address(), reinterpret_cast<program::Bits>(&options_),
      status.record,      status.words,       status.failed_bit};
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  executor_.run("newton", arguments);
  stream_.synchronize("iterating");
  report.time_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  system_.check(stream_);
  GpuControl control;
  control_.download({reinterpret_cast<uint8_t*>(&control), sizeof control}, stream_);
  report.factorizations = control.factorizations;
  report.trials = control.trials;
  report.states.resize(layout_.instances);
  states_.download(bytes_of(report.states), stream_);
  report.history.resize(layout_.history());
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
  const auto buffer = [&](uint64_t words) {
    return cuda::DeviceBuffer(context_, words * sizeof(uint64_t));
  };
  const cuda::DeviceBuffer base = buffer(layout_.vector()), f = buffer(layout_.vector()),
                           direction = buffer(layout_.vector()),
                           partial = buffer(layout_.partial()),
                           flags = buffer(NewtonLayout::kFlags);
  const GpuLinearSolver::Status status = solver_.status();
  const program::Bits arguments[] = {x_.address(),        base.address(),     f.address(),
                                     direction.address(), values_.address(),  partial.address(),
                                     states_.address(),   history_.address(), control_.address(),
                                     flags.address(),     status.record,      status.words,
                                     status.failed_bit};
  const GpuControl start = control_of(always, layout_);
  const auto begin = [&] {
    control_.upload({reinterpret_cast<const uint8_t*>(&start), sizeof start}, stream_);
    executor_.run("start", arguments);
    stream_.synchronize("evaluating the residual at the start"); // `start` was copied
  };
  const auto time = [&](const std::function<void()>& enqueue) {
    begin();
    return cuda::Graph(context_, stream_, enqueue).time(samples).median_us;
  };
  PhaseTimes times;
  if (evaluates_together(system_, settings_.newton)) {
    times.jacobian_us =
        time([&] { system_.evaluate(x_.address(), f.address(), values_.address(), stream_); });
  } else {
    times.residual_us = time([&] { system_.residual(x_.address(), f.address(), stream_); });
    times.jacobian_us = time([&] { system_.jacobian(x_.address(), values_.address(), stream_); });
  }
  times.factor_us = time([&] { solver_.factor(values_.address(), stream_); });
  times.solve_us = time([&] { solver_.solve(f.address(), direction.address(), stream_); });
  // A step of nothing, so that the iterate stays.
  direction.fill(0, stream_);
  times.update_us = time([&] { executor_.run("update", arguments); });
  times.step_us = time([&] { executor_.run("step", arguments); });
  return times;
}

} // namespace sparsertc::newton
