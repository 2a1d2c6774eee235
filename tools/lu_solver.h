// Solving a sequence of systems of one pattern: analysed once, factorized again and again, and
// analysed anew where the pivots no longer do.
#pragma once

#include "compiler/inspect/lu_analysis.h"
#include "compiler/inspect/lu_schedule.h"
#include "tools/lu_backend.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace sparsertc {

enum class OnStale : uint8_t { repivot, error, warn };

struct LuSolverOptions {
  LuAnalysisOptions analysis;
  LuPrecision precision = LuPrecision::f64;
  OnStale on_stale = OnStale::repivot;
  bool transposed = false;
  /// The largest relative residual that counts as solved; 0: default_tolerance.
  double tolerance = 0;
  unsigned maximum_steps = 20;
  lu::FactorOptions factor;
  /// Timed factorizations and substitutions of each matrix; the median counts.
  unsigned repeat = 1;
  TaskPool* pool = nullptr;
  /// Who finds the pattern of the factors and their levels (tools/lu_gpu_analysis.h).
  LuFinders finders;
  /// Makes the backend, told whether numbers are complex (tools/lu_gpu.h). The CPU takes them where
  /// this is empty or gives null.
  std::function<std::unique_ptr<LuBackend>(const LuTables&, const Pattern&, LuPrecision,
                                           bool complex, TaskPool*)>
      make_gpu_backend;
  /// Called before long steps with what begins.
  std::function<void(const std::string&)> before_step;
};

/// 1e-12; 1e-5 where the solution is in single precision.
double default_tolerance(LuPrecision precision);

/// What one matrix of the sequence was like.
struct LuSystemReport {
  std::string input;
  lu::FactorStatus factor;
  double condition = 0;
  /// The worst of all right-hand sides.
  unsigned refinement_steps = 0;
  double backward_error = 0;
  double residual = 0;
  double refactor_us = 0;
  /// One substitution for all right-hand sides; and solving with refinement.
  double substitution_us = 0;
  double solve_us = 0;
  /// Why the pivots were stale; empty where they were not.
  std::string stale;
  /// Whether rows were matched and columns ordered anew for this matrix.
  bool repivoted = false;
};

class LuSolver {
public:
  /// Analyses `first`; everything is prepared for matrices of its pattern. UserError with the word
  /// `singular` where it is structurally singular.
  LuSolver(const Matrix& first, const LuSolverOptions& options);
  ~LuSolver();

  /// Factorizes `a` and solves for the columns of `b`. UserError where the pattern is another one
  /// (with the first difference), where the matrix is singular (with the word `singular` and a row
  /// and column), where the residual stays above the tolerance (`unconverged`), and where pivots
  /// are stale and the options say so (`STALE`).
  LuVectors solve(const Matrix& a, const LuVectors& b, LuSystemReport& report);

  const LuAnalysis& analysis() const;
  const LuTables& tables() const;
  std::string device() const;
  std::string strategy() const;
  std::string strategy_reason() const;
  /// Symbolic factorization, levels and tables.
  double tables_us() const;

private:
  struct Prepared;

  void prepare(const Matrix& a, const LuAnalysisOptions& options);
  void factorize(const Matrix& a, LuSystemReport& report);
  void check_regular(const Matrix& a, LuSystemReport& report);
  /// Of two remedies the one that has not been taken yet, or nothing.
  std::string way_out(const char* wider, const char* matching) const;
  LuSolution solve_loaded(const LuVectors& b, LuSystemReport& report);
  LuSolution attempt(const Matrix& a, const LuVectors& b, LuSystemReport& report);

  LuSolverOptions options_;
  Pattern pattern_;
  bool complex_ = false;
  std::unique_ptr<Prepared> prepared_;
};

} // namespace sparsertc
