#include "tools/lu_solver.h"

#include "ir/error.h"
#include "runtime/lu/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace sparsertc {
namespace {

/// Growth that leaves no digit of double precision.
constexpr double kUnstableGrowth = 1e15;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void check_same_pattern(const Pattern& first, const Matrix& a) {
  const Place place{a.name, 0, 0, {}};
  if (a.pattern.rows != first.rows || a.pattern.columns != first.columns)
    throw UserError(place,
                    fmt::format("{} x {}, but the first matrix of the sequence is {} x {}",
                                a.pattern.rows, a.pattern.columns, first.rows, first.columns));
  for (uint32_t i = 0; i < first.rows; ++i) {
    const auto here = a.pattern.row(i), there = first.row(i);
    const auto [in_a, in_first] =
        std::mismatch(here.begin(), here.end(), there.begin(), there.end());
    if (in_a == here.end() && in_first == there.end())
      continue;
    const bool extra = in_first == there.end() || (in_a != here.end() && *in_a < *in_first);
    throw UserError(place,
                    fmt::format("row {}, column {} (counted from 0) is {}, unlike in the first "
                                "matrix of the sequence",
                                i, extra ? *in_a : *in_first, extra ? "an entry" : "no entry"),
                    "all matrices of a sequence need the same pattern; zeros may be entries");
  }
}

} // namespace

double default_tolerance(LuPrecision precision) {
  return precision == LuPrecision::f32 ? 1e-5 : 1e-12;
}

/// What depends on the values that the pivots were chosen for.
struct LuSolver::Prepared {
  LuAnalysis analysis;
  LuTables tables;
  double tables_us = 0;
  std::unique_ptr<LuBackend> backend;
  /// Of the matrix that the pivots were chosen for, once it is factorized.
  bool fresh = true;
  lu::FactorStatus chosen;
};

LuSolver::LuSolver(const Matrix& first, const LuSolverOptions& options)
    : options_(options), pattern_(first.pattern), complex_(!first.imaginary.empty()) {
  if (options_.tolerance == 0)
    options_.tolerance = default_tolerance(options_.precision);
  prepare(first, options_.analysis);
}

LuSolver::~LuSolver() = default;

const LuAnalysis& LuSolver::analysis() const {
  return prepared_->analysis;
}
const LuTables& LuSolver::tables() const {
  return prepared_->tables;
}
std::string LuSolver::device() const {
  return prepared_->backend->device();
}
std::string LuSolver::strategy() const {
  return prepared_->backend->strategy();
}
std::string LuSolver::strategy_reason() const {
  return prepared_->backend->strategy_reason();
}
double LuSolver::tables_us() const {
  return prepared_->tables_us;
}

void LuSolver::prepare(const Matrix& a, const LuAnalysisOptions& options) {
  auto prepared = std::make_unique<Prepared>();
  prepared->analysis = analyse_lu(a, options);
  if (options_.before_step)
    options_.before_step("symbolic factorization");
  const LuAnalysis& analysis = prepared->analysis;
  const double start = now_us();
  prepared->tables = make_lu_tables(
      pattern_, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale},
      options_.pool, options_.finders);
  prepared->tables_us = now_us() - start;
  const LuTables& tables = prepared->tables;
  if (options_.make_gpu_backend)
    prepared->backend =
        options_.make_gpu_backend(tables, pattern_, options_.precision, complex_, options_.pool);
  if (prepared->backend == nullptr)
    prepared->backend =
        make_cpu_backend(tables, pattern_, options_.precision, complex_, options_.pool);
  prepared_ = std::move(prepared);
}

void LuSolver::factorize(const Matrix& a, LuSystemReport& report) {
  if (options_.before_step)
    options_.before_step("factorization");
  LuBackend& backend = *prepared_->backend;
  backend.load(a);
  report.factor = backend.refactor(options_.factor, options_.repeat, report.refactor_us);
}

std::string LuSolver::way_out(const char* wider, const char* matching) const {
  if (options_.precision != LuPrecision::f64)
    return wider;
  return analysis().matched ? "" : matching;
}

