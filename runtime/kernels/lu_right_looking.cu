// Right-looking sparse LU by levels (ir/lu_right_looking.h): GLU's hybrid column algorithm (He,
// Tan, Wang and Shi, "GPU-accelerated parallel sparse LU factorization method for fast circuit
// analysis", IEEE TVLSI 24, 2016), turned around so that a warp owns the column that is written to.
// Then no two warps add to one number, and every sum has a fixed order.
//
// A warp takes 32 sources at a time, a lane reads one's place and factor. Short sources, which are
// most, are laid one behind the other and dealt to the lanes, 32 products a step; lanes that meet
// at one entry take turns in the order of sources. Long ones come one after the other, all lanes on
// one.
#include "lu_number.cuh"
#include "lu_right_looking.cuh"

/// What a thread does while it waits for another.
#ifndef SPARSERTC_SPIN
#define SPARSERTC_SPIN
#endif

namespace sparsertc::kernels {
namespace right_looking {

constexpr uint32_t kAll = 0xffffffffu;
/// Sources of so many rows on average come one after the other.
constexpr uint32_t kLongSource = 32;
/// Products of a lane that are loaded before the first is subtracted: as many as there are
/// registers for.
template <class T>
constexpr uint32_t kAtOnce = sizeof(T) > sizeof(double) ? 2 : 4;

__device__ uint32_t lane() {
  return threadIdx.x % 32;
}

/// The first place from `first` to `end` whose row is not below `row`.
__device__ uint32_t lower_bound(const uint32_t* rows, uint32_t first, uint32_t end, uint32_t row) {
  while (first < end) {
    const uint32_t middle = first + (end - first) / 2;
    if (rows[middle] < row)
      first = middle + 1;
    else
      end = middle;
  }
  return first;
}

/// The entries of an update, as its warp works on them.
template <class T>
struct Target {
  T* number;            ///< the dense vector, or the values by slot
  const uint32_t* rows; ///< of all slots
  uint32_t first_slot;  ///< that sources reach
  uint32_t end_slot;
  bool dense;
  bool shared;

