// Forward and backward substitution. Sums run in one order in all forms, so that the bits do not
// depend on which form is taken.
#include "ir/error.h"
#include "runtime/lu/factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace sparsertc::lu {
namespace {

/// Right-hand sides that are solved for together.
constexpr unsigned kBlock = 8;

/// L'+U by rows, or its transpose: by columns.
struct Side {
  const uint64_t* offset;
  const uint64_t* diagonal; ///< the place of the diagonal entry in each row
  const uint32_t* index;
  const uint64_t* slot; ///< null where places are slots
};

/// y(i), in place of b(i), and z(i).
template <unsigned kWidth, class T>
void forward_row(const Side& side, const T* v, T pivot, uint32_t i, T* y, T* z) {
  T sum[kWidth];
  for (unsigned r = 0; r < kWidth; ++r)
    sum[r] = y[uint64_t{i} * kWidth + r];
  for (uint64_t p = side.offset[i]; p < side.diagonal[i]; ++p) {
    const T entry = v[side.slot == nullptr ? p : side.slot[p]];
    const T* const other = z + uint64_t{side.index[p]} * kWidth;
    for (unsigned r = 0; r < kWidth; ++r)
      sum[r] = minus_product(sum[r], entry, other[r]);
  }
  for (unsigned r = 0; r < kWidth; ++r) {
    y[uint64_t{i} * kWidth + r] = sum[r];
    z[uint64_t{i} * kWidth + r] = times(pivot, sum[r]);
  }
}

/// x(i), in place of y(i).
template <unsigned kWidth, class T>
void backward_row(const Side& side, const T* v, T pivot, uint32_t i, T* x) {
  T sum[kWidth];
  for (unsigned r = 0; r < kWidth; ++r)
    sum[r] = x[uint64_t{i} * kWidth + r];
  for (uint64_t p = side.offset[i + 1]; --p > side.diagonal[i];) {
    const T entry = v[side.slot == nullptr ? p : side.slot[p]];
    const T* const other = x + uint64_t{side.index[p]} * kWidth;
    for (unsigned r = 0; r < kWidth; ++r)
      sum[r] = minus_product(sum[r], entry, other[r]);
  }
  for (unsigned r = 0; r < kWidth; ++r)
    x[uint64_t{i} * kWidth + r] = times(pivot, sum[r]);
}

/// Both substitutions by columns, one after the other: what one thread does fastest. `run` says how
/// many columns from each on have the same entries below; pairs of them are subtracted in one
/// sweep.
template <unsigned kWidth, class T>
void substitute_by_columns(const LuTables& tables, const uint32_t* run, const T* v, T* w) {
  const uint32_t* const row = tables.row_index.data();
  const uint64_t* const diagonal = tables.diagonal.data();
  const uint64_t* const column = tables.column_offset.data();
  const auto subtract = [&](uint64_t begin, uint64_t end, const T* factor) {
    for (uint64_t p = begin; p < end; ++p) {
      T* const other = w + uint64_t{row[p]} * kWidth;
      const T entry = v[p];
      for (unsigned r = 0; r < kWidth; ++r)
        other[r] = minus_product(other[r], entry, factor[r]);
    }
  };
  const auto divide = [&](uint32_t k, T* z) {
    for (unsigned r = 0; r < kWidth; ++r)
      z[r] = times(v[diagonal[k]], w[uint64_t{k} * kWidth + r]);
  };
  T z[kWidth], next[kWidth];
  for (uint32_t k = 0; k < tables.size; ++k) {
    divide(k, z);
    const uint64_t first = diagonal[k] + 1;
    if (run[k] < 2) {
      subtract(first, column[k + 1], z);
      continue;
    }
    subtract(first, first + 1, z);
    divide(k + 1, next);
    const T* const l0 = v + first + 1;
    const T* const l1 = v + diagonal[k + 1] + 1;
    const uint32_t* const rows = row + diagonal[k + 1] + 1;
    const uint64_t count = column[k + 2] - diagonal[k + 1] - 1;
    for (uint64_t q = 0; q < count; ++q) {
      T* const other = w + uint64_t{rows[q]} * kWidth;
      for (unsigned r = 0; r < kWidth; ++r)
        other[r] = minus_product(minus_product(other[r], l0[q], z[r]), l1[q], next[r]);
    }
    ++k;
  }
  for (uint32_t k = tables.size; k-- > 0;) {
    divide(k, z);
    std::copy(z, z + kWidth, w + uint64_t{k} * kWidth);
    subtract(column[k], diagonal[k], z);
  }
}

/// Whether threads have enough to do together.
bool worth_sharing(const std::vector<LevelStage>& forward,
                   const std::vector<LevelStage>& backward) {
  uint64_t shared = 0, all = 0;
  for (const auto* stages : {&forward, &backward})
    for (const LevelStage& stage : *stages) {
      all += stage.members.size();
      if (stage.parallel())
        shared += stage.members.size();
    }
  return 2 * shared > all;
}

} // namespace

