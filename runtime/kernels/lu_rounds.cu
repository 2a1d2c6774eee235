// Factorizes and solves small systems of one pattern, many at once, by the rounds of
// ir/lu_rounds.h: the numbers of a group of instances stay in shared memory from the matrix to the
// solution. The program says beforehand
//
//   SPARSERTC_LU_GROUP    instances of a group, a power of 2: threads of a worker
//   SPARSERTC_LU_THREADS  of a block: workers times that
//
// runtime/lu/gpu_rounds.h has the same struct.

#ifdef __CUDACC__
#define SPARSERTC_NUMBERS extern __shared__ double numbers[]
#define SPARSERTC_PREFETCH(address) asm volatile("prefetch.global.L2 [%0];" ::"l"(address))
#endif

namespace sparsertc::kernels {

struct LuRoundsCall {
  const double* values; ///< [entry of A][instance]
  const double* b;      ///< [row of A][instance]
  double* x;            ///< [column of A][instance]
  unsigned* status; ///< by instance: replaced pivots, and the highest bit where not all is finite
  unsigned long long instances;
  double threshold;
  double* largest; ///< of the columns of B: [block][column][lane]
  const unsigned* words;
  const unsigned* begin;
  const unsigned long long* input;
  const unsigned* input_begin;
  const double* input_scale;
  const unsigned* zero;
  const unsigned* empty_column;
  const unsigned* row; ///< of A, by row of B; so are the columns
  const double* row_scale;
  const unsigned* column;
  const double* column_scale;
  unsigned word_count;
  unsigned zeros;
  unsigned empty_columns;
  unsigned size; ///< n
  unsigned numbers;
  unsigned first_lower;
  unsigned first_y;
  unsigned factor_rounds;
  unsigned solve_rounds;
  unsigned unused;
};

/// A segment with its first terms, read before they are needed.
struct LuSegment {
  unsigned head;
  unsigned terms[4];