  /// Where row `row` stands, which is the entry number `count` of `length` entries, ascending,
  /// that the column has all.
  __device__ uint32_t place(uint32_t row, uint32_t first, uint32_t count, uint32_t length) const {
    if (dense)
      return row;
    // So many rows are before it, and so many behind it.
    return lower_bound(rows, first + count, end_slot - (length - count), row);
  }
  __device__ void subtract(uint32_t place, T left, T right) const {
    if (shared && !dense)
      atomic_add(&number[place], minus(times(left, right)));
    else
      number[place] = times_plus(minus(left), right, number[place]);
  }
};

/// A source as the lane sees that read it: column j of L', or the rows of it that are asked for.
template <class T>
struct Source {
  uint32_t begin;
  uint32_t length;
  T factor; ///< v(j,k) * d(j)
};

template <class T>
__device__ Source<T> load_source(const RightLookingArguments<T>& a, const ColumnUpdate& update,
                                 uint32_t number) {
  Source<T> source = {0, 0, T{}};
  if (number >= update.sources)
    return source;
  const ColumnSource column = a.source[update.first_source + number];
  source.begin = column.begin;
  uint32_t end = column.begin + column.length;
  source.factor = times(a.values[column.slot], a.values[column.begin - 1]);
  if (update.flags & kUpdateRows) {
    source.begin = lower_bound(a.row_index, source.begin, end, a.row_index[update.reached_slot]);
    if (update.end_slot < a.column_offset[update.column + 1])
      end = lower_bound(a.row_index, source.begin, end, a.row_index[update.end_slot]);
  }
  source.length = end - source.begin;
  return source;
}

/// Subtracts one source with all lanes.
template <class T>
__device__ void subtract_long(const RightLookingArguments<T>& a, const Target<T>& target,
                              const Source<T>& source) {
  if (source.length == 0)
    return;
  // The fewer rows the column has between those of the source, the shorter the bisections. Where it
  // has none, rows need not be looked at.
  const uint32_t first =
      target.dense ? 0
                   : lower_bound(a.row_index, target.first_slot, target.end_slot - source.length,
                                 a.row_index[source.begin]);
  const bool same_rows = !target.dense && target.end_slot - first == source.length;
  for (uint32_t base = 0; base < source.length; base += 32 * kAtOnce<T>) {
    T left[kAtOnce<T>] = {};
    uint32_t place[kAtOnce<T>] = {};
    for (uint32_t i = 0; i < kAtOnce<T>; ++i) {
      const uint32_t count = base + 32 * i + lane();
      if (count < source.length) {
        left[i] = a.values[source.begin + count];
        place[i] = same_rows ? first + count
                             : target.place(a.row_index[source.begin + count], first, count,
                                            source.length);
      }
    }
    if (!target.shared && base + 32 * kAtOnce<T> <= source.length) {
      T number[kAtOnce<T>];
      for (uint32_t i = 0; i < kAtOnce<T>; ++i)
        number[i] = target.number[place[i]];
      for (uint32_t i = 0; i < kAtOnce<T>; ++i)
        target.number[place[i]] = times_plus(minus(left[i]), source.factor, number[i]);
      continue;
    }
    for (uint32_t i = 0; i < kAtOnce<T>; ++i)
      if (base + 32 * i + lane() < source.length)
        target.subtract(place[i], left[i], source.factor);
  }
}

/// Subtracts the sources of all lanes, whose products are laid one behind the other; `end` of this
/// lane's is their number up to its last.
template <class T>
__device__ void subtract_short(const RightLookingArguments<T>& a, const Target<T>& target,
                               const Source<T>& source, uint32_t end, uint32_t total) {
  for (uint32_t base = 0; base < total; base += 32) {
    const uint32_t product = base + lane();
    uint32_t owner = 0; // the first lane whose products end behind this one
    for (uint32_t step = 16; step > 0; step /= 2)
      if (__shfl_sync(kAll, end, owner + step - 1) <= product)
        owner += step;
    const uint32_t length = __shfl_sync(kAll, source.length, owner);
    const uint32_t count = product - (__shfl_sync(kAll, end, owner) - length);
    const uint32_t begin = __shfl_sync(kAll, source.begin, owner);
    const T factor = from_lane(source.factor, owner);
    const bool inside = product < total;
    T left{};
    uint32_t place = kAll - lane(); // like no other
    if (inside) {
      left = a.values[begin + count];
      place = target.place(a.row_index[begin + count], target.first_slot, count, length);
    }
    const uint32_t before =
        __popc(__match_any_sync(kAll, place) & ((static_cast<uint32_t>(1) << lane()) - 1));
    for (uint32_t turn = 0; __ballot_sync(kAll, inside && before >= turn) != 0; ++turn) {
      if (inside && before == turn)
        target.subtract(place, left, factor);
      __syncwarp();
    }
  }
}

template <class T>
__device__ void subtract_sources(const RightLookingArguments<T>& a, const ColumnUpdate& update,
                                 const Target<T>& target) {
  for (uint32_t first = 0; first < update.sources; first += 32) {
    const Source<T> source = load_source(a, update, first + lane());
    const uint32_t count = min(update.sources - first, static_cast<uint32_t>(32));
    uint32_t end = source.length;
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t below = __shfl_up_sync(kAll, end, step);
      if (lane() >= step)
        end += below;
    }
    const uint32_t total = __shfl_sync(kAll, end, 31);
    if (total < count * kLongSource) {
      subtract_short(a, target, source, end, total);
      continue;
    }
    for (uint32_t s = 0; s < count; ++s) {
      const Source<T> one = {__shfl_sync(kAll, source.begin, s),
                             __shfl_sync(kAll, source.length, s), from_lane(source.factor, s)};
      subtract_long(a, target, one);
      __syncwarp();
    }
  }
}

/// What a thread has seen of finished columns.
struct Seen {
  double largest;
  int64_t largest_input;
};

__device__ void note_column(int64_t* least, uint32_t column) {
  atomicMin(least, static_cast<int64_t>(column));
}

/// Looks at the pivot of a column: one that is too small is replaced, with its sign or phase kept.
/// One lane does it. The reciprocal takes its place.
template <class T>
__device__ T finish_pivot(const RightLookingArguments<T>& a, uint32_t column, T value, Seen& seen) {
  const int64_t bits = a.column_max[column];
  const double largest = __longlong_as_double(bits);
  const RealOf<T> least = a.threshold * static_cast<RealOf<T>>(largest);
  const RealOf<T> size = magnitude(value);
  const bool small = size < least;
  const T pivot = small ? with_phase(value, least) : value;
  a.column_max[column] = 0;
  a.quotient[column] = static_cast<double>(size) / largest;
  seen.largest_input = max(seen.largest_input, bits);
  if (small) {
    atomicAdd(reinterpret_cast<uint64_t*>(&a.status->perturbed), static_cast<uint64_t>(1));
    note_column(&a.status->perturbed_column, column);
  }
  if (bits == 0)
    note_column(&a.status->zero_column, column);
  return reciprocal(pivot);
}

template <class T>
__device__ void finish_column(const RightLookingArguments<T>& a, const ColumnUpdate& update,
                              Seen& seen) {
  const uint32_t pivot = a.diagonal[update.column];
  bool finite = true;
  for (uint32_t slot = update.first_slot + lane(); slot < update.end_slot; slot += 32) {
    const T value = a.values[slot];
    const double size = static_cast<double>(magnitude(value));
    seen.largest = size > seen.largest ? size : seen.largest;
    finite = finite && is_finite(value);
    if (slot == pivot) {
      const T inverse = finish_pivot(a, update.column, value, seen);
      a.values[slot] = inverse;
      finite = finite && is_finite(inverse);
    }
  }
  if (!finite)
    note_column(&a.status->nonfinite_column, update.column);
}

template <class T>
__device__ void work_on(const RightLookingArguments<T>& a, const ColumnUpdate& update, T* dense,
                        Seen& seen) {
  Target<T> target = {a.values,        a.row_index, update.reached_slot,
                      update.end_slot, false,       (update.flags & kUpdateShared) != 0};
  if (update.flags & kUpdateDense) {
    target.dense = true;
    target.number = dense;
    for (uint32_t slot = target.first_slot + lane(); slot < target.end_slot; slot += 32)
      dense[a.row_index[slot]] = target.shared ? T{} : a.values[slot];
    __syncwarp();
  }
  subtract_sources(a, update, target);
  __syncwarp();
  if (target.dense)
    for (uint32_t slot = target.first_slot + lane(); slot < target.end_slot; slot += 32) {
      const T number = dense[a.row_index[slot]];
      if (target.shared)
        atomic_add(&a.values[slot], number);
      else
        a.values[slot] = number;
    }
  __syncwarp();
  if (update.flags & kUpdateLast)
    finish_column(a, update, seen);
}

/// All blocks wait for one another; all of them must be resident.
__device__ void grid_barrier(uint64_t* arrived, uint64_t& expected) {
  __syncthreads();
  if (threadIdx.x == 0) {
    expected += gridDim.x;
    __threadfence();
    atomicAdd(arrived, static_cast<uint64_t>(1));
    while (*static_cast<volatile uint64_t*>(arrived) < expected)
      SPARSERTC_SPIN;
    __threadfence();
  }
  __syncthreads();
}

/// Of a warp.
__device__ void note_largest(FactorRecord* status, Seen seen) {
  int64_t largest = __double_as_longlong(seen.largest);
  for (uint32_t step = 16; step > 0; step /= 2) {
    largest = max(largest, __shfl_down_sync(kAll, largest, step));
    seen.largest_input = max(seen.largest_input, __shfl_down_sync(kAll, seen.largest_input, step));
  }
  if (lane() == 0 && largest != 0)
    atomicMax(&status->largest, largest);
  if (lane() == 0 && seen.largest_input != 0)
    atomicMax(&status->largest_input, seen.largest_input);
}

/// The stages of a launch.
template <class T>
__device__ void run_stages(const RightLookingArguments<T>& a) {
  const uint32_t block_warps = blockDim.x / 32;
  const uint32_t warp = blockIdx.x * block_warps + threadIdx.x / 32;
  const uint32_t warps = gridDim.x * block_warps;
  T* const dense = a.dense == nullptr ? nullptr : a.dense + static_cast<uint64_t>(warp) * a.size;
  Seen seen = {0, 0};
  uint64_t expected = a.expected;
  for (uint32_t stage = a.first_stage; stage < a.end_stage; ++stage) {
    const uint32_t end = a.stage_offset[stage + 1];
    for (uint32_t number = a.stage_offset[stage] + warp; number < end; number += warps)
      work_on(a, a.update[number], dense, seen);
    if (stage + 1 == a.end_stage)
      break;
    if (gridDim.x == 1)
      __syncthreads();
    else
      grid_barrier(a.arrived, expected);
  }
  note_largest(a.status, seen);
}

/// The matrix takes its place.
template <class T>
__device__ void begin(const RightLookingArguments<T>& a) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (uint64_t slot = first; slot < a.slots; slot += stride)
    a.values[slot] = a.initial[slot];
  if (first == 0)
    *a.arrived = 0;
}

} // namespace right_looking

} // namespace sparsertc::kernels

