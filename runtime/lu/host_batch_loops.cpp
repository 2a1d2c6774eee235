// SPARSERTC_BATCH_LOOPS is the name of the set that this compilation makes. All sets round alike:
// what is a fused multiply-add is written as one.
#include "runtime/lu/host_batch_loops.h"

namespace sparsertc::lu {
namespace {

// ir/lu_batch_loop.h, which has vectors and so cannot be included here; host_batch.cpp compares.
constexpr uint32_t kProducts = 8;
constexpr uint32_t kWords = 2 * kProducts + 4;
constexpr uint32_t kStart = 2 * kProducts, kResult = kStart + 1, kPivot = kStart + 2,
                   kSide = kStart + 3;

inline float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline double fused(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
inline float magnitude_of(float a) {
  return __builtin_fabsf(a);
}
inline double magnitude_of(double a) {
  return __builtin_fabs(a);
}
inline float root(float a) {
  return __builtin_sqrtf(a);
}
inline double root(double a) {
  return __builtin_sqrt(a);
}
inline bool is_negative(float a) {
  return __builtin_signbit(a) != 0;
}
inline bool is_negative(double a) {
  return __builtin_signbit(a) != 0;
}
inline bool is_word(uint32_t word) {
  return word < 0x80000000u;
}

// Loops over lanes that are unrolled before GCC vectorises are not vectorised: hence the pragmas.

/// R is the type of a part, kParts 1 or 2.
template <class R, uint32_t kParts>
struct Group {
  static constexpr uint32_t kLanes = kBatchLineBytes / sizeof(R);
  static constexpr uint32_t kReals = kLanes * kParts; ///< of a number of all instances

  /// A number of all instances: real parts, then imaginary ones.
  struct Number {
    alignas(kBatchLineBytes) R part[kReals];
  };

  static R* place(R* numbers, uint64_t s) { return numbers + s * kReals; }
  static void copy(const R* from, R* to) { __builtin_memcpy(to, from, kReals * sizeof(R)); }
  static void fill(R* to, R value) {
    for (uint32_t l = 0; l < kReals; ++l)
      to[l] = value;
  }
  static R scaled(R value, double factor) {
    return static_cast<R>(static_cast<double>(value) * factor);
  }

  /// What a vector or the values have at `row`, scaled. Instances that are not there are as the
  /// last one.
  static void gather(const R* vector, uint64_t row, uint64_t instances, uint32_t used, double scale,
                     R* to) {
    const R* const from = vector + row * instances * kParts;
    if (kParts == 1 && used == kLanes) { // neighbours
#pragma GCC unroll 1
#pragma GCC ivdep
      for (uint32_t l = 0; l < kLanes; ++l)
        to[l] = scaled(from[l], scale);
      return;
    }
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t lane = l < used ? l : used - 1;
      for (uint32_t c = 0; c < kParts; ++c)
        to[c * kLanes + l] = scaled(from[lane * kParts + c], scale);
    }
  }
  static void scatter(const R* from, double scale, R* vector, uint64_t row, uint64_t instances,
                      uint32_t used) {
    R* const to = vector + row * instances * kParts;
    for (uint32_t l = 0; l < used; ++l)
      for (uint32_t c = 0; c < kParts; ++c)
        to[l * kParts + c] = scaled(from[c * kLanes + l], scale);
  }

  /// Adds the products of a packet (their negatives), one after the other.
  template <bool kMinus>
  static void add_products(const uint32_t* words, R* numbers, Number& sum) {
    const R* left[kProducts];
    const R* right[kProducts];
    for (uint32_t i = 0; i < kProducts; ++i) {
      left[i] = place(numbers, words[i]);
      right[i] = place(numbers, words[kProducts + i]);
    }
    for (uint32_t l = 0; l < kLanes; ++l) {
      R re = sum.part[l];
      if constexpr (kParts == 1) {
        for (uint32_t i = 0; i < kProducts; ++i)
          re = fused(kMinus ? -left[i][l] : left[i][l], right[i][l], re);
      } else {
        R im = sum.part[kLanes + l];
        for (uint32_t i = 0; i < kProducts; ++i) {
          const R a = kMinus ? -left[i][l] : left[i][l];
          const R b = kMinus ? -left[i][kLanes + l] : left[i][kLanes + l];
          re = fused(a, right[i][l], re);
          re = fused(-b, right[i][kLanes + l], re);
          im = fused(a, right[i][kLanes + l], im);
          im = fused(b, right[i][l], im);
        }
        sum.part[kLanes + l] = im;
      }
      sum.part[l] = re;
    }
  }

  /// The product (its negative); `result` is y or apart from it.
  template <bool kMinus>
  static void multiply(const Number& x, const R* y, R* result) {
#pragma GCC unroll 1
#pragma GCC ivdep
    for (uint32_t l = 0; l < kLanes; ++l) {
      if constexpr (kParts == 1) {
        const R re = x.part[l] * y[l];
        result[l] = kMinus ? -re : re;
      } else {
        const R a = x.part[l], b = x.part[kLanes + l], c = y[l], d = y[kLanes + l];
        const R re = fused(-b, d, a * c), im = fused(b, c, a * d);
        result[l] = kMinus ? -re : re;
        result[kLanes + l] = kMinus ? -im : im;
      }
    }
  }

  /// Notes in `check` whether numbers are finite: 0 times another one is a NaN.
  static void watch(const Number& value, Number& check) {
#pragma GCC unroll 1
    for (uint32_t l = 0; l < kReals; ++l)
      check.part[l] = fused(value.part[l], R(0), check.part[l]);
  }

  /// |x|, or |re x| + |im x|.
  static R magnitude(const R* x, uint32_t l) {
    if constexpr (kParts == 1)
      return magnitude_of(x[l]);
    else
      return magnitude_of(x[l]) + magnitude_of(x[kLanes + l]);
  }

  /// `size` with the sign or the phase of x. (As in compiler/lower/lu_kernel_writer.h.)
  static void replace(R* x, uint32_t l, R size) {
    if constexpr (kParts == 1) {
      x[l] = is_negative(x[l]) ? -size : size;
    } else {
      const R re = x[l], im = x[kLanes + l];
      const R larger = magnitude_of(re) >= magnitude_of(im) ? magnitude_of(re) : magnitude_of(im);
      if (larger == 0) {
        x[l] = size;
        x[kLanes + l] = 0;
        return;
      }
      const R a = re / larger, b = im / larger;
      const R factor = size / root(fused(a, a, b * b));
      x[l] = a * factor;
      x[kLanes + l] = b * factor;
    }
  }
  /// 1 / x; complex by Smith's method, as in runtime/lu/scalar.h.
  static void invert(R* x, uint32_t l) {
    if constexpr (kParts == 1) {
      x[l] = 1 / x[l];
    } else {
      const R re = x[l], im = x[kLanes + l];
      const bool steep = magnitude_of(re) >= magnitude_of(im);
      const R larger = steep ? re : im, smaller = steep ? im : re;
      const R ratio = smaller / larger;
      const R scale = larger + smaller * ratio;
      const R first = 1 / scale, second = ratio / scale;
      x[l] = steep ? first : second;
      x[kLanes + l] = -(steep ? second : first);
    }
  }
  static void replace_and_invert(const R* largest, R threshold, Number& pivot, uint32_t* replaced) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      const R least = threshold * largest[l];
      if (magnitude(pivot.part, l) < least) {
        replace(pivot.part, l, least);
        ++replaced[l];
      }
      invert(pivot.part, l);
    }
  }

