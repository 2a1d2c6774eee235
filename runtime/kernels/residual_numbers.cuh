// The numbers that a residual's program computes with, what can go wrong, and how arrays are read.
//
// Stands at the beginning of the program, which says beforehand
//
//   SPARSERTC_REAL        double or float
//   SPARSERTC_VALUE       of derivatives: the same, or float; on the host the same
//   SPARSERTC_BATCH       1 where parameters or vectors differ by instance, else 0
//   SPARSERTC_CHECKED     1 where indices are compared with the arrays' lengths
//   SPARSERTC_LOOP_LIMIT  iterations that one loop may take
//   SPARSERTC_SHARED      1 where lanes of a warp share tasks; not on the host, in batches, and
//                         where the residual is whole
//   SPARSERTC_READS       1 where a call writes down what rows read, 2 where one is told
//                         beforehand (residual_reads.cuh), else 0

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
#ifdef __CUDACC__
inline constexpr int kMostThreads = 128; // of a block
#endif

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

/// A number's bits, in the lower ones of a word.
__device__ inline u64 word_of(double number) {
#ifdef __CUDACC__
  return static_cast<u64>(__double_as_longlong(number));
#else
  return __builtin_bit_cast(u64, number);
#endif
}
__device__ inline u64 word_of(float number) {
#ifdef __CUDACC__
  return __float_as_uint(number);
#else
  return __builtin_bit_cast(u32, number);
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

} // namespace sparsertc
