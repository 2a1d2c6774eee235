#include "runtime/lu/factors.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sparsertc::lu {

template <class T>
struct Factors<T>::Partial {
  Real<T> largest = 0;       ///< of L'+U
  Real<T> largest_input = 0; ///< of B
  T nonfinite = 0;           ///< NaN where anything stored was not finite
  /// Columns of B, for the least one wins whatever the threads.
  uint32_t zero_column = UINT32_MAX;
  uint32_t nonfinite_column = UINT32_MAX;
  uint64_t perturbed = 0;
  uint32_t perturbed_column = UINT32_MAX;
  double weakest = std::numeric_limits<double>::infinity();
  uint32_t weakest_column = UINT32_MAX;
};

FactorStages::FactorStages(const LuTables& tables, unsigned threads_given)
    : threads(threads_given) {
  // Columns k, k+1, ... whose entries below are the same are subtracted in one sweep.
  const uint32_t n = tables.size;
  run.assign(n, 1);
  for (uint32_t k = n; k-- > 0;) {
    const uint64_t below = tables.diagonal[k] + 1, end = tables.column_offset[k + 1];
    if (below == end || tables.row_index[below] != k + 1)
      continue;
    const uint64_t next = tables.diagonal[k + 1] + 1, next_end = tables.column_offset[k + 2];
    if (end - below == next_end - next + 1 &&
        std::equal(tables.row_index.begin() + static_cast<ptrdiff_t>(below) + 1,
                   tables.row_index.begin() + static_cast<ptrdiff_t>(end),
                   tables.row_index.begin() + static_cast<ptrdiff_t>(next)))
      run[k] = run[k + 1] + 1;
  }
  factor = plan_stages(tables.factor_levels, Direction::ascending, threads, [&](uint32_t j) {
    uint64_t work = tables.column_offset[j + 1] - tables.column_offset[j];
    for (uint64_t slot = tables.column_offset[j]; slot < tables.diagonal[j]; ++slot) {
      const uint32_t k = tables.row_index[slot];
      work += tables.column_offset[k + 1] - tables.diagonal[k];
    }
    return work;
  });
  const auto row_work = [&](uint32_t i) { return tables.row_offset[i + 1] - tables.row_offset[i]; };
  const auto column_work = [&](uint32_t j) {
    return tables.column_offset[j + 1] - tables.column_offset[j];
  };
  solve[0] = plan_stages(tables.forward_levels, Direction::ascending, threads, row_work);
  solve[1] = plan_stages(tables.backward_levels, Direction::descending, threads, row_work);
  solve[2] =
      plan_stages(tables.transposed_forward_levels, Direction::ascending, threads, column_work);
  solve[3] =
      plan_stages(tables.transposed_backward_levels, Direction::descending, threads, column_work);
}

template <class T>
Factors<T>::Factors(const LuTables& tables, TaskPool* pool)
    : tables_(tables), pool_(pool),
      own_stages_(std::make_unique<FactorStages>(tables, pool == nullptr ? 1 : pool->threads())),
      stages_(*own_stages_),
      own_memory_(tables.nnz() + uint64_t{tables.size} * stages_.threads, T(0)),
      values_(own_memory_.data(), tables.nnz()),
      work_(own_memory_.data() + tables.nnz(), own_memory_.size() - tables.nnz()) {}

template <class T>
Factors<T>::Factors(const LuTables& tables, const FactorStages& stages, std::span<T> memory)
    : tables_(tables), pool_(nullptr), stages_(stages), values_(memory.first(tables.nnz())),
      work_(memory.subspan(tables.nnz(), tables.size)) {
  if (stages.threads != 1)
    throw InternalError("stages of several threads for factors in the caller's memory");
}

