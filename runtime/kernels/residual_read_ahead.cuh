// Derivatives of rows with a sum whose reads are known beforehand (residual_reads.cuh). Stands
// after residual_kernels.cuh, on the GPU alone.
//
// Such an evaluation takes a few microseconds: what counts is how many loads wait for each other.
// Here those of the tables wait for nothing, those of unknowns for one of them, and the user's code
// runs in registers: its indices are not computed, but where something else depends on them.

namespace sparsertc {

__device__ inline double number_of_word(u64 word, double) {
  return __longlong_as_double(static_cast<long long>(word));
}
__device__ inline float number_of_word(u64 word, float) {
  return __uint_as_float(static_cast<u32>(word));
}

// Plain loads: those whose results nobody needs the compiler leaves out.
template <int I, int W>
__device__ void read_ahead(ReadsAhead<I, W>& reads, const int* integers, const u64* words,
                           u32 pitch) {
#pragma unroll
  for (int k = 0; k < W; ++k)
    reads.word[k] = words[k * pitch];
#pragma unroll
  for (int k = 0; k < I; ++k)
    reads.integer[k] = integers[k * pitch];
}
template <int I, int W>
__device__ void read_unknowns(ReadsAhead<I, W>& reads, const Real* x, u64 unknowns, u64 numbers) {
#pragma unroll
  for (int k = 0; k < W; ++k) {
    const u64 word = reads.word[k];
    const bool may = unknowns >> k & 1, must = may && !(numbers >> k & 1);
    reads.number[k] = number_of_word(word, Real());
    if (must || (may && word >> 40 == kUnknownWord >> 8))
      reads.number[k] = load(x + static_cast<u32>(word));
  }
}

/// Derivatives of a row by O columns of its own and I of each of its sum's terms
/// (ir/jacobian_tables.h: TermTasks). Threads of rows with fewer than 32 lanes have `Often` terms
/// at most. `Rounds`: of stores, of a warp.
template <int O, int I, int Often, int Rounds>
struct ReadAheadCall {
  Value* values;
  const u32* row;           ///< [task]
  const int* integers;      ///< [read][task]
  const u64* words;         ///< [read][task]
  const int* term_integers; ///< [term of the thread][read][thread]
  const u64* term_words;    ///< [term of the thread][read][thread]
  const uint2* stores; ///< [round][thread]: a place, and which of the block's results belongs there
  u64 threads;
  TaskLanes groups;
  Common c;
  using T = Dual<Real, typename SeedReads<O, I>::Tangent>;
  __device__ u64 tasks() const { return threads; }
  __device__ void operator()(u64 thread64, u64 instance) const {
    const u32 thread = static_cast<u32>(thread64), all = static_cast<u32>(threads);
    uint2 store[Rounds];
#pragma unroll
    for (int k = 0; k < Rounds; ++k)
      store[k] = load(stores + (k * all + thread));
    if (const u32 task = task_of(groups, thread); task != 0xFFFFFFFFu)
      derive(task, thread, instance);
    __syncwarp();
    const Value* const results = &kept_number(0) - (threadIdx.x & 31);
#pragma unroll
    for (int k = 0; k < Rounds; ++k)
      if (store[k].x != 0xFFFFFFFFu)
        values[store[k].x] = results[store[k].y];
  }
  __device__ void derive(u32 task, u32 thread, u64 instance) const {
    const u32 all = static_cast<u32>(threads), tasks = groups.task_end[5];
    const bool most = lane_count() == 32;
    Reads reads;
    read_ahead(reads.row, integers + task, words + task, tasks);
#pragma unroll
    for (int m = 0; m < Reads::kTerms; ++m)
      if (m < Often || most)
        read_ahead(reads.term[m], term_integers + m * SPARSERTC_TERM_INTEGERS * all + thread,
                   term_words + m * SPARSERTC_TERM_WORDS * all + thread, all);
    const u32 i = row[task];
    read_unknowns(reads.row, c.x, SPARSERTC_ROW_UNKNOWNS, SPARSERTC_ROW_NUMBERS);
#pragma unroll
    for (int m = 0; m < Reads::kTerms; ++m)
      if (m < Often || most)
        read_unknowns(reads.term[m], c.x, SPARSERTC_TERM_UNKNOWNS, SPARSERTC_TERM_NUMBERS);
    ReadsPosition at;
    term_at_hand() = kOutside;
    const ReadsHook hook{&reads, &at};
    T own = T(0);
    residual(Row(i), Unknowns<T>(c.vector(c.x, instance), c.n, SeedReads<O, I>{hook}),
             c.parameters_of(instance, hook), own);
    const Value slope = own.t.d[O]; // by the sum
    // What does not move the sum does not move the row, however steep it is.
    const bool steep = ::isinf(slope);
#pragma unroll
    for (int k = 0; k < Reads::kTerms * I; ++k) {
      const Value by = kept_number(k), product = slope * by;
      kept_number(k) = steep && by == Value(0) ? Value(0) : product;
    }
    for (int k = 0; k < O; ++k)
      kept_number(Reads::kTerms * I + k) = own.t.d[k];
  }
};

} // namespace sparsertc
