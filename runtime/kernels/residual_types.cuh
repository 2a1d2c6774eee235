// What a user's residual is written with: Row, Unknowns, Residuals; and how each kind of number
// seeds its tangents where an unknown is read.
//
// Stands before the user's text. The program says beforehand
//
//   SPARSERTC_REAL        double or float
//   SPARSERTC_VALUE       of derivatives: the same, or float; on the host the same
//   SPARSERTC_BATCH       1 where parameters or vectors differ by instance, else 0
//   SPARSERTC_CHECKED     1 where indices are compared with the arrays' lengths
//   SPARSERTC_LOOP_LIMIT  iterations that one loop may take
//   SPARSERTC_SHARED      1 where lanes of a warp share tasks; not on the host, in batches, and
//                         where the residual is whole

namespace sparsertc {

using Real = SPARSERTC_REAL;
/// Of derivatives.
using Value = SPARSERTC_VALUE;
using u32 = unsigned;
using u64 = unsigned long long;
static_assert(sizeof(u32) == 4 && sizeof(u64) == 8);

inline constexpr bool kBatch = SPARSERTC_BATCH;
inline constexpr bool kChecked = SPARSERTC_CHECKED;
inline constexpr bool kShared = SPARSERTC_SHARED;

// ---- what went wrong ----

/// Of the first thread that went wrong; runtime/jacobian/residual_program.h has the same.
struct Status {
  u32 code;  ///< 0: nothing
  u32 where; ///< the line of a loop, or the number of a parameter
  long long index;
  long long length;
};
inline constexpr u32 kLoopTooLong = 1, kBadUnknown = 2, kBadResidual = 3, kBadParameter = 4,
                     kNestedSum = 5;

#ifdef __CUDACC__
__device__ Status first_status;
/// Keeps the first report and ends the thread.
[[noreturn]] __device__ inline void stop(u32 code, u32 where, long long index, long long length) {
  if (atomicCAS(&first_status.code, 0u, code) == 0u) {
    first_status.where = where;
    first_status.index = index;
    first_status.length = length;
  }
  for (;;)
    asm volatile("exit;");
}
#else
inline thread_local Status first_status;
struct Stopped {};
[[noreturn]] inline void stop(u32 code, u32 where, long long index, long long length) {
  first_status = {code, where, index, length};
  throw Stopped{};
}
#endif

/// Counts the iterations of one execution of a loop.
struct LoopLimit {
  u32 line;
  u32 taken = 0;
  __device__ explicit LoopLimit(u32 line_of_loop) : line(line_of_loop) {}
  __device__ bool step() {
    if (++taken > SPARSERTC_LOOP_LIMIT)
      stop(kLoopTooLong, line, SPARSERTC_LOOP_LIMIT, 0);
    return true;
  }
};

__device__ inline void check_index(long long index, u64 length, u32 code, u32 where) {
  if (kChecked && static_cast<u64>(index) >= length)
    stop(code, where, index, static_cast<long long>(length));
}

// ---- arrays ----

/// Of memory that nobody writes while the program runs.
template <class A>
__device__ inline A load(const A* address) {
#ifdef __CUDACC__
  return __ldg(address);
#else
  return *address;
#endif
}

/// One instance's numbers: entry j is data[j * stride], j below 2^32 and the stride below 2^29: a
/// product of 32 bits by 32 is one instruction.
struct Vector {
  const Real* data;
  u32 pitch; ///< bytes of a stride
  __device__ Vector(const Real* all, u64 stride_of_all, u64 instance)
      : data(kBatch ? all + instance : all),
        pitch(static_cast<u32>(stride_of_all) * static_cast<u32>(sizeof(Real))) {}
  __device__ Real at(long long j) const {
    if constexpr (!kBatch)
      return load(data + j);
    const u64 bytes = static_cast<u64>(static_cast<u32>(j)) * pitch;
    return load(reinterpret_cast<const Real*>(reinterpret_cast<const char*>(data) + bytes));
  }
};

/// The number of an equation, from 0; converts to int.
class Row {
public:
  __device__ explicit Row(u64 index) : index_(static_cast<int>(index)) {}
  __device__ operator int() const { return index_; }

private:
  int index_;
};

// ---- tangents ----

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
inline constexpr int kMostThreads = 128; // of a block
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
};
__device__ inline SumState& sum_state();