// Left-looking (Gilbert and Peierls, SIAM J. Sci. Stat. Comput. 9, 1988, without the search):
// column j of B is spread out in `work`; each entry u(k,j) is final when the k before it have been
// subtracted, and then takes column k of L' along. Sums run over ascending k, as in the gather.
template <class T>
template <class V>
void Factors<T>::factor_column(uint32_t j, const V* values, Real<T> threshold, T* work,
                               Partial& partial) {
  const uint32_t* const row = tables_.row_index.data();
  const uint64_t* const diagonal = tables_.diagonal.data();
  const uint64_t* const column = tables_.column_offset.data();
  T* const v = values_.data();

  Real<T> largest_input = 0;
  T check = 0;
  const bool scaled = !tables_.input_scale.empty();
  for (uint64_t p = tables_.input_offset[j]; p < tables_.input_offset[j + 1]; ++p) {
    const V given = values[tables_.input_source[p]];
    const T value = scaled ? to_scalar<T>(to_scalar<Wide<T>>(given) * tables_.input_scale[p])
                           : to_scalar<T>(given);
    work[tables_.input_row[p]] = value;
    largest_input = std::max(largest_input, magnitude(value));
    check += value - value;
  }

  Real<T> largest = 0;
  const uint64_t pivot = diagonal[j];
  uint64_t slot = column[j];
  const auto take = [&](uint32_t k) { // u(k,j) is final: stores it, gives it times d(k)
    const T u = work[k];
    work[k] = 0;
    v[slot++] = u;
    largest = std::max(largest, magnitude(u));
    check += u - u;
    return times(u, v[diagonal[k]]);
  };
  while (slot < pivot) {
    const uint32_t k = row[slot];
    const uint64_t count = column[k + 1] - diagonal[k] - 1;
    const uint32_t run = static_cast<uint32_t>(std::min<uint64_t>(stages_.run[k], pivot - slot));
    const T* const l0 = v + diagonal[k] + 1;
    if (run >= 4) {
      const T* const l1 = v + diagonal[k + 1] + 1;
      const T* const l2 = v + diagonal[k + 2] + 1;
      const T* const l3 = v + diagonal[k + 3] + 1;
      const T m0 = take(k);
      work[k + 1] = minus_product(work[k + 1], l0[0], m0);
      const T m1 = take(k + 1);
      work[k + 2] = minus_product(minus_product(work[k + 2], l0[1], m0), l1[0], m1);
      const T m2 = take(k + 2);
      work[k + 3] =
          minus_product(minus_product(minus_product(work[k + 3], l0[2], m0), l1[1], m1), l2[0], m2);
      const T m3 = take(k + 3);
      const uint32_t* const rows = row + diagonal[k + 3] + 1;
      for (uint64_t q = 0; q + 3 < count; ++q) {
        T x = minus_product(work[rows[q]], l0[q + 3], m0);
        x = minus_product(x, l1[q + 2], m1);
        x = minus_product(x, l2[q + 1], m2);
        work[rows[q]] = minus_product(x, l3[q], m3);
      }
    } else if (run >= 2) {
      const T* const l1 = v + diagonal[k + 1] + 1;
      const T m0 = take(k);
      work[k + 1] = minus_product(work[k + 1], l0[0], m0);
      const T m1 = take(k + 1);
      const uint32_t* const rows = row + diagonal[k + 1] + 1;
      for (uint64_t q = 0; q + 1 < count; ++q)
        work[rows[q]] = minus_product(minus_product(work[rows[q]], l0[q + 1], m0), l1[q], m1);
    } else {
      const T m0 = take(k);
      const uint32_t* const rows = row + diagonal[k] + 1;
      for (uint64_t q = 0; q < count; ++q)
        work[rows[q]] = minus_product(work[rows[q]], l0[q], m0);
    }
  }

  T p = work[j];
  work[j] = 0;
  largest = std::max(largest, magnitude(p));
  check += p - p;
  if (largest_input == 0)
    partial.zero_column = std::min(partial.zero_column, j);
  const double quotient = static_cast<double>(magnitude(p)) / static_cast<double>(largest_input);
  if (quotient < partial.weakest || (quotient == partial.weakest && j < partial.weakest_column)) {
    partial.weakest = quotient;
    partial.weakest_column = j;
  }
  if (magnitude(p) < threshold * largest_input) {
    p = phase(p) * (threshold * largest_input);
    ++partial.perturbed;
    partial.perturbed_column = std::min(partial.perturbed_column, j);
  }
  v[pivot] = reciprocal(p);
  check += v[pivot] - v[pivot];
  for (uint64_t q = pivot + 1; q < column[j + 1]; ++q) {
    const T l = work[row[q]];
    work[row[q]] = 0;
    v[q] = l;
    largest = std::max(largest, magnitude(l));
    check += l - l;
  }
  if (check != check)
    partial.nonfinite_column = std::min(partial.nonfinite_column, j);
  partial.largest = std::max(partial.largest, largest);
  partial.largest_input = std::max(partial.largest_input, largest_input);
}