  static void read_matrix(const BatchLoopArrays& a, const R* values, uint64_t instances,
                          uint32_t used, R* numbers) {
    Number largest;
    fill(largest.part, 0);
    for (uint64_t e = 0; e < a.entries; ++e) {
      R* const entry = place(numbers, a.entry_slot[e]);
      gather(values, a.entry_source[e], instances, used, a.entry_scale[e], entry);
#pragma GCC unroll 1
#pragma GCC ivdep
      for (uint32_t l = 0; l < kLanes; ++l) {
        const R size = magnitude(entry, l);
        largest.part[l] = size > largest.part[l] ? size : largest.part[l];
      }
      if (is_word(a.entry_end[e])) {
        copy(largest.part, place(numbers, a.entry_end[e]));
        fill(largest.part, 0);
      }
    }
  }

  static void factor(const BatchLoopArrays& a, const void* values, uint64_t instances,
                     uint32_t used, void* memory, uint32_t* status, double threshold) {
    R* const numbers = static_cast<R*>(memory);
    fill(place(numbers, a.plus_zero), R(0));
    fill(place(numbers, a.minus_zero), R(-0.0));
    read_matrix(a, static_cast<const R*>(values), instances, used, numbers);
    Number sum, check;
    uint32_t replaced[kLanes] = {};
    fill(sum.part, 0);
    fill(check.part, 0);
    for (uint64_t p = 0; p < a.factor_count; ++p) {
      const uint32_t* const words = a.factor + p * kWords;
      if (is_word(words[kStart]))
        copy(place(numbers, words[kStart]), sum.part);
      add_products<false>(words, numbers, sum);
      if (!is_word(words[kResult]))
        continue;
      watch(sum, check);
      if (is_word(words[kPivot])) {
        multiply<true>(sum, place(numbers, words[kPivot]), place(numbers, words[kSide]));
      } else if (is_word(words[kSide])) {
        replace_and_invert(place(numbers, words[kSide]), static_cast<R>(threshold), sum, replaced);
        watch(sum, check);
      }
      copy(sum.part, place(numbers, words[kResult]));
    }
    for (uint32_t l = 0; l < used; ++l) {
      bool finite = check.part[l] == check.part[l];
      if constexpr (kParts == 2)
        finite = finite && check.part[kLanes + l] == check.part[kLanes + l];
      status[l] = replaced[l] | (finite ? 0 : kBatchNotFinite);
    }
  }

