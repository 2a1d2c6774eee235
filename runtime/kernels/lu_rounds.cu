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
  const unsigned long long* words;
  const unsigned* begin;
  const unsigned long long* input;
  const unsigned* input_begin;
  const double* input_scale;
  const unsigned* zero;
  const unsigned* row; ///< of A, by row of B; so are the columns
  const double* row_scale;
  const unsigned* column;
  const double* column_scale;
  unsigned zeros;
  unsigned size; ///< n
  unsigned slots;
  unsigned factor_rounds;
  unsigned solve_rounds;
  unsigned unused;
};

/// A segment with its first terms, read before they are needed.
struct LuSegment {
  unsigned long long head;
  unsigned long long terms[4];

  __device__ void read(const unsigned long long* word) {
    head = __ldg(word);
    for (int t = 0; t < 4; ++t)
      terms[t] = __ldg(word + 1 + t);
  }
};

/// The numbers of an instance.
struct LuNumbers {
  double* own;
  __device__ double& operator()(unsigned long long number) const {
    return own[static_cast<unsigned>(number & 0xFFFF) * SPARSERTC_LU_GROUP];
  }
};

/// sum, less `count` terms of four.
template <int count>
__device__ inline double less(double sum, const LuNumbers& number,
                              const unsigned long long (&terms)[4]) {
  double left[count], minus[count];
  for (int t = 0; t < count; ++t) {
    left[t] = number(terms[t]);
    minus[t] = -(number(terms[t] >> 16) * number(terms[t] >> 32));
  }
  for (int t = 0; t < count; ++t)
    sum = fma(left[t], minus[t], sum);
  return sum;
}

/// A worker's segments of so many rounds; `segment` is the one at `word`, and what follows them
/// afterwards.
__device__ inline void run_rounds(const LuRoundsCall& call, unsigned rounds,
                                  const unsigned long long*& word, LuSegment& segment,
                                  const LuNumbers& number, bool& finite, unsigned& replaced) {
  for (unsigned round = 0; round < rounds; ++round) {
    for (bool more = true; more;) {
      const unsigned long long head = segment.head;
      const unsigned count = static_cast<unsigned>(head >> 16) & 0xFFFF;
      const unsigned finish = static_cast<unsigned>(head >> 32) & 0xFF;
      more = (head >> 40 & 1) != 0;
      unsigned long long terms[4];
      for (int t = 0; t < 4; ++t)
        terms[t] = segment.terms[t];
      const unsigned long long* at = word + 5;
      word += 1 + count;
      segment.read(word);
      double sum = number(head);
      unsigned left = count;
      for (; left > 4; left -= 4, at += 4) {
        unsigned long long next[4];
        for (int t = 0; t < 4; ++t)
          next[t] = __ldg(at + t);
        sum = less<4>(sum, number, terms);
        for (int t = 0; t < 4; ++t)
          terms[t] = next[t];
      }
      switch (left) {
      case 4:
        sum = less<4>(sum, number, terms);
        break;
      case 3:
        sum = less<3>(sum, number, terms);
        break;
      case 2:
        sum = less<2>(sum, number, terms);
        break;
      case 1:
        sum = less<1>(sum, number, terms);
        break;
      }
      double& other = number(head >> 48);
      switch (finish) {
      case 2: { // pivot
        const double least = call.threshold * other;
        if (fabs(sum) < least) {
          sum = copysign(least, sum);
          ++replaced;
        }
        sum = 1 / sum;
        other = -0.0;
      }
      // fall through
      case 1: // entry
        finite = finite && sum - sum == 0;
      // fall through
      case 0: // store
        number(head) = sum;
        break;
      case 3:   // unknown
      case 4: { // unknown_alone
        double& y = number((head & 0xFFFF) - call.size);
        const double z = y * other;
        y = finish == 3 ? fma(-sum, other, z) : z;
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
  double* const own = numbers + lane;
  const unsigned y = call.slots, minus_one = call.slots + 2 * call.size;
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
        own[static_cast<unsigned>(word[k] >> 32 & 0xFFFF) * kGroup] = value[k];
        largest = fabs(value[k]) > largest ? fabs(value[k]) : largest;
        if (word[k] >> 48 != 0) {
          own[static_cast<unsigned>(word[k] >> 48) * kGroup] = largest;
          largest = 0;
        }
      }
    }
#pragma unroll 4
    for (unsigned i = worker; i < call.size; i += kWorkers)
      own[(y + i) * kGroup] =
          __ldg(call.b + __ldg(call.row + i) * call.instances + at) * __ldg(call.row_scale + i);
    for (unsigned z = worker; z < call.zeros; z += kWorkers)
      own[__ldg(call.zero + z) * kGroup] = 0;
    if (worker == 0) {
      own[minus_one * kGroup] = -1;
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

    const unsigned long long* word = call.words + __ldg(call.begin + worker);
    LuSegment segment;
    segment.read(word);
    const LuNumbers number{own};
    run_rounds(call, call.factor_rounds, word, segment, number, finite, replaced);
    if (replaced != 0)
      atomicAdd(&status[lane], replaced);
    if (!finite)
      atomicOr(&status[lane], 0x80000000u);
    run_rounds(call, call.solve_rounds, word, segment, number, finite, replaced);
    // Also where there are no rounds.
    __syncthreads();

    if (exists) {
      for (unsigned i = worker; i < call.size; i += kWorkers)
        call.x[__ldg(call.column + i) * call.instances + at] =
            own[(y + i) * kGroup] * __ldg(call.column_scale + i);
      if (worker == 0)
        call.status[instance] = status[lane];
    }
    __syncthreads();
  }
}

} // namespace sparsertc::kernels