/// Counts what a row reads, and writes it down where there is a list, with the term's number plus
/// 1, or 0 outside of sums.
struct SeedReads {
  using Tangent = Columns<SeedReads>;
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

// ---- sums ----

#ifdef __CUDACC__
/// How many lanes share the thread's task.
__device__ inline u32& lanes_of_task() {
  __shared__ u32 lanes[kMostThreads];
  return lanes[threadIdx.x];
}
__device__ inline u32 lane_count() {
  return kShared ? lanes_of_task() : 1;
}
__device__ inline u32 own_lane() {
  return kShared ? threadIdx.x & (lane_count() - 1) : 0;
}
__device__ inline SumState& sum_state() {
  __shared__ alignas(SumState) unsigned char states[kMostThreads * sizeof(SumState)];
  return reinterpret_cast<SumState*>(states)[threadIdx.x];
}
__device__ inline TermState& term_state() {
  __shared__ alignas(TermState) unsigned char states[kMostThreads * sizeof(TermState)];
  return reinterpret_cast<TermState*>(states)[threadIdx.x];
}
/// What a term's own derivatives are until that by the sum is known: number k of the thread.
__device__ inline Value& kept_number(u32 k) {
  extern __shared__ Value sparsertc_kept[];
  return sparsertc_kept[k * blockDim.x + threadIdx.x];
}
/// From one kept number to the next.
__device__ inline u32 kept_stride() {
  return blockDim.x;
}
__device__ inline double number_of_bits(u32 bits, double) {
  return __hiloint2double(0, static_cast<int>(bits));
}
__device__ inline float number_of_bits(u32 bits, float) {
  return __uint_as_float(bits);
}
__device__ inline u32 bits_of_number(double number) {
  return static_cast<u32>(__double2loint(number));
}
__device__ inline u32 bits_of_number(float number) {
  return __float_as_uint(number);
}
/// Where lanes share a task, number k of the unknowns that the thread's terms have as their own
/// stands where later the derivative by it is kept.
__device__ inline void stage_column(u32 k, u32 column) {
  kept_number(k) = number_of_bits(column, Value());
}
/// Number k of the unknowns that terms have as their own.
__device__ inline u32 known_column(const u32* columns, u32 k) {
  return kShared ? bits_of_number(kept_number(k)) : load(columns + k);
}
__device__ inline u32 lanes_mask(u32 lanes) {
  return lanes == 32 ? 0xFFFFFFFFu : ((1u << lanes) - 1u) << (threadIdx.x & 31 & ~(lanes - 1));
}
/// The sum over a task's lanes, the same bits in each: a + b is b + a.
template <int words, class A>
__device__ A over_lanes(A a, u32 lanes, u32 mask) {
  for (u32 apart = lanes / 2; apart > 0; apart /= 2)
    a += __shfl_xor_sync(mask, a, apart);
  return a;
}
/// Of its first `words` tangents alone.
template <int words, AnyDual N>
__device__ N over_lanes(N a, u32 lanes, u32 mask) {
  for (u32 apart = lanes / 2; apart > 0; apart /= 2) {
    a.v += __shfl_xor_sync(mask, a.v, apart);
    for (int k = 0; k < words; ++k)
      a.t.set_word(k, a.t.word(k) + __shfl_xor_sync(mask, a.t.word(k), apart));
  }
  return a;
}
template <int words, class A>
__device__ A over_lanes(const A& a, u32 lanes) {
  // With another mask than a constant the lanes look for those with the same, each time.
  if (__activemask() == 0xFFFFFFFFu)
    return over_lanes<words>(a, lanes, 0xFFFFFFFFu);
  return over_lanes<words>(a, lanes, lanes_mask(lanes));
}
#else
template <int words, class A>
A over_lanes(const A& a, u32) {
  return a;
}
inline u32 lane_count() {
  return 1;
}
inline u32 own_lane() {
  return 0;
}
/// What is a thread's own, in one place.
struct ThreadState {
  SumState sum;
  TermState term;
  alignas(NumbersOf<8>::Columns) unsigned char columns_at_hand[sizeof(NumbersOf<8>::Columns)];
  Value kept[SPARSERTC_KEPT];
};
inline ThreadState& thread_state() {
  static thread_local ThreadState state;
  ThreadState* found = &state;
  asm("" : "+r"(found)); // finding it takes a call, which GCC would repeat rather than keep it
  return *found;
}
inline SumState& sum_state() {
  return thread_state().sum;
}
inline TermState& term_state() {
  return thread_state().term;
}
template <int W>
typename NumbersOf<W>::Columns& columns_at_hand() {
  return *reinterpret_cast<typename NumbersOf<W>::Columns*>(thread_state().columns_at_hand);
}
/// What a term's own derivatives are until that by the sum is known: number k of the thread.
inline Value& kept_number(u32 k) {
  return thread_state().kept[k];
}
/// From one kept number to the next.
inline u32 kept_stride() {
  return 1;
}
/// Number k of the unknowns that terms have as their own.
inline u32 known_column(const u32* columns, u32 k) {
  return load(columns + k);
}
#endif

template <class A>
inline constexpr int kWordsOf = 0;
template <AnyDual N>
inline constexpr int kWordsOf<N> = N::Tangent::kWords;

/// Of the row's first sum each term has tangents of its own; those that are all terms' are added.
template <class T, class F>
__device__ T sum_of_terms(long long first, long long last, const F& term, u32 line) {
  using Seed = typename T::Tangent::Seed;
  constexpr int kOuter = Seed::kOuter, kInner = Seed::kInner;
  TermState& state = term_state();
  const u32* const own = state.columns;
  const u32 known = state.terms;
  const bool has_terms = state.has_terms;
  state.has_terms = false;
  Value* const kept_numbers = &kept_number(0);
  const u32 lanes = lane_count(), lane = own_lane();
  LoopLimit limit(line);
  T sum = T(0);
  u32 kept = 0;
  for (long long k = first + lane; k < last; k += lanes) {
    limit.step();
    const u32 index = kShared ? kept : static_cast<u32>(k - first);
    const bool is_known = has_terms && index < known;
    ColumnArray<kInner> columns = Seed::nobody();
    if (is_known) {
      SPARSERTC_UNROLLED
      for (int i = 0; i < kInner; ++i)
        columns[i] = known_column(own, index * kInner + i);
    }
    Seed::set_inner(columns);
    const T value = term(k);
    if (is_known) {
      SPARSERTC_UNROLLED
      for (int i = 0; i < kInner; ++i)
        kept_numbers[(kept * kInner + i) * kept_stride()] = value.t.d[kOuter + i];
      ++kept;
    }
    sum += value;
  }
  Seed::set_inner(Seed::nobody());
  if (!has_terms) {
    if constexpr (kShared)
      sum = over_lanes<kOuter + kInner>(sum, lanes);
    return sum;
  }
  if constexpr (kShared)
    sum = over_lanes<kOuter>(sum, lanes);
  state.kept = kept;
  // The terms' own are kept.
  SPARSERTC_UNROLLED
  for (int i = 0; i < kInner; ++i)
    sum.t.d[kOuter + i] = i == 0 ? Value(1) : Value(0);
  return sum;
}

/// The sum of term(k) for first <= k < last. The terms may be computed by several threads at once:
/// they must not depend on each other, nor hold sums themselves.
template <class F>
__device__ auto sum_over(long long first, long long last, const F& term,
                         u32 line = __builtin_LINE()) {
  using T = decltype(term(first));
  SumState& state = sum_state();
  if (kChecked) {
    if (state.inside)
      stop(kNestedSum, line, 0, 0);
    state.inside = true;
    ++state.sums;
  }
  T sum = T(0);
  if constexpr (kByTerms<T>) {
    sum = sum_of_terms<T>(first, last, term, line);
  } else {
    LoopLimit limit(line);
    const u32 lanes = lane_count(), lane = own_lane();
    for (long long k = first + lane; k < last; k += lanes) {
      limit.step();
      if (kChecked)
        state.term = static_cast<u32>(k - first);
      sum += term(k);
    }
    if constexpr (kShared)
      sum = over_lanes<kWordsOf<T>>(sum, lanes);
  }
  if (kChecked)
    state.inside = false;
  return sum;
}

// ---- what the user's function is given ----

/// x[j]: unknown number j.
template <class T>
class Unknowns;

template <>
class Unknowns<Real> {
public:
  __device__ Unknowns(const Vector& x, u64 length) : x_(x), length_(length) {}
  __device__ Real operator[](long long j) const {
    check_index(j, length_, kBadUnknown, 0);
    return x_.at(j);
  }
  /// n.
  __device__ long long size() const { return static_cast<long long>(length_); }

private:
  Vector x_;
  u64 length_;
};

template <class D>
class Unknowns<Dual<Real, D>> {
public:
  using Seed = typename D::Seed;
  __device__ Unknowns(const Vector& x, u64 length, const Seed& seed)
      : x_(x), length_(length), seed_(seed) {}
  __device__ Dual<Real, D> operator[](long long j) const {
    check_index(j, length_, kBadUnknown, 0);
    return {x_.at(j), seed_(j)};
  }
  __device__ long long size() const { return static_cast<long long>(length_); }

private:
  Vector x_;
  u64 length_;
  Seed seed_;
};

/// f[i]: residual number i, 0 at the beginning. It can be assigned, added to (=, +=, -=, *=, /=),
/// and read by T(f[i]).
template <class T>
class Residuals;

template <>
class Residuals<Real> {
public:
  __device__ Residuals(Real* f, u64 length, u64 stride, u64 instance)
      : f_(kBatch ? f + instance : f), length_(length), stride_(stride) {}
  __device__ Real& operator[](long long i) const {
    check_index(i, length_, kBadResidual, 0);
    return f_[kBatch ? i * stride_ : i];
  }
  __device__ long long size() const { return static_cast<long long>(length_); }
  __device__ void clear() const {
    for (u64 i = 0; i < length_; ++i)
      (*this)[i] = 0;
  }

private:
  Real* f_;
  u64 length_, stride_;
};

/// Values and tangents apart, each word beside those of the other threads.
template <class D>
class Residuals<Dual<Real, D>> {
public:
  using T = Dual<Real, D>;
  class Entry {
  public:
    __device__ Entry(const Residuals& all, u64 i) : all_(all), i_(i) {}
    __device__ operator T() const { return all_.get(i_); }
    __device__ const Entry& operator=(const T& a) const {
      all_.set(i_, a);
      return *this;
    }
    __device__ const Entry& operator=(const Entry& a) const { return *this = T(a); }
    __device__ const Entry& operator+=(const T& a) const { return *this = T(*this) + a; }
    __device__ const Entry& operator-=(const T& a) const { return *this = T(*this) - a; }
    __device__ const Entry& operator*=(const T& a) const { return *this = T(*this) * a; }
    __device__ const Entry& operator/=(const T& a) const { return *this = T(*this) / a; }