  __device__ void read(const unsigned* word) {
    head = word[0];
    for (int t = 0; t < 4; ++t)
      terms[t] = word[1 + t];
  }
};

/// The numbers of an instance.
struct LuNumbers {
  double* own;
  __device__ double& operator[](unsigned number) const { return own[number * SPARSERTC_LU_GROUP]; }
};

/// A worker's segments of so many rounds; `segment` is the one at `word`, and what follows them
/// afterwards. `largest`: of the instance.
__device__ inline void run_rounds(const LuRoundsCall& call, unsigned rounds, const unsigned*& word,
                                  LuSegment& segment, const LuNumbers& numbers,
                                  const double* largest, bool& finite, unsigned& replaced) {
  for (unsigned round = 0; round < rounds; ++round) {
    for (bool more = true; more;) {
      const unsigned head = segment.head, number = head & 0x7FF, finish = head >> 21 & 7;
      unsigned left = head >> 11 & 0x3FF;
      more = (head >> 24 & 1) != 0;
      unsigned terms[4];
      for (int t = 0; t < 4; ++t)
        terms[t] = segment.terms[t];
      const unsigned* next = word + 5;
      word += 1 + left;
      segment.read(word);
      const double bound = finish == 2 ? call.threshold * largest[number * SPARSERTC_LU_GROUP] : 0;
      double sum = (head >> 25 & 1) != 0 ? -0.0 : numbers[number];
      for (;;) {
        double factor[4] = {}, minus[4] = {};
        for (unsigned t = 0; t < 4; ++t)
          if (t < left) {
            factor[t] = numbers[terms[t] & 0x7FF];
            minus[t] = -(numbers[terms[t] >> 11 & 0x7FF] * numbers[terms[t] >> 22]);
          }
        for (unsigned t = 0; t < 4; ++t)
          if (t < left)
            sum = fma(factor[t], minus[t], sum);
        if (left <= 4)
          break;
        left -= 4;
        for (int t = 0; t < 4; ++t)
          terms[t] = next[t];
        next += 4;
      }
      switch (finish) {
      case 2: // pivot
        if (fabs(sum) < bound) {
          sum = copysign(bound, sum);
          ++replaced;
        }
        sum = 1 / sum;
        // fall through
      case 1: // entry
        finite = finite && sum - sum == 0;
        // fall through
      case 0: // store
        numbers[number] = sum;
        break;
      case 3:   // unknown
      case 4: { // unknown_alone
        const unsigned i = number - call.first_lower;
        double& y = numbers[call.first_y + i];
        const double d = numbers[i], z = y * d;
        y = finish == 3 ? fma(-sum, d, z) : z;
        break;
      }
      }
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(SPARSERTC_LU_THREADS)
    sparsertc_lu_rounds(const __grid_constant__ LuRoundsCall call) {
  constexpr unsigned kGroup = SPARSERTC_LU_GROUP, kWorkers = SPARSERTC_LU_THREADS / kGroup;
  constexpr unsigned kBatch = 12; // loads of a thread at once
  SPARSERTC_NUMBERS;
  __shared__ unsigned status[kGroup];
  const unsigned lane = threadIdx.x % kGroup, worker = threadIdx.x / kGroup;
  const LuNumbers own{numbers + lane};
  unsigned* const words = reinterpret_cast<unsigned*>(numbers + call.numbers * kGroup);
  double* const own_largest =
      call.largest + static_cast<unsigned long long>(blockIdx.x) * call.size * kGroup + lane;
  for (unsigned k = threadIdx.x; k < call.word_count; k += SPARSERTC_LU_THREADS)
    words[k] = __ldg(call.words + k);
  const unsigned begin = __ldg(call.begin + worker);
  const unsigned long long groups = (call.instances + kGroup - 1) / kGroup;
  for (unsigned long long group = blockIdx.x; group < groups; group += gridDim.x) {
    const unsigned long long instance = group * kGroup + lane;
    const bool exists = instance < call.instances;
    // Threads without an instance do what others do, and keep it to themselves.
    const unsigned long long at = exists ? instance : call.instances - 1;

    bool finite = true;
    unsigned replaced = 0;
    const unsigned first = __ldg(call.input_begin + worker),
                   last = __ldg(call.input_begin + worker + 1);
    double largest = 0;
    for (unsigned p = first; p < last; p += kBatch) {
      unsigned long long word[kBatch];
      double value[kBatch];
      for (unsigned k = 0; k < kBatch; ++k) { // all of them on their way before one is used
        const unsigned one = p + k < last ? p + k : last - 1;
        word[k] = __ldg(call.input + one);
        value[k] = __ldg(call.values + (word[k] & 0xFFFFFFFF) * call.instances + at) *
                   __ldg(call.input_scale + one);
      }
      for (unsigned k = 0; k < kBatch && p + k < last; ++k) {
        finite = finite && value[k] - value[k] == 0;
        own[static_cast<unsigned>(word[k] >> 32 & 0xFFFF)] = value[k];
        largest = fabs(value[k]) > largest ? fabs(value[k]) : largest;
        if (word[k] >> 48 != 0) {
          own_largest[(static_cast<unsigned>(word[k] >> 48) - 1) * kGroup] = largest;
          largest = 0;
        }
      }
    }
#pragma unroll 4
    for (unsigned i = worker; i < call.size; i += kWorkers)
      own[call.first_y + i] =
          __ldg(call.b + __ldg(call.row + i) * call.instances + at) * __ldg(call.row_scale + i);
    for (unsigned z = worker; z < call.zeros; z += kWorkers)
      own[__ldg(call.zero + z)] = 0;
    for (unsigned z = worker; z < call.empty_columns; z += kWorkers)
      own_largest[__ldg(call.empty_column + z) * kGroup] = 0;
    if (worker == 0) {
      own[call.size] = -1;
      status[lane] = 0;
    }
    // What the next group will read.
    if (lane == 0 && group + gridDim.x < groups) {
      const unsigned long long next = (group + gridDim.x) * kGroup;
      for (unsigned p = first; p < last; ++p)
        SPARSERTC_PREFETCH(call.values + (__ldg(call.input + p) & 0xFFFFFFFF) * call.instances +
                           next);
      for (unsigned i = worker; i < call.size; i += kWorkers)
        SPARSERTC_PREFETCH(call.b + __ldg(call.row + i) * call.instances + next);
    }
    __syncthreads();

    const unsigned* word = words + begin;
    LuSegment segment;
    segment.read(word);
    run_rounds(call, call.factor_rounds, word, segment, own, own_largest, finite, replaced);
    if (replaced != 0)
      atomicAdd(&status[lane], replaced);
    if (!finite)
      atomicOr(&status[lane], 0x80000000u);
    run_rounds(call, call.solve_rounds, word, segment, own, own_largest, finite, replaced);
    // Also where there are no rounds.
    __syncthreads();

    if (exists) {
      for (unsigned i = worker; i < call.size; i += kWorkers)
        call.x[__ldg(call.column + i) * call.instances + at] =
            own[call.first_y + i] * __ldg(call.column_scale + i);
      if (worker == 0)
        call.status[instance] = status[lane];
    }
    __syncthreads();
  }
}

} // namespace sparsertc::kernels
