// Newton's method on the GPU, its kernels and those of sparse LU interpreted, against that on the
// CPU: the same decisions, step by step. Residuals and Jacobians are the host's.
#include "compiler/lower/lu_batch.h"
#include "compiler/lower/lu_dataflow.h"
#include "ir/error.h"
#include "runtime/newton/gpu_newton.h"
#include "tests/support/dense_system.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/lu_batch.h"
#include "tests/support/lu_dataflow.h"
#include "tools/examples/power_flow/host_system.h"
#include "tools/newton_lu.h"
#include "tools/newton_program.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

using newton::Outcome;
using test::DenseSystem;
using Vector = std::vector<double>;

/// How the program is executed.
enum class Mode { one_by_one, sequences, loops };

/// How residual and Jacobian are evaluated.
enum class Evaluation { apart, together, together_f32 };

constexpr const char* kHosted = "hosted_system"; ///< a kernel that is a host's system

void run_hosted(const cuda::FakeCudaDriver::Launch& launch);

/// A device on which kernels are interpreted, in graphs, too.
struct Scene {
  cuda::FakeCudaDriver fake;
  std::unique_ptr<cuda::Context> context;
  std::unique_ptr<cuda::Module> hosted;

  Scene() {
    interpret_launches(fake);
    fake.kernels = {kLuInputKernel,
                    kLuFactorKernel,
                    kLuSolveInputKernel,
                    kLuSolveKernel,
                    kLuBatchFactorKernel,
                    kLuBatchSolveKernel,
                    "sparsertc_newton_norm",
                    "sparsertc_newton_norm_f32",
                    "sparsertc_newton_start",
                    "sparsertc_newton_step",
                    "sparsertc_newton_judge",
                    "sparsertc_newton_decide",
                    "sparsertc_newton_classify"};
    fake.attributes[cuda::DeviceAttribute::multiprocessor_count] = 1;
    interpret_graphs(fake);
    fake.argument_words = [inner = fake.argument_words](const auto& launch) {
      return launch.kernel == kHosted ? 4 : inner(launch);
    };
    fake.on_launch = [inner = fake.on_launch](const auto& launch) {
      launch.kernel == kHosted ? run_hosted(launch) : inner(launch);
    };
    context = std::make_unique<cuda::Context>(std::make_shared<const cuda::Driver>(fake.table()));
    const std::string entry = std::string("// .entry ") + kHosted + "\n";
    hosted = std::make_unique<cuda::Module>(
        *context, std::span(reinterpret_cast<const uint8_t*>(entry.c_str()), entry.size() + 1));
  }
};

/// The PTX of the kernels, or nothing (said aloud) without NVRTC.
const std::optional<std::string>& kernels() {
  static const std::optional<std::string> ptx = []() -> std::optional<std::string> {
    try {
      return newton::compile_gpu_kernels("sm_90");
    } catch (const RuntimeError& error) {
      WARN("SKIPPED: " << error.what());
      return std::nullopt;
    }
  }();
  if (!ptx)
    WARN("SKIPPED: no NVRTC");
  return ptx;
}

/// A host's system in device memory, which the fake driver's is.
class HostedSystem : public jacobian::GpuSystem {
public:
  HostedSystem(const jacobian::NonlinearSystem& system, const Scene& scene, Evaluation evaluation)
      : system_(system), scene_(scene), evaluation_(evaluation),
        kernel_(scene.hosted->kernel(kHosted)) {}
  uint64_t instances() const override { return system_.instances(); }
  uint32_t number_bytes() const override { return sizeof(double); }
  uint32_t value_bytes() const override { return f32() ? 4 : 8; }
  bool evaluates_together() const override { return evaluation_ != Evaluation::apart; }
  const JacobianPattern& pattern() const override { return system_.pattern(); }
  void residual(cuda::DeviceAddress x, cuda::DeviceAddress f,
                const cuda::Stream& stream) const override {
    launch(x, f, 0, stream);
  }
  void jacobian(cuda::DeviceAddress x, cuda::DeviceAddress values,
                const cuda::Stream& stream) const override {
    launch(x, values, 1, stream);
  }
  void product(cuda::DeviceAddress, cuda::DeviceAddress, cuda::DeviceAddress,
               const cuda::Stream&) const override {
    FAIL("Newton's method multiplies with no Jacobian");
  }
  void check(const cuda::Stream&) const override {}