  private:
    const Residuals& all_;
    u64 i_;
  };

  __device__ Residuals(Real* values, typename D::Word* words, u64 length, u64 thread, u64 threads)
      : values_(values + thread), words_(words + thread), length_(length), threads_(threads) {}
  __device__ Entry operator[](long long i) const {
    check_index(i, length_, kBadResidual, 0);
    return {*this, static_cast<u64>(i)};
  }
  __device__ long long size() const { return static_cast<long long>(length_); }

  __device__ T get(u64 i) const {
    T a;
    a.v = values_[i * threads_];
    for (int k = 0; k < D::kWords; ++k)
      a.t.set_word(k, words_[(i * D::kWords + k) * threads_]);
    return a;
  }
  __device__ void set(u64 i, const T& a) const {
    values_[i * threads_] = a.v;
    for (int k = 0; k < D::kWords; ++k)
      words_[(i * D::kWords + k) * threads_] = a.t.word(k);
  }
  __device__ typename D::Word word(u64 i, u32 k) const {
    return words_[(i * D::kWords + k) * threads_];
  }
  __device__ void clear() const {
    for (u64 i = 0; i < length_; ++i)
      set(i, T(0));
  }

private:
  Real* values_;
  typename D::Word* words_;
  u64 length_, threads_;
};

// ---- parameters ----

struct ParameterArray {
  const void* data;
  u64 length; ///< of one instance
};

/// p.name[k]: entry k of an array, a Real or a long long, which may be stored more narrowly.
/// `varies`: the instances have arrays of their own, entry by entry.
template <class Result, class Stored, bool varies>
class View {
public:
  __device__ View(const ParameterArray& array, u64 stride, u64 instance, u32 number)
      : data_(static_cast<const Stored*>(array.data) + (varies ? instance : 0)), stride_(stride),
        length_(array.length), number_(number) {}
  __device__ Result operator[](long long k) const {
    check_index(k, length_, kBadParameter, number_);
    return static_cast<Result>(load(data_ + (varies ? k * stride_ : k)));
  }

private:
  const Stored* data_;
  u64 stride_, length_;
  u32 number_;
};

} // namespace sparsertc
