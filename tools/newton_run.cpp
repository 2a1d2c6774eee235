#include "tools/newton_run.h"

#include "ir/error.h"
#include "tools/gpu_device.h"
#include "tools/lu_batch.h"
#include "tools/lu_gpu.h"
#include "tools/newton_lu.h"
#include "tools/newton_program.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

namespace sparsertc {
namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

void say(const NewtonRequest& request, std::string_view step) {
  if (request.jacobian.before_step)
    request.jacobian.before_step(step);
}

NewtonLu prepare(const NewtonRequest& request, const JacobianPattern& pattern,
                 std::vector<double> values, NewtonResult& result) {
  say(request, "ordering the Jacobian");
  // What is not finite has no place in a choice of pivots; the iteration will report it.
  for (double& value : values)
    if (!std::isfinite(value))
      value = 1;
  LuAnalysisOptions options;
  options.pool = request.pool;
  // In a batch all instances advance together: what counts is the work of one, not the length of a
  // chain.
  if (request.jacobian.instances > 1)
    options.order = FillOrder::amd;
  NewtonLu lu = prepare_newton_lu(
      jacobian_matrix(pattern, std::move(values), request.jacobian.source.name), options);
  result.order = lu.analysis.order.winner().name;
  result.nnz_lu = lu.tables.nnz();
  return lu;
}

std::span<const uint8_t> bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(double)};
}
std::span<uint8_t> bytes_of(std::vector<double>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(double)};
}

/// CPU: solves every instance once, several at a time. T: of the factors.
template <class T, class Solver>
void solve_all(const NewtonRequest& request, const jacobian::HostSystem& system,
               const LuTables& tables, NewtonResult& result) {
  const uint64_t instances = request.jacobian.instances;
  const auto solve_one = [&](uint64_t instance, lu::Factors<T>& factors, std::vector<double>& x) {
    x = request.jacobian.x0;
    Solver solver(factors);
    // The parameters tell instances apart; where none varies there is one system.
    const uint64_t own = instance < system.instances() ? instance : 0;
    result.reports[instance] = newton::solve(system, own, solver, x, request.options);
    for (uint64_t i = 0; i < x.size(); ++i)
      result.x[i * instances + instance] = x[i];
  };
  // One instance has all threads in its factorization; of a batch each has one.
  if (instances == 1) {
    lu::Factors<T> factors(tables, request.pool);
    std::vector<double> x;
    solve_one(0, factors, x);
    return;
  }
  constexpr uint64_t kChunk = 16;
  request.pool->run((instances + kChunk - 1) / kChunk, [&](uint64_t chunk) {
    lu::Factors<T> factors(tables);
    std::vector<double> x;
    for (uint64_t s = chunk * kChunk; s < std::min(instances, (chunk + 1) * kChunk); ++s)
      solve_one(s, factors, x);
  });
}

/// The first instance's values at x, on the GPU. T: of the values.
template <class T>
std::vector<double> first_jacobian(const cuda::Context& gpu,
                                   const jacobian::CompiledGpuSystem& system, cuda::DeviceAddress x,
                                   const cuda::Stream& stream) {
  const uint64_t nnz = system.pattern().nnz(), instances = system.instances();
  std::vector<T> all(nnz * instances);
  const cuda::DeviceBuffer found(gpu, all.size() * sizeof(T));
  system.jacobian(x, found.address(), stream);
  found.download({reinterpret_cast<uint8_t*>(all.data()), all.size() * sizeof(T)}, stream);
  system.check(stream);
  std::vector<double> values(nnz);
  for (uint64_t k = 0; k < nnz; ++k)
    values[k] = double{all[k * instances]};
  return values;
}

/// The factors on the GPU: of one matrix by the plan, of a batch by straight-line code.
struct GpuFactors {
  std::unique_ptr<lu::GpuPlan> plan;
  std::unique_ptr<lu::GpuWorkspace> workspace;
  std::unique_ptr<lu::GpuBatch> batch;
  std::unique_ptr<newton::GpuLinearSolver> solver;
};

GpuFactors make_factors(const cuda::Context& gpu, const NewtonRequest& request,
                        const LuTables& tables, const cuda::Stream& stream, NewtonResult& result) {
  GpuFactors factors;
  const uint64_t instances = request.jacobian.instances;
  if (instances > 1) {
    say(request, "assembling the factorization");
    if (request.assembler == nullptr)
      throw InternalError("a batch of Newton's method without an assembler");
    LuBatchOptions options = request.batch_code;
    options.type = request.options.f32_jacobian ? ir::Scalar::f32 : ir::Scalar::f64;
    options.wide_vectors = request.options.f32_jacobian;
    const LuBatchCode code =
        make_lu_batch_code(gpu, *request.assembler, tables, options, *request.pool);
    result.assembler = code.assembler;
    factors.batch = load_lu_batch(gpu, code, tables, instances);
    factors.solver = std::make_unique<newton::GpuBatchSolver>(*factors.batch);
    return factors;
  }
  say(request, "preparing the factorization");
  LuGpuOptions options;
  options.transposed = false;
  factors.plan = make_gpu_plan(gpu, tables, options, request.pool);
  factors.workspace = std::make_unique<lu::GpuWorkspace>(gpu, *factors.plan, 1, stream);
  factors.solver = std::make_unique<newton::GpuPlanSolver>(*factors.plan, *factors.workspace);
  return factors;
}

} // namespace

