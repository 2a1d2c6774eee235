// One prepared factorization on one device, whatever its number type: what `solve` talks to.
#pragma once

#include "compiler/input/matrix.h"
#include "ir/lu_tables.h"
#include "runtime/host/task_pool.h"
#include "runtime/lu/factors.h"
#include "runtime/lu/refine.h"

#include <complex>
#include <cstdint>
#include <memory>
#include <span>
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
  /// How it factorizes: one of kLuStrategyWords on a GPU, "left-looking" on the CPU.
  virtual std::string strategy() const = 0;
  /// Why; empty on the CPU.
  virtual std::string strategy_reason() const { return {}; }
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

/// Real and imaginary parts (those empty: zeros) as numbers of type V; the imaginary ones are left
/// out where V is real.
template <class V>
std::vector<V> packed(const std::vector<double>& real, const std::vector<double>& imaginary) {
  std::vector<V> result(real.size());
  for (size_t i = 0; i < real.size(); ++i)
    if constexpr (lu::ScalarTraits<V>::kComplex)
      result[i] = {real[i], imaginary.empty() ? 0.0 : imaginary[i]};
    else
      result[i] = real[i];
  return result;
}

template <class V>
LuVectors unpacked(std::span<const V> numbers, uint64_t count) {
  LuVectors result;
  result.count = count;
  for (const V number : numbers) {
    result.real.push_back(std::real(number));
    if constexpr (lu::ScalarTraits<V>::kComplex)
      result.imaginary.push_back(std::imag(number));
  }
  return result;
}

/// Calls f<T, X>() with the types of factors and solution.
template <class F>
auto with_number_types(LuPrecision precision, bool complex, const F& f) {
  using C64 = std::complex<float>;
  using C128 = std::complex<double>;
  switch (precision) {
  case LuPrecision::f32:
    return complex ? f.template operator()<C64, C64>() : f.template operator()<float, float>();
  case LuPrecision::mixed:
    return complex ? f.template operator()<C64, C128>() : f.template operator()<float, double>();
  case LuPrecision::f64:
    break;
  }
  return complex ? f.template operator()<C128, C128>() : f.template operator()<double, double>();
}

/// A x, or A^T x, in double precision, for the columns of x.
LuVectors multiply(const Matrix& a, const LuVectors& x, bool transposed);

} // namespace sparsertc
