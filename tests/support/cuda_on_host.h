// CUDA C++ as host code, so that kernels of runtime/kernels run in tests without a GPU. To be
// included before a kernel's text:
//
//   #include "tests/support/cuda_on_host.h"
//   #include "runtime/kernels/scan.cu"
//
// The threads of a block are contexts of one thread of the host, which change at barriers, at
// exchanges between lanes and where a thread waits: between those a thread of the block runs alone.
// Blocks run on threads of their own. What is not here, does not compile; lanes of a warp must come
// to an exchange together, all that have not ended.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

namespace sparsertc::test::cuda_on_host {

/// Runs `kernel` for each thread of each block; returns when all have ended. `together`: all blocks
/// at the same time, else a few.
void run(uint32_t blocks, uint32_t threads, bool together, const std::function<void()>& kernel);

struct Index {
  uint32_t x = 0;
};
/// Of the running thread.
Index& thread_index();
Index& block_index();
Index& block_size();
Index& grid_size();

void sync_block();
void sync_warp();
/// What a thread does that waits for another block.
void spin();
/// Gives the warp `value`; the values of all its lanes, until the next exchange of this thread.
const uint64_t* exchange(uint64_t value);

inline uint32_t lane() {
  return thread_index().x % 32;
}
template <class T>
T from_lane(T value, uint32_t source) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const uint64_t theirs = exchange(bits)[source % 32];
  std::memcpy(&value, &theirs, sizeof value);
  return value;
}

} // namespace sparsertc::test::cuda_on_host

#define __global__
#define __device__
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (::sparsertc::test::cuda_on_host::thread_index())
#define blockIdx (::sparsertc::test::cuda_on_host::block_index())
#define blockDim (::sparsertc::test::cuda_on_host::block_size())
#define gridDim (::sparsertc::test::cuda_on_host::grid_size())
#define SPARSERTC_SPIN ::sparsertc::test::cuda_on_host::spin()

namespace sparsertc::kernels {

using std::copysign;
using std::fabs;
using std::fma;
using std::max;
using std::min;
using std::sqrt;

inline void __syncthreads() {
  test::cuda_on_host::sync_block();
}
inline void __syncwarp() {
  test::cuda_on_host::sync_warp();
}
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

template <class T>
T __ldcg(const T* address) {
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}
template <class T>
T __ldg(const T* address) {
  return *address;
}

template <class T>
T atomicAdd(T* address, T value) {
  if constexpr (std::is_integral_v<T>) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
  } else {
    T before;
    __atomic_load(address, &before, __ATOMIC_RELAXED);
    for (T after = before + value; !__atomic_compare_exchange(address, &before, &after, true,
                                                              __ATOMIC_RELAXED, __ATOMIC_RELAXED);
         after = before + value) {
    }
    return before;
  }
}
template <class T>
T atomicSub(T* address, T value) {
  return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicOr(T* address, T value) {
  // Not __atomic_fetch_or: with it the kernels gave wrong results when gcc 12 compiled them at -O2,
  // and right ones at -O1; its turning of a shifted 1 into a bit test is suspected.
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &before, before | value, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return before;
}
template <class T>
T atomicExch(T* address, T value) {
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicMax(T* address, T value) {
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (before < value && !__atomic_compare_exchange_n(address, &before, value, true,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}

template <class T>
T atomicMin(T* address, T value) {
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (value < before && !__atomic_compare_exchange_n(address, &before, value, true,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}

inline double __longlong_as_double(int64_t bits) {
  return std::bit_cast<double>(bits);
}
inline int64_t __double_as_longlong(double value) {
  return std::bit_cast<int64_t>(value);
}
inline int __popc(uint32_t value) {
  return __builtin_popcount(value);
}
inline int __ffs(uint32_t value) {
  return __builtin_ffs(static_cast<int>(value));
}

template <class Predicate>
uint32_t __ballot_sync(uint32_t, Predicate predicate) {
  const uint64_t* const values = test::cuda_on_host::exchange(predicate ? 1 : 0);
  uint32_t result = 0;
  for (uint32_t lane = 0; lane < 32; ++lane)
    result |= static_cast<uint32_t>(values[lane]) << lane;
  return result;
}
inline uint32_t __match_any_sync(uint32_t, uint32_t value) {
  // A lane that has ended has no value.
  const uint64_t* const values = test::cuda_on_host::exchange(value | uint64_t{1} << 32);
  uint32_t result = 0;
  for (uint32_t lane = 0; lane < 32; ++lane)
    result |= static_cast<uint32_t>(values[lane] == (value | uint64_t{1} << 32)) << lane;
  return result;
}
template <class T>
T __shfl_sync(uint32_t, T value, uint32_t source) {
  return test::cuda_on_host::from_lane(value, source);
}
template <class T>
T __shfl_up_sync(uint32_t, T value, uint32_t step) {
  const uint32_t lane = test::cuda_on_host::lane();
  return test::cuda_on_host::from_lane(value, lane >= step ? lane - step : lane);
}
template <class T>
T __shfl_down_sync(uint32_t, T value, uint32_t step) {
  const uint32_t lane = test::cuda_on_host::lane();
  return test::cuda_on_host::from_lane(value, lane + step < 32 ? lane + step : lane);
}

} // namespace sparsertc::kernels