#include "lu_dense_tail.cu"

namespace sparsertc::kernels {

// The entries for one type of numbers.
#define SPARSERTC_LU_ENTRY(name, type, threads, function, Arguments)                               \
  extern "C" __global__ void __launch_bounds__(threads)                                            \
      sparsertc_lu_##name##_##type(const __grid_constant__ Arguments<number_types::type> a) {      \
    function(a);                                                                                   \
  }
#define SPARSERTC_LU_ENTRIES(type)                                                                 \
  SPARSERTC_LU_ENTRY(right_begin, type, 256, right_looking::begin, RightLookingArguments)          \
  SPARSERTC_LU_ENTRY(right_stages, type, 1024, right_looking::run_stages, RightLookingArguments)   \
  SPARSERTC_LU_ENTRY(tail_load, type, kTailThreads, dense_tail::load, DenseTailArguments)          \
  SPARSERTC_LU_ENTRY(tail_diagonal, type, kTailDiagonalThreads, dense_tail::diagonal,              \
                     DenseTailArguments)                                                           \
  SPARSERTC_LU_ENTRY(tail_panels, type, kTailThreads, dense_tail::panels, DenseTailArguments)      \
  SPARSERTC_LU_ENTRY(tail_update, type, kTailThreads, dense_tail::update, DenseTailArguments)      \
  SPARSERTC_LU_ENTRY(tail_store, type, kTailThreads, dense_tail::store, DenseTailArguments)

namespace number_types {
using f32 = float;
using f64 = double;
using c64 = Complex<float>;
using c128 = Complex<double>;
} // namespace number_types

#ifdef SPARSERTC_LU_NUMBER // no other is wanted, and compiling takes its time
#define SPARSERTC_LU_ENTRIES_OF(type) SPARSERTC_LU_ENTRIES(type)
SPARSERTC_LU_ENTRIES_OF(SPARSERTC_LU_NUMBER)
#undef SPARSERTC_LU_ENTRIES_OF
#else
SPARSERTC_LU_ENTRIES(f32)
SPARSERTC_LU_ENTRIES(f64)
SPARSERTC_LU_ENTRIES(c64)
SPARSERTC_LU_ENTRIES(c128)
#endif
#undef SPARSERTC_LU_ENTRIES
#undef SPARSERTC_LU_ENTRY

} // namespace sparsertc::kernels