  /// What a launch stands for.
  void run(uint64_t x, uint64_t result, bool derivatives) const {
    Vector own(pattern().columns), found(derivatives ? pattern().nnz() : pattern().rows);
    for (uint64_t s = 0; s < instances(); ++s) {
      for (size_t i = 0; i < own.size(); ++i)
        own[i] = reinterpret_cast<const double*>(x)[i * instances() + s];
      if (derivatives)
        system_.jacobian(own, found, s);
      else
        system_.residual(own, found, s);
      for (size_t i = 0; i < found.size(); ++i)
        if (derivatives && f32())
          reinterpret_cast<float*>(result)[i * instances() + s] = static_cast<float>(found[i]);
        else
          reinterpret_cast<double*>(result)[i * instances() + s] = found[i];
    }
  }

private:
  bool f32() const { return evaluation_ == Evaluation::together_f32; }
  void launch(uint64_t x, uint64_t result, uint64_t derivatives, const cuda::Stream& stream) const {
    uint64_t words[] = {reinterpret_cast<uint64_t>(this), x, result, derivatives};
    void* pointers[] = {&words[0], &words[1], &words[2], &words[3]};
    cuda::check(scene_.context->api().cuLaunchKernel(kernel_.handle, 1, 1, 1, 1, 1, 1, 0,
                                                     stream.handle(), pointers, nullptr),
                "cuLaunchKernel", "evaluating a host's system");
  }
  const jacobian::NonlinearSystem& system_;
  const Scene& scene_;
  Evaluation evaluation_;
  cuda::Kernel kernel_;
};

void run_hosted(const cuda::FakeCudaDriver::Launch& launch) {
  if (launch.captured)
    return;
  const auto word = [&](int i) { return *static_cast<const uint64_t*>(launch.parameters[i]); };
  reinterpret_cast<const HostedSystem*>(word(0))->run(word(1), word(2), word(3) != 0);
}

/// Solves all instances on the "GPU" and on the CPU, and compares. Returns the CPU's reports.
std::vector<newton::Report> check_newton(const jacobian::NonlinearSystem& system,
                                         const std::vector<Vector>& starts, newton::Options options,
                                         Mode mode, Evaluation evaluation = Evaluation::apart) {
  CAPTURE(static_cast<int>(mode), static_cast<int>(evaluation));
  const bool f32 = evaluation == Evaluation::together_f32;
  options.f32_jacobian = f32;
  Scene scene;
  const uint64_t n = system.unknowns(), instances = system.instances();
  REQUIRE(starts.size() == instances);
  Vector values(system.pattern().nnz());
  system.jacobian(starts[0], values, 0);
  for (double& value : values)
    value = std::isfinite(value) ? value : 1;
  LuAnalysisOptions analysis;
  analysis.matching = Toggle::off;
  const NewtonLu lu = prepare_newton_lu(jacobian_matrix(system.pattern(), values, "J"), analysis);

  const HostedSystem hosted(system, scene, evaluation);
  std::optional<test::LuOnDevice<double>> plan;
  std::optional<test::LuBatchOnDevice<double>> batch;
  std::optional<test::LuBatchOnDevice<float, double>> f32_batch;
  std::unique_ptr<newton::GpuLinearSolver> solver;
  const cuda::Stream stream(*scene.context);
  if (instances == 1) {
    plan.emplace(*scene.context, lu.tables, 32);
    solver = std::make_unique<newton::GpuPlanSolver>(plan->plan(), plan->workspace());
  } else if (f32) {
    f32_batch.emplace(*scene.context, lu.tables, instances);
    solver = std::make_unique<newton::GpuBatchSolver>(f32_batch->batch());
  } else {
    batch.emplace(*scene.context, lu.tables, instances);
    solver = std::make_unique<newton::GpuBatchSolver>(batch->batch());
  }
  newton::GpuNewton::Settings settings;
  settings.newton = options;
  settings.graphs = mode != Mode::one_by_one;
  settings.conditional_nodes = mode == Mode::loops;
  const ir::Module program = newton_program(
      {.layout = newton::newton_layout(n, system.pattern().nnz(), instances, options),
       .always_new = newton::always_new_jacobian(options),
       .together = newton::evaluates_together(hosted, options),
       .f32_jacobian = f32});
  newton::GpuNewton gpu(*scene.context,
                        {reinterpret_cast<const uint8_t*>(kernels()->data()), kernels()->size()},
                        program, hosted, *solver, settings, stream);
  auto* const x = reinterpret_cast<double*>(gpu.iterate().address());
  for (uint64_t s = 0; s < instances; ++s)
    for (uint64_t i = 0; i < n; ++i)
      x[i * instances + s] = starts[s][i];
  const newton::GpuReport found = gpu.solve();
  // With loops on the device the host reads 16 bytes, once; else after each trial, and before the
  // first where they say whether the Jacobian is new.
  uint64_t to_host = 0, times = 0;
  for (const program::CopyCount& copy : gpu.executor().copies())
    if (copy.to == ir::Space::host) {
      to_host += copy.bytes;
      times += copy.times;
    }
  CHECK(to_host == 16 * times);
  const uint64_t trials = std::max<uint64_t>(found.trials - 1, 1); // one is made in any case
  const uint64_t before = options.refactor_every > 1 ? 1 : 0;
  CHECK(times == (mode == Mode::loops ? 1 : trials + before));

  std::vector<newton::Report> reports;
  lu::Factors<double> factors(lu.tables);
  lu::Factors<float> f32_factors(lu.tables);
  newton::LuSolver f64_cpu(factors);
  newton::SingleLuSolver f32_cpu(f32_factors);
  newton::LinearSolver& cpu = f32 ? static_cast<newton::LinearSolver&>(f32_cpu) : f64_cpu;
  for (uint64_t s = 0; s < instances; ++s) {
    CAPTURE(s);
    Vector expected = starts[s];
    const newton::Report report = newton::solve(system, s, cpu, expected, options);
    const newton::Report own = found.of(s);
    CHECK(newton::to_string(own.outcome) == newton::to_string(report.outcome));
    CHECK(own.iterations == report.iterations);
    CHECK(own.step_length == report.step_length);
    REQUIRE(own.history.size() == report.history.size());
    const auto close = [f32](double a, double b) {
      return a == b || (std::isnan(a) && std::isnan(b)) ||
             std::abs(a - b) <= (f32 ? 1e-5 : 1e-9) * std::abs(b) + (f32 ? 1e-6 : 1e-12);
    };
    for (size_t i = 0; i < own.history.size(); ++i)
      CHECK(close(own.history[i], report.history[i]));
    for (uint64_t i = 0; i < n; ++i)
      CHECK(close(x[i * instances + s], expected[i]));
    if (instances == 1)
      CHECK(own.factorizations == report.factorizations);
    reports.push_back(report);
  }
  return reports;
}

