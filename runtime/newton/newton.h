// Newton's method for F(x) = 0, damped: full steps towards the solution of the linear system,
// halved until they make the residual smaller. README.md says the rules by which it ends.
#pragma once

#include "runtime/jacobian/system.h"
#include "runtime/lu/factors.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sparsertc::newton {

enum class Outcome : uint8_t {
  running = 0, ///< while the iteration goes on
  converged,
  diverged,        ///< the residual has grown beyond all measure
  stalled,         ///< no step that is not tiny makes the residual smaller
  singular,        ///< the Jacobian cannot be factorized, or what is left of it leads nowhere
  not_finite,      ///< the residual or the Jacobian has NaN or infinity
  iteration_limit, ///< there was progress, but not enough
};

/// "converged", "diverged", "stalled", "singular", "not_finite", "iteration_limit".
std::string_view to_string(Outcome outcome);

struct Options {
  /// Converged where max |F_i| is at most this.
  double tolerance = 1e-8;
  uint32_t maximum_iterations = 30;
  /// Whether steps that do not make the residual's norm smaller are halved.
  bool damping = true;
  /// A step is halved at most so often.
  uint32_t maximum_halvings = 6;
  /// Diverged where the norm is more than this times the first one.
  double divergence_ratio = 1e6;
  /// A new Jacobian every so many iterations, and where an old one leads nowhere; at least 1.
  uint32_t refactor_every = 1;
  /// The Jacobian's values and its factors are rounded to float32; residuals, x and the test stay
  /// in float64 (Kelley, Newton's method in mixed precision, SIAM Review 64, 2022). Steps are as
  /// exact as float32 is: a few more may be needed, and a Jacobian that is too badly conditioned
  /// for it ends as stalled or singular.
  bool f32_jacobian = false;
};

/// Solves with the Jacobian: whatever factorization there is.
class LinearSolver {
public:
  virtual ~LinearSolver() = default;
  /// Takes over the values of J, in the order of its pattern; with Options::f32_jacobian they are
  /// numbers of float32.
  virtual lu::FactorStatus factor(std::span<const double> values) = 0;
  /// Solves J d = f.
  virtual void solve(std::span<const double> f, std::span<double> d) = 0;
};

/// With the factors of runtime/lu, which must outlive it.
class LuSolver : public LinearSolver {
public:
  explicit LuSolver(lu::Factors<double>& factors) : factors_(factors) {}
  lu::FactorStatus factor(std::span<const double> values) override {
    return factors_.refactor(values);
  }
  void solve(std::span<const double> f, std::span<double> d) override { factors_.solve(f, d); }

private:
  lu::Factors<double>& factors_;
};

/// With factors in float32, which must outlive it.
class SingleLuSolver : public LinearSolver {
public:
  explicit SingleLuSolver(lu::Factors<float>& factors) : factors_(factors) {}
  lu::FactorStatus factor(std::span<const double> values) override;
  void solve(std::span<const double> f, std::span<double> d) override;

private:
  lu::Factors<float>& factors_;
  std::vector<float> values_, f_, d_;
};

/// Wall-clock time of the phases, all iterations together.
struct Times {
  double residual_us = 0;
  double jacobian_us = 0;
  double factor_us = 0;
  double solve_us = 0;
  double update_us = 0;
};

struct Report {
  Outcome outcome = Outcome::running;
  uint32_t iterations = 0;
  /// max |F_i| at the start and after every iteration, and how long its step was (1: full).
  std::vector<double> history;
  std::vector<double> step_length;
  uint64_t factorizations = 0;
  /// The last factorization: replaced pivots, where it failed.
  lu::FactorStatus factor;
  Times times;
};

/// Iterates from `x` (n numbers), which then holds the last accepted iterate. Throws what the
/// system and the solver throw; that there is no solution is in the report.
Report solve(const jacobian::NonlinearSystem& system, uint64_t instance, LinearSolver& solver,
             std::span<double> x, const Options& options);

} // namespace sparsertc::newton