template <class T>
template <class V>
FactorStatus Factors<T>::factor(std::span<const V> values, const FactorOptions& options) {
  if (values.size() != tables_.input_nnz)
    throw UserError(
        fmt::format("{} values for a matrix of {} entries", values.size(), tables_.input_nnz),
        "give one value for each entry of the pattern that was analysed");
  const Real<T> threshold = options.pivot_threshold > 0
                                ? static_cast<Real<T>>(options.pivot_threshold)
                                : std::sqrt(unit_roundoff<T>());
  std::vector<Partial> partials(stages_.threads);
  run_stages(stages_.factor, pool_, [&](uint32_t j, uint64_t thread) {
    factor_column(j, values.data(), threshold, work_.data() + thread * tables_.size,
                  partials[thread]);
  });

  Partial all;
  for (const Partial& partial : partials) {
    all.largest = std::max(all.largest, partial.largest);
    all.largest_input = std::max(all.largest_input, partial.largest_input);
    all.zero_column = std::min(all.zero_column, partial.zero_column);
    all.nonfinite_column = std::min(all.nonfinite_column, partial.nonfinite_column);
    all.perturbed += partial.perturbed;
    all.perturbed_column = std::min(all.perturbed_column, partial.perturbed_column);
    if (partial.weakest < all.weakest ||
        (partial.weakest == all.weakest && partial.weakest_column < all.weakest_column)) {
      all.weakest = partial.weakest;
      all.weakest_column = partial.weakest_column;
    }
  }
  FactorStatus status;
  const auto set_place = [&](uint32_t j, int64_t& row, int64_t& column) {
    if (j == UINT32_MAX)
      return;
    row = tables_.row_order[j];
    column = tables_.column_order[j];
  };
  if (all.zero_column != UINT32_MAX) {
    status.outcome = FactorOutcome::singular;
    set_place(all.zero_column, status.row, status.column);
  } else if (all.nonfinite_column != UINT32_MAX) {
    status.outcome = FactorOutcome::not_finite;
    set_place(all.nonfinite_column, status.row, status.column);
  }
  status.perturbed = all.perturbed;
  set_place(all.perturbed_column, status.perturbed_row, status.perturbed_column);
  status.weakest_pivot = all.weakest_column == UINT32_MAX ? 0 : all.weakest;
  set_place(all.weakest_column, status.weakest_row, status.weakest_column);
  if (all.largest_input > 0)
    status.growth = static_cast<double>(all.largest) / static_cast<double>(all.largest_input);
  return status;
}

template <class T>
FactorStatus Factors<T>::refactor(std::span<const T> values, const FactorOptions& options) {
  return factor(values, options);
}

template <class T>
FactorStatus Factors<T>::refactor_rounded(std::span<const Wide<T>> values,
                                          const FactorOptions& options) {
  return factor(values, options);
}

template class Factors<float>;
template class Factors<double>;
template class Factors<std::complex<float>>;
template class Factors<std::complex<double>>;

} // namespace sparsertc::lu
