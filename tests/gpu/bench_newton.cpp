// Times of Newton's method for AC power flow on the GPU, beside the same method with KLU and
// derivatives by hand on all cores of the same machine, where libklu.so.1 is beside this program or
// where the loader finds it.
//
//   bench_newton_gpu [--instances N] [--threads N] [--repeat N] [--refactor-every N]
//                    [--damping on|off] [--factors f64|f32] [--width N]
//                    [--compression local|terms] [--lanes N] [--warps N] [--window N] [--ahead N]
//                    [--jacobian] F.cu CASE.m...
//
// F.cu            tools/examples/power_flow/F.cu
// --instances N   a batch of load scenarios, each load times a factor from 0.9 to 1.1; else one
//                 system, a step split by its phases
// --threads N     of the host; else all
// --factors f32   the GPU's Jacobian and its factors in float32; KLU's stay in float64
// --warps N, --window N, --ahead N   of a batch's factorization, as LuBatchOptions has them
// --width N       derivatives at once; else what the inspector predicts to be fastest
// --compression local|terms, --lanes N (entries of a row for each lane): likewise
// --jacobian      only the Jacobian, beside a kernel that only writes as many numbers
//
// GPU: phases are medians of replays of CUDA graphs between two events, whole solutions medians of
// wall-clock times from the start vector on the device to the last flag. Both sides start at the
// file's voltages, iterate until max |F| <= 1e-8, and their solutions are compared.
#include "ir/error.h"
#include "runtime/driver/graph.h"
#include "tests/support/klu_reference.h"
#include "tests/support/named_parameters.h"
#include "tools/assemblers.h"
#include "tools/examples/power_flow/host_system.h"
#include "tools/gpu_device.h"
#include "tools/jacobian_input.h"
#include "tools/newton_lu.h"
#include "tools/newton_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {
namespace {

using power_flow::HostSystem;
using power_flow::Model;
using power_flow::Scenarios;

struct Options {
  uint32_t instances = 1, threads = 0, repeat = 20, refactor_every = 1, width = 0;
  uint32_t share = UINT32_MAX; ///< chosen
  bool damping = true, only_jacobian = false, f32_factors = false;
  LuBatchOptions code;
  std::optional<JacobianCompression> compression;
  std::optional<uint32_t> lanes;
  std::string residual;
  std::vector<std::string> cases;
};

class KluSolver : public newton::LinearSolver {
public:
  explicit KluSolver(test::KluReference& klu) : klu_(klu) {}
  lu::FactorStatus factor(std::span<const double> values) override {
    lu::FactorStatus status;
    if (!klu_.refactor(values))
      status.outcome = lu::FactorOutcome::singular;
    return status;
  }
  void solve(std::span<const double> f, std::span<double> d) override {
    work_.assign(f.begin(), f.end());
    klu_.solve(work_);
    std::copy(work_.begin(), work_.end(), d.begin());
  }

private:
  test::KluReference& klu_;
  std::vector<double> work_;
};

struct KluRun {
  std::vector<newton::Report> reports;
  std::vector<double> x; ///< [entry][instance]
  double time_us = 0;
};

/// All instances with one KLU for each thread; nothing without the library.
KluRun run_klu(const Model& model, const HostSystem& system, const newton::Options& options,
               TaskPool& pool, unsigned repeat) {
  KluRun run;
  const std::vector<double> start = model.start();
  const uint64_t n = start.size(), instances = system.instances();
  std::vector<double> values(system.pattern().nnz());
  system.jacobian(start, values);
  const Matrix first = jacobian_matrix(system.pattern(), values, model.name);
  std::vector<std::unique_ptr<test::KluReference>> klu;
  for (unsigned t = 0; t < pool.threads(); ++t)
    klu.push_back(test::KluReference::make(first));
  run.reports.resize(instances);
  run.x.resize(n * instances);
  std::vector<double> times;
  for (unsigned round = 0; round < repeat; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    // A task is a thread's share.
    pool.run(pool.threads(), [&](uint64_t t) {
      KluSolver solver(*klu[t]);
      std::vector<double> x(n);
      for (uint64_t s = t * instances / pool.threads(); s < (t + 1) * instances / pool.threads();
           ++s) {
        x = start;
        run.reports[s] = newton::solve(system, s, solver, x, options);
        for (uint64_t i = 0; i < n; ++i)
          run.x[i * instances + s] = x[i];
      }
    });
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::sort(times.begin(), times.end());
  run.time_us = times[times.size() / 2];
  return run;
}

std::string phases_text(const newton::Times& times, double over) {
  return fmt::format(
      "Jacobian {:.1f}, factorization {:.1f}, solve {:.1f}, residual {:.1f}, update "
      "{:.1f}, sum {:.1f} us",
      times.jacobian_us / over, times.factor_us / over, times.solve_us / over,
      times.residual_us / over, times.update_us / over,
      (times.jacobian_us + times.factor_us + times.solve_us + times.residual_us + times.update_us) /
          over);
}

std::string outcomes_text(const std::vector<newton::Report>& reports) {
  uint64_t converged = 0, iterations = 0;
  uint32_t most = 0;
  double worst = 0;
  for (const newton::Report& report : reports) {
    iterations += report.iterations;
    most = std::max(most, report.iterations);
    if (report.outcome == newton::Outcome::converged) {
      ++converged;
      worst = std::max(worst, report.history.back());
    }
  }
  return fmt::format("{} of {} converged, {:.2f} iterations (at most {}), max |F| {:.1e}",
                     converged, reports.size(),
                     static_cast<double>(iterations) / static_cast<double>(reports.size()), most,
                     worst);
}

/// The Jacobian alone, and a kernel that only writes as many numbers to the same places.
void bench_jacobian(const cuda::Context& gpu, JacobianRequest request, unsigned repeat) {
  request.with_write_entry = true;
  JacobianFacts facts;
  const auto system = make_gpu_system(gpu, request, facts);
  const uint64_t count = request.instances;
  const cuda::Stream stream(gpu);
  std::vector<double> start;
  for (const double x : request.x0)
    start.insert(start.end(), count, x);
  const cuda::DeviceBuffer x(gpu, start.size() * sizeof(double)),
      values(gpu, facts.pattern.nnz() * count * system->value_bytes());
  x.upload({reinterpret_cast<const uint8_t*>(start.data()), x.bytes()}, stream);
  stream.synchronize();
  const auto time = [&](const std::function<void()>& enqueue) {
    enqueue();                         // loads the code, which a graph would not
    constexpr unsigned kLaunches = 20; // a graph's own start takes as long as the writing
    return cuda::Graph(gpu, stream,
                       [&] {
                         for (unsigned i = 0; i < kLaunches; ++i)
                           enqueue();
                       })
        .time(repeat, kLaunches)
        .median_us;
  };
  const double jacobian = time([&] { system->jacobian(x.address(), values.address(), stream); }),
               writing = time([&] { system->write_values(values.address(), stream); });
  const JacobianCandidate& chosen = facts.schedule.chosen;
  fmt::print("       Jacobian alone {:.1f} us, writing as many numbers {:.1f} us, {:.1f} times; {} "
             "width {} ({}+{}), {} entries a lane, {} tasks, {} by terms, {} kernels\n",
             jacobian, writing, jacobian / writing, to_string(chosen.compression), chosen.width,
             chosen.outer, chosen.inner, chosen.entries_per_lane, chosen.tasks, chosen.term_tasks,
             chosen.kernels);
}

void bench(const std::string& path, const Options& options, const cuda::Context& gpu,
           const Assembler& assembler, TaskPool& pool) {
  const PowerCase grid = read_power_case(path);
  const Model model = make_model(grid, power_flow::Start::file);
  Scenarios scenarios;
  if (options.instances > 1)
    scenarios = make_load_scenarios(grid, model, options.instances, 0.1, 1);
  NewtonRequest request;
  request.options.damping = options.damping;
  request.options.refactor_every = options.refactor_every;
  request.options.f32_jacobian = options.f32_factors;
  request.batch_code = options.code;
  request.repeat = options.repeat;
  request.pool = &pool;
  request.assembler = &assembler;
  request.jacobian.source = read_residual(options.residual);
  request.jacobian.parameters =
      test::named_parameters(parameter_arrays(model, scenarios), options.instances);
  request.jacobian.instances = options.instances;
  request.jacobian.width = options.width;
  request.jacobian.x0 = model.start();
  request.jacobian.compression = options.compression;
  request.jacobian.entries_per_lane = options.lanes;
  if (options.only_jacobian) {
    fmt::print("{}\n", path);
    bench_jacobian(gpu, request.jacobian, options.repeat);
    return;
  }
  const NewtonResult found = run_newton_on_gpu(gpu, request);
  const double count = options.instances;
  fmt::print("{}: {} unknowns, {} entries, {} in L+U, order {}\n", path, model.unknowns(),
             found.facts.pattern.nnz(), found.nnz_lu, found.order);
  fmt::print("  GPU: {:.1f} us, {:.1f} ns an instance; {}; {} factorizations\n", found.time_us,
             1000 * found.time_us / count, outcomes_text(found.reports), found.factorizations);
  fmt::print("       a step: {}{}; as one graph {:.1f} us\n", found.together ? "residual and " : "",
             phases_text(found.phases, 1), *found.step_us);
  request.jacobian.f32_values = options.f32_factors;
  bench_jacobian(gpu, request.jacobian, options.repeat);
  if (options.instances == 1) {
    std::vector<std::string> history;
    for (const double norm : found.reports[0].history)
      history.push_back(fmt::format("{:.3e}", norm));
    fmt::print("       history {}\n", fmt::join(history, " "));
  }
  std::fflush(stdout);
  if (!test::KluReference::available())
    return;
  const HostSystem system(model, options.instances > 1 ? &scenarios : nullptr);
  TaskPool one(1);
  newton::Options exact = request.options;
  exact.f32_jacobian = false;
  const KluRun klu = run_klu(model, system, exact, options.instances > 1 ? pool : one, 3);
  newton::Times sum;
  double steps = 0, apart = 0;
  for (const newton::Report& report : klu.reports) {
    sum.jacobian_us += report.times.jacobian_us;
    sum.factor_us += report.times.factor_us;
    sum.solve_us += report.times.solve_us;
    sum.residual_us += report.times.residual_us;
    sum.update_us += report.times.update_us;
    steps += report.iterations;
  }
  for (size_t i = 0; i < klu.x.size(); ++i)
    apart = std::max(apart, std::abs(klu.x[i] - found.x[i]));
  fmt::print("  KLU, {} threads: {:.1f} us, {:.1f} ns an instance; {}\n",
             options.instances > 1 ? pool.threads() : 1, klu.time_us, 1000 * klu.time_us / count,
             outcomes_text(klu.reports));
  fmt::print("       a step on one core: {}\n", phases_text(sum, std::max(steps, 1.0)));
  fmt::print("  GPU is {:.1f} times as fast; solutions differ by at most {:.1e}\n",
             klu.time_us / found.time_us, apart);
  std::fflush(stdout);
}

int run(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    uint32_t* const number = word == "--instances"        ? &options.instances
                             : word == "--threads"        ? &options.threads
                             : word == "--repeat"         ? &options.repeat
                             : word == "--refactor-every" ? &options.refactor_every
                             : word == "--width"          ? &options.width
                             : word == "--warps"          ? &options.code.warps
                             : word == "--window"         ? &options.code.window
                             : word == "--ahead"          ? &options.code.ahead
                             : word == "--registers"      ? &options.code.registers
                             : word == "--lanes"          ? &options.share
                                                          : nullptr;
    if (number != nullptr && i + 1 < count) {
      const std::string_view digits = words[++i];
      std::from_chars(digits.data(), digits.data() + digits.size(), *number);
    } else if (word == "--damping" && i + 1 < count) {
      options.damping = std::string_view(words[++i]) != "off";
    } else if (word == "--factors" && i + 1 < count) {
      options.f32_factors = std::string_view(words[++i]) == "f32";
    } else if (word == "--compression" && i + 1 < count) {
      options.compression = std::string_view(words[++i]) == "local" ? JacobianCompression::local
                                                                    : JacobianCompression::terms;
    } else if (word == "--jacobian") {
      options.only_jacobian = true;
    } else if (options.residual.empty()) {
      options.residual = word;
    } else {
      options.cases.emplace_back(word);
    }
  }
  if (options.share != UINT32_MAX)
    options.lanes = options.share;
  if (options.cases.empty() || options.instances == 0 || options.refactor_every == 0) {
    fmt::print(stderr, "usage: bench_newton_gpu [--instances N] [--threads N] [--repeat N] "
                       "[--refactor-every N] [--damping on|off] [--factors f64|f32] [--width N] "
                       "F.cu CASE.m...\n");
    return 2;
  }
  const std::unique_ptr<cuda::Context> gpu = require_gpu();
  const std::unique_ptr<Assembler> assembler = require_assembler();
  TaskPool pool(options.threads);
  fmt::print(
      "{}, {}, {} threads, {} instances, damping {}, factors {}, a Jacobian every {} steps\n",
      gpu->properties().name, assembler->identity(), pool.threads(), options.instances,
      options.damping ? "on" : "off", options.f32_factors ? "f32" : "f64", options.refactor_every);
  if (!test::KluReference::available())
    fmt::print("no libklu.so.1: times of the GPU alone\n");
  int failed = 0;
  for (const std::string& path : options.cases)
    try {
      bench(path, options, *gpu, *assembler, pool);
    } catch (const std::exception& error) {
      fmt::print("{}: {}\n", path, error.what());
      failed = 1;
    }
  return failed;
}

} // namespace
} // namespace sparsertc

int main(int count, char** words) {
  try {
    return sparsertc::run(count, words);
  } catch (const sparsertc::NoGpuError& error) {
    fmt::print("SKIPPED: {}\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_newton_gpu: {}\n", error.what());
    return 1;
  }
}
