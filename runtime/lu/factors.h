// Numeric LU factorization of one pattern on the CPU, again and again with new values, and solves
// with it. The pivots are the diagonal of the permuted matrix (ir/lu_tables.h); a pivot that is too
// small is replaced and counted. The reference of the GPU's kernels, and what runs where there is
// no GPU.
#pragma once

#include "ir/lu_tables.h"
#include "runtime/host/task_pool.h"
#include "runtime/lu/level_stages.h"
#include "runtime/lu/scalar.h"
#include "runtime/lu/solver.h"

#include <complex>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace sparsertc::lu {

enum class FactorOutcome : uint8_t {
  ok,
  singular,   ///< a column of zeros
  not_finite, ///< NaN or infinite values came in, or numbers overflowed
};

/// What a factorization has to say. Rows and columns are those of A; -1 for none.
struct FactorStatus {
  FactorOutcome outcome = FactorOutcome::ok;
  /// Where the outcome arose.
  int64_t row = -1;
  int64_t column = -1;
  /// Pivots that were replaced because they were too small, and the first of them.
  uint64_t perturbed = 0;
  int64_t perturbed_row = -1;
  int64_t perturbed_column = -1;
  /// The pivot that is least beside the largest entry of its column of B, and that quotient.
  double weakest_pivot = 0;
  int64_t weakest_row = -1;
  int64_t weakest_column = -1;
  /// The largest entry of L'+U over the largest of B, by `magnitude`: how much elimination grew.
  double growth = 0;
};

struct FactorOptions {
  /// A pivot below this times the largest entry of its column of B is replaced by one of that size,
  /// with its sign or phase kept. 0: the square root of the unit roundoff.
  double pivot_threshold = 0;
};

/// In which order a number of threads works through the tables.
struct FactorStages {
  /// `tables` need not outlive this.
  explicit FactorStages(const LuTables& tables, unsigned threads = 1);

  unsigned threads;
  /// How many columns from this one on have the same entries below: 1 for a column alone.
  std::vector<uint32_t> run;
  std::vector<LevelStage> factor;
  /// Forward and backward, of A and of its transpose.
  std::vector<LevelStage> solve[4];
};

/// T is float, double, std::complex<float> or std::complex<double>.
template <class T>
class Factors : public Solver<T> {
public:
  /// `tables` (and `pool`, if given) must outlive this.
  explicit Factors(const LuTables& tables, TaskPool* pool = nullptr);

  /// Of one thread, with its numbers in the caller's memory; all three must outlive this. It
  /// goes on with what was factorized there. `memory` has `numbers` elements, zeros before the
  /// first factorization.
  Factors(const LuTables& tables, const FactorStages& stages, std::span<T> memory);
  static uint64_t numbers(const LuTables& tables) { return tables.nnz() + tables.size; }

  /// Factorizes the matrix with these values: input_nnz numbers in the order of A's entries, of
  /// type T or the wider type, which is then scaled before it is rounded. The same bits whatever
  /// the number of threads. After any outcome but `ok` there is nothing to solve with.
  FactorStatus refactor(std::span<const T> values, const FactorOptions& options = {});
  FactorStatus refactor_rounded(std::span<const Wide<T>> values, const FactorOptions& options = {});

  /// Solves A X = B, or A^T X = B (not conjugated), for `right_sides` columns of n numbers, one
  /// behind the other. `b` and `x` may be the same memory.
  void solve(std::span<const T> b, std::span<T> x, uint64_t right_sides = 1,
             bool transposed = false) const;
  /// The same with numbers of the wider type.
  void solve_rounded(std::span<const Wide<T>> b, std::span<Wide<T>> x, uint64_t right_sides = 1,
                     bool transposed = false) const override;

  /// The entries of L'+U by slot, reciprocals at the pivots.
  std::span<const T> values() const { return values_; }
  const LuTables& tables() const override { return tables_; }

private:
  struct Partial; ///< what one thread's columns have to say

  template <class V>
  FactorStatus factor(std::span<const V> values, const FactorOptions& options);
  template <class V>
  void factor_column(uint32_t j, const V* values, Real<T> threshold, T* work, Partial& partial);
  template <class V>
  void solve_all(std::span<const V> b, std::span<V> x, uint64_t right_sides, bool transposed) const;
  template <unsigned kWidth, class V>
  void solve_block(const V* b, V* x, unsigned used, bool transposed, TaskPool* pool) const;

  const LuTables& tables_;
  TaskPool* pool_;
  std::unique_ptr<const FactorStages> own_stages_; ///< null where they are the caller's
  const FactorStages& stages_;
  std::vector<T> own_memory_; ///< empty where it is the caller's
  std::span<T> values_;
  std::span<T> work_; ///< a dense column of zeros for each thread
  mutable std::mutex solve_mutex_;
  mutable std::vector<T> solve_work_; ///< guarded by solve_mutex_
};

extern template class Factors<float>;
extern template class Factors<double>;
extern template class Factors<std::complex<float>>;
extern template class Factors<std::complex<double>>;

} // namespace sparsertc::lu
