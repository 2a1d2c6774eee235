// Sums over terms, which several threads may share. Stands after residual_reads.cuh.

namespace sparsertc {

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

#if SPARSERTC_READS == 2
/// As sum_of_terms(), of a row's only sum, whose reads are known beforehand; so is that its loop
/// ends.
template <class T, class F>
__device__ T sum_read_ahead(long long first, long long last, const F& term) {
  using Seed = typename T::Tangent::Seed;
  constexpr int kOuter = Seed::kOuter, kInner = Seed::kInner;
  const u32 lanes = lane_count();
  long long k = first + own_lane();
  T sum = T(0);
#pragma unroll
  for (int m = 0; m < Reads::kTerms; ++m) {
    if (k < last) {
      term_at_hand() = static_cast<u32>(m);
      const T value = term(k);
      for (int i = 0; i < kInner; ++i)
        kept_number(m * kInner + i) = value.t.d[kOuter + i];
      sum += value;
    }
    k += lanes;
  }
  sum = over_lanes<kOuter>(sum, lanes);
  term_at_hand() = kOutside; // after the exchange: compilers forget what they knew before it
  for (int i = 0; i < kInner; ++i)
    sum.t.d[kOuter + i] = i == 0 ? Value(1) : Value(0);
  return sum;
}
#endif

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
#if SPARSERTC_READS == 2
  } else if constexpr (kReadsAhead<T>) {
    sum = sum_read_ahead<T>(first, last, term);
#endif
  } else {
    LoopLimit limit(line);
    const u32 lanes = lane_count(), lane = own_lane();
    for (long long k = first + lane; k < last; k += lanes) {
      limit.step();
      if (kChecked)
        state.term = static_cast<u32>(k - first);
      sum += term(k);
    }
    if (kChecked)
      state.terms = last > first ? static_cast<u32>(last - first) : 0;
    if constexpr (kShared)
      sum = over_lanes<kWordsOf<T>>(sum, lanes);
  }
  if (kChecked)
    state.inside = false;
  return sum;
}

} // namespace sparsertc
