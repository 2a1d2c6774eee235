// Tangents: derivatives in some directions, or sets of unknowns; and how each kind of number seeds
// them where an unknown is read. Stands after residual_numbers.cuh.

namespace sparsertc {

// Loops over tangents: GCC leaves them, and their arrays in memory, where it is not asked.
#ifdef __CUDACC__
#define SPARSERTC_UNROLLED
#else
#define SPARSERTC_UNROLLED _Pragma("GCC unroll 8")
#endif

/// W numbers, of which each operation is with all at once.
template <int W>
struct NumberArray {
  Value n[W];
  __device__ Value& operator[](int k) { return n[k]; }
  __device__ Value operator[](int k) const { return n[k]; }
  friend __device__ NumberArray operator*(Real factor, const NumberArray& a) {
    NumberArray result;
    const Value f = static_cast<Value>(factor);
    SPARSERTC_UNROLLED
    for (int k = 0; k < W; ++k)
      result.n[k] = f * a.n[k];
    return result;
  }
  friend __device__ NumberArray operator+(const NumberArray& a, const NumberArray& b) {
    NumberArray result;
    SPARSERTC_UNROLLED
    for (int k = 0; k < W; ++k)
      result.n[k] = a.n[k] + b.n[k];
    return result;
  }
};
/// Numbers of W unknowns; 0xFFFFFFFF: of none.
template <int W>
struct ColumnArray {
  u32 n[W];
  __device__ u32& operator[](int k) { return n[k]; }
  __device__ u32 operator[](int k) const { return n[k]; }
  /// 1 where unknown j stands.
  __device__ NumberArray<W> ones_at(u32 j) const {
    NumberArray<W> ones;
    SPARSERTC_UNROLLED
    for (int k = 0; k < W; ++k)
      ones.n[k] = n[k] == j ? Value(1) : Value(0);
    return ones;
  }
};
template <int W>
struct NumbersOf {
  using Type = NumberArray<W>;
  using Columns = ColumnArray<W>;
};
#ifndef __CUDACC__
// On the host in vector registers: left to itself the compiler takes one number after the other.
template <class A>
struct IntegerLike {
  using Type = long long;
};
template <>
struct IntegerLike<float> {
  using Type = int;
};
template <class Vector, class Integers>
struct ColumnVector {
  Integers n;
  auto& operator[](int k) { return n[k]; }
  u32 operator[](int k) const { return static_cast<u32>(n[k]); }
  Vector ones_at(u32 j) const {
    const Integers all = Integers{} + static_cast<typename IntegerLike<Real>::Type>(j);
    return n == all ? Vector{} + Real(1) : Vector{};
  }
};
#define SPARSERTC_VECTOR(W)                                                                        \
  template <>                                                                                      \
  struct NumbersOf<W> {                                                                            \
    typedef Real Type __attribute__((vector_size(W * sizeof(Real))));                              \
    typedef IntegerLike<Real>::Type Integers __attribute__((vector_size(W * sizeof(Real))));       \
    using Columns = ColumnVector<Type, Integers>;                                                  \
  };
SPARSERTC_VECTOR(2)
SPARSERTC_VECTOR(4)
SPARSERTC_VECTOR(8)
#undef SPARSERTC_VECTOR
template <>
struct NumbersOf<3> : NumbersOf<4> {};
template <int W>
requires(W > 4 && W < 8) struct NumbersOf<W> : NumbersOf<8> {
};
#endif

/// W derivatives, which Seed puts at the unknowns.
template <int W, class SeedType>
struct Directions {
  using Seed = SeedType;
  using Word = Value;
  static constexpr int kWords = W;
  typename NumbersOf<W>::Type d;