NewtonResult run_newton_on_cpu(const NewtonRequest& request) {
  NewtonResult result;
  result.device = "cpu";
  // One instance has all threads in its evaluation, too.
  JacobianRequest evaluation = request.jacobian;
  if (evaluation.instances == 1)
    evaluation.pool = request.pool;
  const std::unique_ptr<jacobian::HostSystem> system = make_host_system(evaluation, result.facts);
  const std::vector<double>& start = request.jacobian.x0;
  const uint64_t n = start.size(), instances = request.jacobian.instances;
  std::vector<double> values(system->pattern().nnz());
  system->jacobian(start, values);
  const NewtonLu lu = prepare(request, system->pattern(), std::move(values), result);

  say(request, "iterating");
  std::vector<double> times;
  result.reports.resize(instances);
  result.x.resize(n * instances);
  for (unsigned round = 0; round < std::max(request.repeat, 1u); ++round) {
    const Clock::time_point begin = Clock::now();
    if (request.options.f32_jacobian)
      solve_all<float, newton::SingleLuSolver>(request, *system, lu.tables, result);
    else
      solve_all<double, newton::LuSolver>(request, *system, lu.tables, result);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  result.time_us = median(times);
  double steps = 0;
  for (const newton::Report& report : result.reports) {
    result.factorizations += report.factorizations;
    steps += report.iterations;
    result.phases.residual_us += report.times.residual_us;
    result.phases.jacobian_us += report.times.jacobian_us;
    result.phases.factor_us += report.times.factor_us;
    result.phases.solve_us += report.times.solve_us;
    result.phases.update_us += report.times.update_us;
  }
  for (double* phase :
       {&result.phases.residual_us, &result.phases.jacobian_us, &result.phases.factor_us,
        &result.phases.solve_us, &result.phases.update_us})
    *phase /= std::max(steps, 1.0);
  return result;
}

NewtonResult run_newton_on_gpu(const cuda::Context& gpu, const NewtonRequest& request) {
  NewtonResult result;
  result.device = "gpu";
  const bool f32_jacobian = request.options.f32_jacobian;
  if (f32_jacobian && request.jacobian.instances == 1)
    throw UserError("on a GPU, factors in float32 are for batches",
                    "leave out --factors=f32, or solve several --instances");
  JacobianRequest evaluation = request.jacobian;
  evaluation.f32_values = f32_jacobian;
  const std::unique_ptr<jacobian::CompiledGpuSystem> system =
      make_gpu_system(gpu, evaluation, result.facts);
  const uint64_t n = request.jacobian.x0.size(), instances = request.jacobian.instances;
  const uint64_t nnz = system->pattern().nnz();
  const cuda::Stream stream(gpu);
  std::vector<double> start(n * instances);
  for (uint64_t i = 0; i < n; ++i)
    std::fill_n(start.begin() + static_cast<std::ptrdiff_t>(i * instances), instances,
                request.jacobian.x0[i]);

  // The pivots are chosen for the first instance.
  std::vector<double> values;
  {
    const cuda::DeviceBuffer x(gpu, start.size() * sizeof(double));
    x.upload(bytes_of(std::as_const(start)), stream);
    values = f32_jacobian ? first_jacobian<float>(gpu, *system, x.address(), stream)
                          : first_jacobian<double>(gpu, *system, x.address(), stream);
  }
  const NewtonLu lu = prepare(request, system->pattern(), std::move(values), result);
  const GpuFactors factors = make_factors(gpu, request, lu.tables, stream, result);

  say(request, "compiling the kernels of Newton's method");
  const std::string kernels = newton::compile_gpu_kernels(target_of(gpu));
  newton::GpuNewton::Settings settings;
  settings.newton = request.options;
  settings.graphs = request.graphs;
  settings.conditional_nodes = request.conditional_nodes;
  const ir::Module program =
      newton_program({.layout = newton::newton_layout(n, nnz, instances, request.options),
                      .always_new = newton::always_new_jacobian(request.options),
                      .together = newton::evaluates_together(*system, request.options),
                      .f32_jacobian = f32_jacobian});
  result.together = newton::evaluates_together(*system, request.options);
  newton::GpuNewton method(gpu, {reinterpret_cast<const uint8_t*>(kernels.data()), kernels.size()},
                           program, *system, *factors.solver, settings, stream);
  say(request, "iterating");
  std::vector<double> times;
  newton::GpuReport report;
  // The first run loads code and records graphs.
  for (unsigned round = 0; round <= request.repeat; ++round) {
    method.iterate().upload(bytes_of(std::as_const(start)), stream);
    report = method.solve();
    if (round > 0 || request.repeat == 0)
      times.push_back(report.time_us);
  }
  result.time_us = median(times);
  result.factorizations = report.factorizations;
  result.x.resize(n * instances);
  method.iterate().download(bytes_of(result.x), stream);
  for (uint64_t s = 0; s < instances; ++s)
    result.reports.push_back(report.of(s));
  if (request.repeat > 0) {
    const newton::GpuNewton::PhaseTimes phases = method.time_phases(std::max(request.repeat, 5u));
    result.phases = phases;
    result.step_us = phases.step_us;
  }
  return result;
}

} // namespace sparsertc
