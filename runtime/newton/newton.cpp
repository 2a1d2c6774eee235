#include "runtime/newton/newton.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace sparsertc::newton {
namespace {

/// Adds the time of `work` to `sum`.
template <class Work>
void timed(double& sum, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  work();
  sum += std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// max |f_i|, NaN where one is.
double largest(std::span<const double> f) {
  double result = 0;
  for (const double value : f) {
    const double magnitude = std::abs(value);
    if (!(magnitude <= result))
      result = std::isnan(result) ? result : magnitude;
  }
  return result;
}

} // namespace

lu::FactorStatus SingleLuSolver::factor(std::span<const double> values) {
  values_.assign(values.begin(), values.end());
  return factors_.refactor(values_);
}

void SingleLuSolver::solve(std::span<const double> f, std::span<double> d) {
  f_.assign(f.begin(), f.end());
  d_.resize(d.size());
  factors_.solve(f_, d_);
  std::copy(d_.begin(), d_.end(), d.begin());
}

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
  case Outcome::running:
    return "running";
  case Outcome::converged:
    return "converged";
  case Outcome::diverged:
    return "diverged";
  case Outcome::stalled:
    return "stalled";
  case Outcome::singular:
    return "singular";
  case Outcome::not_finite:
    return "not_finite";
  case Outcome::iteration_limit:
    return "iteration_limit";
  }
  return "?";
}

Report solve(const jacobian::NonlinearSystem& system, uint64_t instance, LinearSolver& solver,
             std::span<double> x, const Options& options) {
  const uint64_t n = system.unknowns();
  std::vector<double> f(n), trial_f(n), trial(n), step(n), values(system.pattern().nnz());
  Report report;
  Times& times = report.times;
  timed(times.residual_us, [&] { system.residual(x, f, instance); });
  double norm = 0;
  timed(times.update_us, [&] { norm = largest(f); });
  report.history.push_back(norm);
  const auto end = [&](Outcome outcome) {
    report.outcome = outcome;
    return report;
  };
  if (!std::isfinite(norm))
    return end(Outcome::not_finite);
  const double first = norm;
  uint32_t age = options.refactor_every; // iterations since the Jacobian was new
  for (;;) {
    if (norm <= options.tolerance)
      return end(Outcome::converged);
    if (norm > options.divergence_ratio * first)
      return end(Outcome::diverged);
    if (report.iterations == options.maximum_iterations)
      return end(norm > first ? Outcome::diverged : Outcome::iteration_limit);
    if (age >= options.refactor_every) {
      timed(times.jacobian_us, [&] { system.jacobian(x, values, instance); });
      if (options.f32_jacobian)
        for (double& value : values)
          value = static_cast<float>(value);
      timed(times.factor_us, [&] { report.factor = solver.factor(values); });
      ++report.factorizations;
      age = 0;
      if (report.factor.outcome != lu::FactorOutcome::ok)
        return end(std::isfinite(largest(values)) ? Outcome::singular : Outcome::not_finite);
    }
    timed(times.solve_us, [&] { solver.solve(f, step); });
    double length = 1;
    double trial_norm = 0;
    uint32_t halvings = 0;
    bool smaller = false;
    for (;; length /= 2, ++halvings) {
      timed(times.update_us, [&] {
        for (uint64_t i = 0; i < n; ++i)
          trial[i] = x[i] - length * step[i];
      });
      timed(times.residual_us, [&] { system.residual(trial, trial_f, instance); });
      timed(times.update_us, [&] { trial_norm = largest(trial_f); });
      smaller = trial_norm < norm;
      if (smaller || !options.damping || halvings == options.maximum_halvings)
        break;
    }
    if (options.damping && !smaller) {
      if (age > 0) {
        age = options.refactor_every;
        continue;
      }
      return end(report.factor.perturbed > 0 ? Outcome::singular : Outcome::stalled);
    }
    if (!std::isfinite(trial_norm))
      return end(Outcome::not_finite);
    std::copy(trial.begin(), trial.end(), x.begin());
    std::swap(f, trial_f);
    norm = trial_norm;
    report.history.push_back(norm);
    report.step_length.push_back(length);
    ++report.iterations;
    ++age;
  }
}

} // namespace sparsertc::newton