/// In every way there is, of one instance; of many with loops on the device.
std::vector<newton::Report> check_newton(const jacobian::NonlinearSystem& system,
                                         const std::vector<Vector>& starts,
                                         const newton::Options& options) {
  if (system.instances() == 1)
    for (const Mode mode : {Mode::one_by_one, Mode::sequences})
      check_newton(system, starts, options, mode);
  if (options.refactor_every <= 1) {
    check_newton(system, starts, options, Mode::one_by_one, Evaluation::together);
    check_newton(system, starts, options, Mode::loops, Evaluation::together);
    if (system.instances() > 1)
      check_newton(system, starts, options, Mode::loops, Evaluation::together_f32);
  }
  return check_newton(system, starts, options, Mode::loops);
}

newton::Options undamped() {
  newton::Options options;
  options.damping = false;
  return options;
}

/// Instance s has roots where the parabola is below 0.
DenseSystem circle(uint64_t instances) {
  return DenseSystem(
      2,
      [](const Vector& x, uint64_t s) {
        return Vector{x[0] * x[0] + x[1] * x[1] - 5 - static_cast<double>(s), x[0] * x[1] - 2};
      },
      [](const Vector& x, uint64_t) {
        return Vector{2 * x[0], 2 * x[1], x[1], x[0]};
      },
      instances);
}

const DenseSystem kArcTangent(
    1, [](const Vector& x, uint64_t) { return Vector{std::atan(x[0])}; },
    [](const Vector& x, uint64_t) { return Vector{1 / (1 + x[0] * x[0])}; });

} // namespace

