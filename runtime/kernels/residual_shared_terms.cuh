// Derivatives of rows with a sum whose terms several lanes of a warp share. Stands after
// residual_kernels.cuh, on the GPU alone.
//
// Such an evaluation takes a few microseconds: what counts is how many loads wait for each other
// and how many sectors of memory a warp touches. So all that a thread needs stands beside what its
// neighbours need (runtime/jacobian/shared_terms.h), and a warp's results are exchanged in shared
// memory and stored in the order of their places.

namespace sparsertc {

/// A term's derivative times that of the row by its sum: what does not move the sum does not move
/// the row, however steep it is.
__device__ inline Value through_sum(Value slope, Value by) {
  return by == Value(0) && ::isinf(slope) ? Value(0) : slope * by;
}

/// Derivatives of a row by O columns of its own and I of each of its sum's terms
/// (ir/jacobian_tables.h: TermTasks).
template <int O, int I>
struct SharedTermsCall {
  Value* values;
  const u32* head;     ///< [2 + O][thread]: the row; lanes, terms, rounds of stores; its columns
  const u32* columns;  ///< [term of the thread][I][thread]
  const uint2* stores; ///< [round][thread]: a place, and which of the block's results belongs there
  u64 threads;
  u64 most_terms; ///< of a thread
  Common c;
  using T = Dual<Real, typename SeedTerms<O, I>::Tangent>;
  __device__ u64 tasks() const { return threads; }
  __device__ void operator()(u64 thread64, u64 instance) const {
    constexpr u32 kEarly = O + 2 * I; // rounds of stores that are read before they are needed
    const u32 thread = static_cast<u32>(thread64), all = static_cast<u32>(threads);
    const u32 row = load(head + thread), counts = load(head + all + thread);
    ColumnArray<O> outer;
    for (int k = 0; k < O; ++k)
      outer[k] = load(head + (2 + k) * all + thread);
    const u32 lanes = counts & 63, terms = counts >> 6 & 1023, rounds = counts >> 16;
    uint2 store[kEarly];
    for (u32 k = 0; k < kEarly; ++k)
      store[k] = k < rounds ? load(stores + k * all + thread) : make_uint2(0xFFFFFFFFu, 0);
#pragma unroll 2
    for (u32 term = 0; term < terms; ++term)
      for (u32 i = 0; i < I; ++i)
        stage_column(term * I + i, load(columns + (term * I + i) * all + thread));
    Value* const results = &kept_number(0) - threadIdx.x;
    if (lanes != 0) {
      lanes_of_task() = lanes;
      TermState& state = term_state();
      state = {nullptr, terms, 0, true};
      T own = T(0);
      residual(Row(row), Unknowns<T>(c.vector(c.x, instance), c.n, SeedTerms<O, I>(outer)),
               c.parameters_of(instance), own);
      const Value slope = own.t.d[O]; // by the sum
      const u32 kept = state.kept;
#pragma unroll 1
      for (u32 term = 0; term < terms; ++term)
        for (u32 i = 0; i < I; ++i) {
          Value& own_number = kept_number(term * I + i);
          own_number = term < kept ? through_sum(slope, own_number) : Value(0);
        }
      for (int k = 0; k < O; ++k)
        kept_number(static_cast<u32>(most_terms) * I + k) = own.t.d[k];
    }
    __syncwarp();
    const u32 warp = threadIdx.x & ~31u;
    for (u32 k = 0; k < kEarly; ++k)
      if (store[k].x != 0xFFFFFFFFu)
        values[store[k].x] = results[warp + store[k].y];
#pragma unroll 1
    for (u32 k = kEarly; k < rounds; ++k)
      if (const uint2 late = load(stores + k * all + thread); late.x != 0xFFFFFFFFu)
        values[late.x] = results[warp + late.y];
  }
};

} // namespace sparsertc