/// Throws where the factors say that the matrix is singular, or are none.
void LuSolver::check_regular(const Matrix& a, LuSystemReport& report) {
  const Place place{a.name, 0, 0, {}};
  const lu::FactorStatus& status = report.factor;
  if (status.outcome == lu::FactorOutcome::singular)
    throw UserError(place,
                    fmt::format("singular: column {} (counted from 0) is zero", status.column));
  if (status.outcome == lu::FactorOutcome::not_finite)
    throw UserError(
        place,
        fmt::format("numbers overflowed in row {}, column {} (counted from 0)", status.row,
                    status.column),
        way_out("--precision=f64 holds larger numbers", "--matching=on scales rows and columns"));
  if (options_.before_step)
    options_.before_step("condition");
  report.condition = prepared_->backend->condition();
  if (!prepared_->backend->is_numerically_singular(status, report.condition))
    return;
  const bool narrow = options_.precision != LuPrecision::f64;
  // Where numbers grew without bound, a better choice of pivots might have done.
  const bool unstable = !(status.growth < kUnstableGrowth) || !std::isfinite(report.condition);
  throw UserError(
      place,
      fmt::format("singular{}{}: the pivot in row {}, column {} (counted from 0) is {:.2g} of the "
                  "largest entry of its column, {} pivots were replaced, growth {:.2g}, condition "
                  "{:.2g}",
                  narrow ? " in single precision" : "",
                  unstable ? ", or not to be factorized with these pivots" : "", status.weakest_row,
                  status.weakest_column, status.weakest_pivot, status.perturbed, status.growth,
                  report.condition),
      narrow || unstable
          ? way_out("--precision=f64 sees further", "--matching=on chooses pivots by the values")
          : "");
}

LuSolution LuSolver::solve_loaded(const LuVectors& b, LuSystemReport& report) {
  if (options_.before_step)
    options_.before_step("substitution");
  LuBackend& backend = *prepared_->backend;
  report.substitution_us = backend.substitute_us(b, options_.transposed, options_.repeat);
  lu::RefineOptions refine;
  refine.maximum_steps = options_.maximum_steps;
  // Factors of a matrix nearby, and single precision, converge more slowly.
  refine.slowest = 0.9;
  const double start = now_us();
  LuSolution solution = backend.solve(b, options_.transposed, refine);
  report.solve_us = now_us() - start;
  report.residual = 0;
  report.backward_error = 0;
  report.refinement_steps = 0;
  for (const lu::RefineResult& result : solution.results) {
    if (!(result.residual <= report.residual))
      report.residual = result.residual;
    if (!(result.backward_error <= report.backward_error))
      report.backward_error = result.backward_error;
    report.refinement_steps = std::max(report.refinement_steps, result.steps);
  }
  return solution;
}

/// Factorizes and solves with the pivots there are.
LuSolution LuSolver::attempt(const Matrix& a, const LuVectors& b, LuSystemReport& report) {
  check_regular(a, report);
  LuSolution solution = solve_loaded(b, report);
  if (!(report.residual <= options_.tolerance))
    throw UserError(
        Place{a.name, 0, 0, {}},
        fmt::format("unconverged: the relative residual stays at {:.2g} after {} steps "
                    "of refinement, the tolerance is {:.2g}; {} pivots were replaced, "
                    "growth {:.2g}, condition {:.2g}",
                    report.residual, report.refinement_steps, options_.tolerance,
                    report.factor.perturbed, report.factor.growth, report.condition),
        way_out("--precision=f64 has more digits", "--matching=on chooses pivots by the values"));
  return solution;
}

LuVectors LuSolver::solve(const Matrix& a, const LuVectors& b, LuSystemReport& report) {
  check_same_pattern(pattern_, a);
  if (!a.imaginary.empty() && !complex_)
    throw UserError(Place{a.name, 0, 0, {}},
                    "complex values, but the first matrix of the sequence is real");
  if (!b.imaginary.empty() && !complex_)
    throw UserError(Place{a.name, 0, 0, {}}, "the right-hand side is complex, the matrix is real",
                    "give real and imaginary part as two right-hand sides");
  report.input = a.name;
  factorize(a, report);
  const bool fresh = prepared_->fresh;
  if (fresh) {
    prepared_->chosen = report.factor;
    prepared_->fresh = false;
  } else {
    report.stale = lu::find_staleness(prepared_->chosen, report.factor);
    if (!report.stale.empty() && options_.on_stale == OnStale::error)
      throw UserError(Place{a.name, 0, 0, {}}, "STALE: " + report.stale,
                      "--on-stale=repivot chooses new pivots");
  }

  // With the pivots there are, unless they are known to be bad and may be replaced.
  const bool may_repivot = !fresh && options_.on_stale == OnStale::repivot;
  if (report.stale.empty() || !may_repivot) {
    // A strong diagonal that was taken as it is can still be a bad choice.
    const bool can_match = fresh && options_.analysis.matching == Toggle::automatic &&
                           !prepared_->analysis.matched && !options_.analysis.rows;
    if (!may_repivot && !can_match)
      return attempt(a, b, report).x;
    try {
      return attempt(a, b, report).x;
    } catch (const UserError& error) {
      if (!fresh)
        report.stale = std::string("with the pivots of before: ") + error.what();
    }
  }
  LuAnalysisOptions analysis = options_.analysis;
  if (fresh)
    analysis.matching = Toggle::on;
  prepare(a, analysis);
  report.repivoted = true;
  factorize(a, report);
  prepared_->chosen = report.factor;
  prepared_->fresh = false;
  return attempt(a, b, report).x;
}

} // namespace sparsertc