TEST_CASE("newton: one instance ends as on the CPU, whatever its end", "[newton_gpu]") {
  if (!kernels())
    return;
  const auto one = [](const DenseSystem& system, const Vector& x, const newton::Options& options) {
    return check_newton(system, {x}, options).front();
  };
  CHECK(one(circle(1), {3, 1.5}, {}).outcome == Outcome::converged);
  CHECK(one(circle(1), {2, 1}, {}).iterations == 0);
  CHECK(one(kArcTangent, {3}, {}).step_length.front() < 1);
  CHECK(one(kArcTangent, {3}, undamped()).outcome != Outcome::converged);
  newton::Options few;
  few.maximum_iterations = 2;
  CHECK(one(circle(1), {3, 1.5}, few).outcome == Outcome::iteration_limit);

  const DenseSystem none(
      1, [](const Vector& x, uint64_t) { return Vector{x[0] * x[0] + 1}; },
      [](const Vector& x, uint64_t) { return Vector{2 * x[0]}; });
  CHECK(one(none, {3}, {}).outcome == Outcome::stalled);
  const DenseSystem root(
      1, [](const Vector& x, uint64_t) { return Vector{std::cbrt(x[0])}; },
      [](const Vector& x, uint64_t) { return Vector{std::pow(std::abs(x[0]), -2.0 / 3) / 3}; });
  newton::Options many = undamped();
  many.maximum_iterations = 100;
  CHECK(one(root, {1}, many).outcome == Outcome::diverged);
  const DenseSystem square(
      2,
      [](const Vector& x, uint64_t) {
        return Vector{x[0] * x[0] - 1, x[1] * x[1] - 1};
      },
      [](const Vector& x, uint64_t) {
        return Vector{2 * x[0], 0, 0, 2 * x[1]};
      });
  CHECK(one(square, {1.5, 0}, {}).outcome == Outcome::singular);
  const DenseSystem dependent(
      2,
      [](const Vector& x, uint64_t) {
        return Vector{x[0] + x[1] - 1, x[0] + x[1] - 3};
      },
      [](const Vector&, uint64_t) {
        return Vector{1, 1, 1, 1};
      });
  CHECK(one(dependent, {0, 0}, {}).outcome == Outcome::singular);
  const DenseSystem logarithm(
      1, [](const Vector& x, uint64_t) { return Vector{std::log(x[0])}; },
      [](const Vector& x, uint64_t) { return Vector{1 / x[0]}; });
  CHECK(one(logarithm, {-1}, {}).outcome == Outcome::not_finite);
  CHECK(one(logarithm, {20}, undamped()).outcome == Outcome::not_finite);
  CHECK(one(logarithm, {20}, {}).outcome == Outcome::converged);
  const DenseSystem no_derivative(
      1, [](const Vector& x, uint64_t) { return Vector{x[0] - 1}; },
      [](const Vector&, uint64_t) { return Vector{std::numeric_limits<double>::quiet_NaN()}; });
  CHECK(one(no_derivative, {0}, {}).outcome == Outcome::not_finite);
}

TEST_CASE("newton: old Jacobians on the device", "[newton_gpu]") {
  if (!kernels())
    return;
  newton::Options chord;
  chord.refactor_every = 4;
  CHECK(check_newton(circle(1), {{2.2, 1.1}}, chord).front().factorizations == 2);
  const DenseSystem cubic(
      1, [](const Vector& x, uint64_t) { return Vector{x[0] * x[0] * x[0] - 2 * x[0] + 2}; },
      [](const Vector& x, uint64_t) { return Vector{3 * x[0] * x[0] - 2}; });
  chord.refactor_every = 1000; // the old one leads uphill
  CHECK(check_newton(cubic, {{0}}, chord).front().factorizations > 1);
}

TEST_CASE("newton: instances of a batch go their own ways", "[newton_gpu]") {
  if (!kernels())
    return;
  // Roots, none, a singular start, a start that is a root, NaN.
  const DenseSystem mixed(
      2,
      [](const Vector& x, uint64_t s) {
        const double add = s % 3 == 1 ? 1 : -1;
        const double nan = s == 5 ? std::numeric_limits<double>::quiet_NaN() : 0;
        return Vector{x[0] * x[0] + add, x[1] * x[1] * x[1] - 8 + nan};
      },
      [](const Vector& x, uint64_t) {
        return Vector{2 * x[0], 0, 0, 3 * x[1] * x[1]};
      },
      37);
  std::vector<Vector> starts;
  for (int s = 0; s < 37; ++s)
    starts.push_back({0.5 + 0.25 * s, 1 + 0.5 * s});
  starts[3] = {1, 0};
  starts[6] = {1, 2};
  for (const bool damping : {true, false}) {
    newton::Options options;
    options.damping = damping;
    const auto reports = check_newton(mixed, starts, options);
    CHECK(reports[0].outcome == Outcome::converged);
    CHECK(reports[1].outcome != Outcome::converged);
    CHECK(reports[3].outcome == Outcome::singular);
    CHECK(reports[5].outcome == Outcome::not_finite);
    CHECK(reports[6].iterations == 0);
  }
}

TEST_CASE("newton: a grid's load scenarios and outages in one batch", "[newton_gpu]") {
  if (!kernels())
    return;
  const PowerCase grid = read_power_case(std::string(SPARSERTC_TEST_DATA) + "/grid7.m");
  const auto model = power_flow::make_model(grid, power_flow::Start::flat);
  const auto loads = power_flow::make_load_scenarios(grid, model, 33, 0.5, 7);
  const std::vector<Vector> starts(33, model.start());
  for (const newton::Report& report :
       check_newton(power_flow::HostSystem(model, &loads), starts, {}))
    CHECK(report.outcome == Outcome::converged);
  const auto outages = power_flow::make_outages(model, 0);
  const std::vector<Vector> same(outages.instances, model.start());
  check_newton(power_flow::HostSystem(model, &outages), same, {});
  check_newton(power_flow::HostSystem(model), {model.start()}, {});
}

} // namespace sparsertc