  __device__ static Directions zero() { return Directions{}; }
  __device__ Word word(int k) const { return d[k]; }
  __device__ void set_word(int k, Word word) { d[k] = word; }
};
template <int W, class S>
__device__ Directions<W, S> scaled(Real f, const Directions<W, S>& t) {
  return {f * t.d};
}
template <int W, class S>
__device__ Directions<W, S> scaled_singular(Real f, const Directions<W, S>& t) {
  Directions<W, S> result;
  SPARSERTC_UNROLLED
  for (int k = 0; k < W; ++k)
    result.d[k] = t.d[k] == Value(0) ? Value(0) : static_cast<Value>(f) * t.d[k];
  return result;
}
template <int W, class S>
__device__ Directions<W, S> linear(Real f, const Directions<W, S>& s, Real g,
                                   const Directions<W, S>& t) {
  return {f * s.d + g * t.d};
}
template <int W, class S>
__device__ Directions<W, S> chosen(bool first, const Directions<W, S>& s,
                                   const Directions<W, S>& t) {
  return first ? s : t;
}

/// Of 64 unknowns, those that a value depends on.
template <class SeedType>
struct Columns {
  using Seed = SeedType;
  using Word = u64;
  static constexpr int kWords = 1;
  u64 set;

  __device__ static Columns zero() { return {0}; }
  __device__ Word word(int) const { return set; }
  __device__ void set_word(int, Word word) { set = word; }
};
template <class S>
__device__ Columns<S> scaled(Real, const Columns<S>& t) {
  return t;
}
template <class S>
__device__ Columns<S> scaled_singular(Real, const Columns<S>& t) {
  return t;
}
template <class S>
__device__ Columns<S> linear(Real, const Columns<S>& s, Real, const Columns<S>& t) {
  return {s.set | t.set};
}
template <class S>
__device__ Columns<S> chosen(bool, const Columns<S>& s, const Columns<S>& t) {
  return {s.set | t.set};
}

// ---- seeds ----

/// Tangent k is the derivative by unknown column[k].
template <int W>
struct SeedColumns {
  using Tangent = Directions<W, SeedColumns>;
  typename NumbersOf<W>::Columns column;
  __device__ Tangent operator()(long long j) const { return {column.ones_at(static_cast<u32>(j))}; }
};

/// Tangent k is the derivative by all unknowns of colour first + k.
template <int W>
struct SeedColours {
  using Tangent = Directions<W, SeedColours>;
  const u32* colour; ///< by unknown
  u32 first;
  __device__ Tangent operator()(long long j) const {
    const u32 own = load(colour + j) - first;
    Tangent t;
    SPARSERTC_UNROLLED
    for (int k = 0; k < W; ++k)
      t.d[k] = own == static_cast<u32>(k) ? Real(1) : Real(0);
    return t;
  }
};

/// Of a row with a sum: which unknowns its terms have as their own, and where the sum stands.
struct TermState {
  const u32* columns = nullptr; ///< kInner for each term that is known; null where lanes share
  u32 terms = 0;                ///< that are known, where lanes share by this one; 0 behind the sum
  u32 kept = 0;                 ///< terms of this thread whose derivatives are kept
  bool has_terms = false;       ///< before the row's sum
};
__device__ inline TermState& term_state();

#ifdef __CUDACC__
/// Column k of the term at hand: a thread's beside those of the others.
__device__ inline u32& column_at_hand(int k) {
  __shared__ u32 all[4][kMostThreads];
  return all[k][threadIdx.x];
}
#else
/// Of the tangents, with those of the term at hand.
template <int W>
typename NumbersOf<W>::Columns& columns_at_hand();
#endif

/// O tangents by unknowns of the row, I by those of the term at hand; outside of terms the first of
/// the I is the derivative by the row's sum.
template <int O, int I>
struct SeedTerms {
  static constexpr int kOuter = O, kInner = I;
  using Tangent = Directions<O + I, SeedTerms>;
#ifdef __CUDACC__
  ColumnArray<O> outer;
  __device__ explicit SeedTerms(const ColumnArray<O>& columns) : outer(columns) {
    set_inner(nobody());
  }
  __device__ static void set_inner(const ColumnArray<I>& columns) {
    for (int k = 0; k < I; ++k)
      column_at_hand(k) = columns[k];
  }
  __device__ Tangent operator()(long long j) const {
    Tangent t;
    for (int k = 0; k < O; ++k)
      t.d[k] = outer[k] == static_cast<u32>(j) ? Value(1) : Value(0);
    for (int k = 0; k < I; ++k)
      t.d[O + k] = column_at_hand(k) == static_cast<u32>(j) ? Value(1) : Value(0);
    return t;
  }
#else
  using Columns = typename NumbersOf<O + I>::Columns;
  const Columns* columns;
  explicit SeedTerms(const ColumnArray<O>& outer) : columns(&columns_at_hand<O + I>()) {
    Columns all{};
    SPARSERTC_UNROLLED
    for (int k = 0; k < O; ++k)
      all[k] = outer[k];
    columns_at_hand<O + I>() = all;
    set_inner(nobody());
  }
  static void set_inner(const ColumnArray<I>& inner) {
    Columns all = columns_at_hand<O + I>();
    SPARSERTC_UNROLLED
    for (int k = 0; k < I; ++k)
      all[O + k] = inner[k];
    columns_at_hand<O + I>() = all;
  }
  Tangent operator()(long long j) const {
    return {columns->ones_at(static_cast<u32>(j))};
  }
#endif
  __device__ static ColumnArray<I> nobody() {
    ColumnArray<I> columns;
    SPARSERTC_UNROLLED
    for (int k = 0; k < I; ++k)
      columns[k] = 0xFFFFFFFFu;
    return columns;
  }
};
template <class A>
inline constexpr bool kByTerms = false;
template <int W, int O, int I>
inline constexpr bool kByTerms<Dual<Real, Directions<W, SeedTerms<O, I>>>> = true;

/// One tangent: the derivative in the direction of a vector.
struct SeedVector {
  using Tangent = Directions<1, SeedVector>;
  Vector v;
  __device__ Tangent operator()(long long j) const {
    Tangent t;
    t.d[0] = v.at(j);
    return t;
  }
};

/// Where a thread is in its row's sums; known in checked programs alone.
struct SumState {
  bool inside = false;
  u32 sums = 0;
  u32 term = 0;
  u32 terms = 0;        ///< of the last sum
  bool decided = false; ///< by a value, of numbers that say so (ReadLog)
};
__device__ inline SumState& sum_state();

/// Counts what a row reads, and writes it down where there is a list, with the term's number plus
/// 1, or 0 outside of sums.
struct SeedUnknowns {
  using Tangent = Columns<SeedUnknowns>;
  u32* count;
  u32* list;
  u32* terms;
  __device__ Tangent operator()(long long j) const {
    if (list != nullptr) {
      list[*count] = static_cast<u32>(j);
      terms[*count] = sum_state().inside ? sum_state().term + 1 : 0;
    }
    ++*count;
    return {0};
  }
};

/// The unknowns 64 chunk to 64 chunk + 63.
struct SeedChunk {
  using Tangent = Columns<SeedChunk>;
  u32 chunk;
  __device__ Tangent operator()(long long j) const {
    return {static_cast<u32>(j) / 64 == chunk ? u64(1) << (j % 64) : 0};
  }
};

/// Up to 64 unknowns, listed in ascending order.
struct SeedList {
  using Tangent = Columns<SeedList>;
  const u32* list;
  u32 length;
  __device__ Tangent operator()(long long j) const {
    u32 low = 0, high = length;
    while (low < high) {
      const u32 middle = (low + high) / 2;
      if (list[middle] < static_cast<u32>(j))
        low = middle + 1;
      else
        high = middle;
    }
    return {low < length && list[low] == static_cast<u32>(j) ? u64(1) << low : 0};
  }
};

} // namespace sparsertc
