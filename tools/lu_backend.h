// One prepared factorization on one device, whatever its number type: what `solve` talks to.
#pragma once

#include "compiler/input/matrix.h"
#include "ir/lu_tables.h"
#include "runtime/host/task_pool.h"
#include "runtime/lu/factors.h"
#include "runtime/lu/refine.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc {

enum class LuPrecision : uint8_t {
  f64,
  f32,   ///< factors and solution in single precision
  mixed, ///< factors in single precision, solution refined to double
};

/// Columns of n numbers, one behind the other.
struct LuVectors {
  uint64_t count = 1;
  std::vector<double> real;
  /// Empty where all numbers are real, else as many as `real`.
  std::vector<double> imaginary;
};

/// What solving gave: the solutions, and for each the outcome of its refinement.
struct LuSolution {
  LuVectors x;
  std::vector<lu::RefineResult> results;
};

/// Calls come in this order: load, refactor, then the others, again and again.
class LuBackend {
public:
  virtual ~LuBackend() = default;

  /// Where it runs: "cpu" or "gpu".
  virtual std::string device() const = 0;
  /// Takes over the values of A, which has the pattern of the tables.
  virtual void load(const Matrix& a) = 0;
  /// Factorizes the loaded values, `repeat` times (at least once). `time_us`: the median.
  virtual lu::FactorStatus refactor(const lu::FactorOptions& options, unsigned repeat,
                                    double& time_us) = 0;
  /// The median time of `repeat` substitutions for all right-hand sides, without refinement.
  virtual double substitute_us(const LuVectors& b, bool transposed, unsigned repeat) = 0;
  /// Solves and refines each right-hand side.
  virtual LuSolution solve(const LuVectors& b, bool transposed,
                           const lu::RefineOptions& options) = 0;
  /// See runtime/lu/condition.h.
  virtual double condition() = 0;
  virtual bool is_numerically_singular(const lu::FactorStatus& status, double condition) = 0;
};

/// On the CPU. `tables`, `pattern` (of A) and `pool` must outlive it.
std::unique_ptr<LuBackend> make_cpu_backend(const LuTables& tables, const Pattern& pattern,
                                            LuPrecision precision, bool complex, TaskPool* pool);

/// A x, or A^T x, in double precision, for the columns of x.
LuVectors multiply(const Matrix& a, const LuVectors& x, bool transposed);

} // namespace sparsertc