  static void solve(const BatchLoopArrays& a, const void* b, void* x, uint64_t instances,
                    uint32_t used, void* memory) {
    R* const numbers = static_cast<R*>(memory);
    for (uint64_t i = 0; i < a.size; ++i)
      gather(static_cast<const R*>(b), a.row[i], instances, used, a.row_scale[i],
             place(numbers, a.unknowns + i));
    Number sum;
    fill(sum.part, 0);
    for (uint64_t p = 0; p < a.forward_count; ++p) {
      const uint32_t* const words = a.forward + p * kWords;
      if (is_word(words[kStart]))
        copy(place(numbers, words[kStart]), sum.part);
      add_products<true>(words, numbers, sum);
      if (!is_word(words[kResult]))
        continue;
      multiply<false>(sum, place(numbers, words[kPivot]), place(numbers, words[kResult]));
    }
    for (uint64_t p = 0; p < a.backward_count; ++p) {
      const uint32_t* const words = a.backward + p * kWords;
      if (is_word(words[kStart]))
        copy(place(numbers, words[kStart]), sum.part);
      add_products<false>(words, numbers, sum);
      if (!is_word(words[kResult]))
        continue;
      // z - sum d
      R* const z = place(numbers, words[kResult]);
      const R* const d = place(numbers, words[kPivot]);
#pragma GCC unroll 1
#pragma GCC ivdep
      for (uint32_t l = 0; l < kLanes; ++l) {
        const R re = -sum.part[l];
        R result = fused(re, d[l], z[l]);
        if constexpr (kParts == 2) {
          const R im = -sum.part[kLanes + l];
          result = fused(-im, d[kLanes + l], result);
          const R other = fused(re, d[kLanes + l], z[kLanes + l]);
          z[kLanes + l] = fused(im, d[l], other);
        }
        z[l] = result;
      }
    }
    for (uint64_t i = 0; i < a.size; ++i)
      scatter(place(numbers, a.unknowns + i), a.column_scale[i], static_cast<R*>(x), a.column[i],
              instances, used);
  }

  static constexpr BatchLoops loops() {
    return {factor, solve};
  }
};

} // namespace

const BatchLoopSet SPARSERTC_BATCH_LOOPS = {{Group<float, 1>::loops(), Group<double, 1>::loops(),
                                             Group<float, 2>::loops(), Group<double, 2>::loops()}};

} // namespace sparsertc::lu