template <class T>
template <unsigned kWidth, class V>
void Factors<T>::solve_block(const V* b, V* x, unsigned used, bool transposed,
                             TaskPool* pool) const {
  const LuTables& t = tables_;
  const uint64_t n = t.size;
  const std::vector<uint32_t>& order_in = transposed ? t.column_order : t.row_order;
  const std::vector<uint32_t>& order_out = transposed ? t.row_order : t.column_order;
  const std::vector<double>& scale_in = transposed ? t.column_scale : t.row_scale;
  const std::vector<double>& scale_out = transposed ? t.row_scale : t.column_scale;
  const auto scaled = [](V value, const std::vector<double>& scale, uint32_t index) {
    return scale.empty() ? Wide<T>(to_scalar<Wide<T>>(value))
                         : to_scalar<Wide<T>>(value) * scale[index];
  };
  // Numbers of the wider type go into the range of T by a power of two for each right-hand side.
  constexpr bool kWider = !std::is_same_v<T, V>;
  double down[kWidth], up[kWidth];
  for (unsigned r = 0; r < kWidth; ++r) {
    down[r] = up[r] = 1;
    if (!kWider || r >= used)
      continue;
    double largest = 0;
    for (uint64_t i = 0; i < n; ++i)
      largest = std::max(largest, magnitude(scaled(b[r * n + i], scale_in, uint32_t(i))));
    int exponent = 0;
    if (largest > 0 && std::isfinite(largest))
      std::frexp(largest, &exponent);
    down[r] = std::ldexp(1.0, std::clamp(-exponent, -1000, 1000));
    up[r] = 1 / down[r];
  }

  // Memory that was used before is there at once; whoever comes while it is in use takes new.
  std::unique_lock<std::mutex> lock(solve_mutex_, std::try_to_lock);
  std::vector<T> own;
  std::vector<T>& w = lock.owns_lock() ? solve_work_ : own;
  w.resize(n * kWidth);
  for (uint64_t i = 0; i < n; ++i) {
    const uint32_t from = order_in[i];
    for (unsigned r = 0; r < kWidth; ++r)
      w[i * kWidth + r] =
          r < used ? to_scalar<T>(scaled(b[r * n + from], scale_in, from) * down[r]) : T(0);
  }

  const T* const v = values_.data();
  const std::vector<LevelStage>& forward = stages_.solve[transposed ? 2 : 0];
  const std::vector<LevelStage>& backward = stages_.solve[transposed ? 3 : 1];
  if (!transposed && (pool == nullptr || !worth_sharing(forward, backward))) {
    substitute_by_columns<kWidth>(t, stages_.run.data(), v, w.data());
  } else {
    const Side side =
        transposed ? Side{t.column_offset.data(), t.diagonal.data(), t.row_index.data(), nullptr}
                   : Side{t.row_offset.data(), t.row_diagonal.data(), t.column_index.data(),
                          t.row_slot.data()};
    std::vector<T> z(n * kWidth);
    run_stages(forward, pool, [&](uint32_t i, uint64_t) {
      forward_row<kWidth>(side, v, v[t.diagonal[i]], i, w.data(), z.data());
    });
    run_stages(backward, pool, [&](uint32_t i, uint64_t) {
      backward_row<kWidth>(side, v, v[t.diagonal[i]], i, w.data());
    });
  }

  for (uint64_t j = 0; j < n; ++j) {
    const uint32_t to = order_out[j];
    for (unsigned r = 0; r < used; ++r)
      x[r * n + to] = to_scalar<V>(scaled(to_scalar<V>(w[j * kWidth + r]), scale_out, to) * up[r]);
  }
}

template <class T>
template <class V>
void Factors<T>::solve_all(std::span<const V> b, std::span<V> x, uint64_t right_sides,
                           bool transposed) const {
  const uint64_t n = tables_.size;
  if (b.size() != n * right_sides || x.size() != n * right_sides)
    throw UserError(
        fmt::format("{} right-hand sides for a matrix of {} rows have {} numbers, not {} "
                    "and {}",
                    right_sides, n, n * right_sides, b.size(), x.size()));
  if (right_sides == 1) {
    solve_block<1>(b.data(), x.data(), 1, transposed, pool_);
    return;
  }
  // Blocks of right-hand sides are independent: one thread each.
  const uint64_t blocks = (right_sides + kBlock - 1) / kBlock;
  const auto do_block = [&](uint64_t block) {
    const uint64_t first = block * kBlock;
    const unsigned used = static_cast<unsigned>(std::min<uint64_t>(kBlock, right_sides - first));
    solve_block<kBlock>(b.data() + first * n, x.data() + first * n, used, transposed, nullptr);
  };
  if (pool_ == nullptr)
    for (uint64_t block = 0; block < blocks; ++block)
      do_block(block);
  else
    pool_->run(blocks, do_block);
}

template <class T>
void Factors<T>::solve(std::span<const T> b, std::span<T> x, uint64_t right_sides,
                       bool transposed) const {
  solve_all(b, x, right_sides, transposed);
}

template <class T>
void Factors<T>::solve_rounded(std::span<const Wide<T>> b, std::span<Wide<T>> x,
                               uint64_t right_sides, bool transposed) const {
  solve_all(b, x, right_sides, transposed);
}

#define SPARSERTC_INSTANTIATE(T)                                                                   \
  template void Factors<T>::solve(std::span<const T>, std::span<T>, uint64_t, bool) const;         \
  template void Factors<T>::solve_rounded(std::span<const Wide<T>>, std::span<Wide<T>>, uint64_t,  \
                                          bool) const;
SPARSERTC_INSTANTIATE(float)
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

} // namespace sparsertc::lu
