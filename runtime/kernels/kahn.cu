// Levels by Kahn's algorithm on the device, without asking the host: one cooperative launch works
// through all levels, with a queue in device memory.
//
// A level's columns are dealt in batches of 32 to groups of warps, and the edges of a batch evenly
// to the lanes of its group, so that one column of ten thousand entries at the end of a
// factorization and a hundred thousand short ones at its beginning both keep all of the device
// busy. Between levels is a barrier of all blocks; runs of levels with few edges are worked through
// by the first block alone, whose barriers are cheap, while the others wait.
//
// The level of a column does not depend on the order in which the queue was filled. Columns are
// brought into the order of levels, ascending in each, by a stable radix sort.

namespace sparsertc::kernels {
namespace levels {

constexpr uint32_t kAll = 0xffffffffu;
/// The first block works alone on levels of at most 32 columns and so many edges a thread.
constexpr uint32_t kEdgesAlone = 4;

__device__ uint32_t lane() {
  return threadIdx.x % 32;
}

/// A column of a batch: its edges are `upper` entries of its row and then `lower` of its column of
/// L.
struct Column {
  uint64_t upper_begin; ///< in columns
  uint64_t lower_begin; ///< in lower_row
  uint32_t upper;
  uint32_t edges;
  uint32_t level;
};

/// A batch as a warp sees it: each lane has one of its columns.
struct Batch {
  Column column;
  uint32_t end;   ///< of the lane's edges among those of the batch
  uint32_t total; ///< edges of the batch
};

/// The columns `first` to `end`, at most 32, of the queue, one a lane.
__device__ Column load_column(const LevelsArguments& a, uint32_t first, uint32_t end) {
  Column column;
  column.upper_begin = column.lower_begin = 0;
  column.upper = column.edges = column.level = 0;
  if (first + lane() < end) {
    const uint32_t k = __ldcg(&a.queue[first + lane()]);
    if (a.has_lower[k] != 0) {
      column.upper_begin = a.diagonal[k] + 1 - a.first_entry;
      column.upper =
          static_cast<uint32_t>(a.row_offset[k + 1] - a.first_entry - column.upper_begin);
      column.edges = column.upper;
      if (a.right_looking != 0) {
        column.lower_begin = a.lower_offset[k - a.first_row];
        column.edges +=
            static_cast<uint32_t>(a.lower_offset[k - a.first_row + 1] - column.lower_begin);
      }
    }
    column.level = __ldcg(&a.level[k]);
  }
  return column;
}

__device__ Batch make_batch(const Column& column) {
  Batch batch;
  batch.column = column;
  batch.end = column.edges;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t below = __shfl_up_sync(kAll, batch.end, step);
    if (lane() >= step)
      batch.end += below;
  }
  batch.total = __shfl_sync(kAll, batch.end, 31);
  return batch;
}

/// The same batch for all warps of the block, of which the first reads it.
__device__ Batch load_for_block(const LevelsArguments& a, uint32_t first, uint32_t end,
                                Column* shared) {
  if (threadIdx.x < 32)
    shared[lane()] = load_column(a, first, end);
  __syncthreads();
  return make_batch(shared[lane()]);
}

/// Follows the edges of a batch, of each `share` warps the part number `part`. What waits for
/// nothing any more is put into the queue from `queue_end` on, counted in `pushed`.
__device__ void follow(const LevelsArguments& a, const Batch& batch, uint32_t part, uint32_t share,
                       uint32_t queue_end, uint32_t* pushed) {
  const bool whole = a.first_row == 0 && a.last_row == a.size;
  for (uint64_t base = 32 * static_cast<uint64_t>(part); base < batch.total; base += 32 * share) {
    const uint32_t edge = static_cast<uint32_t>(base) + lane();
    uint32_t owner = 0; // the first lane whose edges end behind this one
    for (uint32_t step = 16; step > 0; step /= 2)
      if (__shfl_sync(kAll, batch.end, owner + step - 1) <= edge)
        owner += step;
    const uint32_t begin = __shfl_sync(kAll, batch.end - batch.column.edges, owner);
    const uint32_t upper = __shfl_sync(kAll, batch.column.upper, owner);
    const uint64_t upper_begin = __shfl_sync(kAll, batch.column.upper_begin, owner);
    const uint64_t lower_begin = __shfl_sync(kAll, batch.column.lower_begin, owner);
    const uint32_t next_level = __shfl_sync(kAll, batch.column.level, owner) + 1;
    bool ready = false;
    uint32_t j = 0;
    if (edge < batch.total) {
      const uint32_t number = edge - begin;
      j = number < upper ? a.columns[upper_begin + number]
                         : a.lower_row[lower_begin + (number - upper)];
      if (!whole)
        atomicMax(&a.level[j], next_level);
      if (j < a.last_row)
        ready = atomicSub(&a.missing[j], 1u) == 1;
      if (ready && whole)
        a.level[j] = next_level; // whoever was last stands in the highest level
    }
    if (const uint32_t wanting = __ballot_sync(kAll, ready); wanting != 0) {
      const uint32_t leader = __ffs(wanting) - 1;
      uint32_t place = 0;
      if (lane() == leader)
        place = atomicAdd(pushed, static_cast<uint32_t>(__popc(wanting)));
      place = __shfl_sync(kAll, place, leader) + __popc(wanting & ((1u << lane()) - 1));
      if (ready)
        a.queue[queue_end + place] = j;
    }
  }
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

} // namespace levels

/// Which columns have entries below the diagonal; a warp a row.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_levels_lower(const __grid_constant__ LevelsArguments a) {
  const uint32_t stride = gridDim.x * (blockDim.x / 32);
  uint32_t i = a.first_row + blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  for (; i < a.last_row; i += stride)
    for (uint64_t p = a.row_offset[i] + threadIdx.x % 32; p < a.diagonal[i]; p += 32)
      a.has_lower[a.columns[p - a.first_entry]] = 1;
}

/// What each column of the part waits for within the part, and the levels that earlier parts demand
/// by L; a warp a row.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_levels_count(const __grid_constant__ LevelsArguments a) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t stride = gridDim.x * (blockDim.x / 32);
  uint32_t i = a.first_row + blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  for (; i < a.last_row; i += stride) {
    if (a.has_lower[i] != 0)
      for (uint64_t p = a.diagonal[i] + 1 + lane; p < a.row_offset[i + 1]; p += 32) {
        const uint32_t j = a.columns[p - a.first_entry];
        if (j < a.last_row)
          atomicAdd(&a.missing[j], 1u);
      }
    if (a.right_looking == 0)
      continue;
    uint32_t within = 0;
    uint32_t level = 0;
    for (uint64_t p = a.row_offset[i] + lane; p < a.diagonal[i]; p += 32) {
      const uint32_t k = a.columns[p - a.first_entry];
      if (k >= a.first_row) {
        ++within;
        atomicAdd(&a.lower_length[k - a.first_row], 1u);
      } else {
        level = max(level, a.level[k] + 1);
      }
    }
    if (within != 0)
      atomicAdd(&a.missing[i], within);
    if (level != 0)
      atomicMax(&a.level[i], level);
  }
}

/// The entries of L within the part by columns, in any order; a warp a row.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_levels_transpose(const __grid_constant__ LevelsArguments a) {
  const uint32_t stride = gridDim.x * (blockDim.x / 32);
  uint32_t i = a.first_row + blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  for (; i < a.last_row; i += stride)
    for (uint64_t p = a.row_offset[i] + threadIdx.x % 32; p < a.diagonal[i]; p += 32) {
      const uint32_t k = a.columns[p - a.first_entry];
      if (k < a.first_row)
        continue;
      const uint32_t column = k - a.first_row;
      a.lower_row[a.lower_offset[column] + atomicAdd(&a.lower_next[column], 1u)] = i;
    }
}

/// The columns that wait for nothing at first.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_levels_ready(const __grid_constant__ LevelsArguments a) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t rows = a.last_row - a.first_row;
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x - lane;
  for (; first < rows; first += stride) {
    const uint32_t j = a.first_row + static_cast<uint32_t>(first) + lane;
    const bool ready = j < a.last_row && a.missing[j] == 0;
    const uint32_t wanting = __ballot_sync(levels::kAll, ready);
    uint32_t place = 0;
    if (lane == 0 && wanting != 0)
      place = atomicAdd(a.ready, static_cast<uint32_t>(__popc(wanting)));
    place = __shfl_sync(levels::kAll, place, 0) + __popc(wanting & ((1u << lane) - 1));
    if (ready)
      a.queue[place] = j;
  }
}

/// All levels of a part; a cooperative launch.
extern "C" __global__ void __launch_bounds__(512)
    sparsertc_levels_kahn(const __grid_constant__ LevelsArguments a) {
  using namespace levels;
  __shared__ Column columns[32];
  __shared__ uint32_t pushed_alone[2];
  const uint32_t block_warps = blockDim.x / 32;
  const uint32_t all_warps = gridDim.x * block_warps;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t most_alone = kEdgesAlone * blockDim.x;
  uint64_t expected = 0;
  uint32_t begin = 0;
  uint32_t count = __ldcg(a.ready);
  // Rounds by all blocks and by the first one. Each counts in one number while the next is zero
  // already; a slow block may still read the one before.
  uint32_t round = 0;
  uint32_t round_alone = 0;
  if (threadIdx.x < 2)
    pushed_alone[threadIdx.x] = 0;
  while (count != 0) {
    const bool narrow = count <= 32;
    Batch batch;
    if (narrow)
      batch = load_for_block(a, begin, begin + count, columns);
    if (narrow && batch.total <= most_alone) {
      if (blockIdx.x == 0) {
        do {
          if (threadIdx.x == 0)
            pushed_alone[(round_alone + 1) % 2] = 0;
          uint32_t* const pushed = &pushed_alone[round_alone % 2];
          follow(a, batch, warp, block_warps, begin + count, pushed);
          __threadfence_block();
          __syncthreads();
          begin += count;
          count = *pushed;
          ++round_alone;
          batch = load_for_block(a, begin, begin + min(count, 32u), columns);
        } while (count != 0 && count <= 32 && batch.total <= most_alone);
        if (threadIdx.x == 0) {
          a.state[0] = begin;
          a.state[1] = count;
        }
      }
      grid_barrier(a.arrived, expected);
      begin = __ldcg(&a.state[0]);
      count = __ldcg(&a.state[1]);
      continue;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
      a.pushed[(round + 2) % 3] = 0;
    uint32_t* const pushed = &a.pushed[(round + 1) % 3];
    const uint32_t number = blockIdx.x * block_warps + warp;
    const uint32_t batches = (count - 1) / 32 + 1;
    const uint32_t share = max(1u, all_warps / batches);
    for (uint64_t q = number; q < static_cast<uint64_t>(batches) * share; q += all_warps) {
      const uint32_t which = static_cast<uint32_t>(q / share);
      if (!narrow)
        batch = make_batch(load_column(a, begin + 32 * which, begin + count));
      follow(a, batch, static_cast<uint32_t>(q % share), share, begin + count, pushed);
    }
    grid_barrier(a.arrived, expected);
    begin += count;
    count = __ldcg(pushed);
    ++round;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0)
    a.state[0] = begin; // so many columns have a level
}

/// The greatest level.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_levels_maximum(const __grid_constant__ RadixArguments a) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint32_t greatest = 0;
  for (uint64_t v = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; v < a.size;
       v += stride)
    greatest = max(greatest, a.level[v]);
  for (uint32_t step = 16; step > 0; step /= 2)
    greatest = max(greatest, __shfl_down_sync(levels::kAll, greatest, step));
  if (threadIdx.x % 32 == 0)
    atomicMax(a.maximum, greatest);
}

/// How often each tile has each digit.
extern "C" __global__ void __launch_bounds__(128)
    sparsertc_radix_count(const __grid_constant__ RadixArguments a) {
  __shared__ uint32_t length[4][kRadixDigits];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t tiles = (a.size - 1) / kRadixTile + 1;
  const uint32_t tile = blockIdx.x * 4 + warp;
  for (uint32_t d = lane; d < kRadixDigits; d += 32)
    length[warp][d] = 0;
  __syncwarp();
  if (tile >= tiles)
    return;
  for (uint32_t k = lane; k < kRadixTile; k += 32) {
    const uint32_t p = tile * kRadixTile + k;
    if (p < a.size)
      atomicAdd(&length[warp][(a.level[a.source ? a.source[p] : p] >> a.shift) % kRadixDigits], 1u);
  }
  __syncwarp();
  for (uint32_t d = lane; d < kRadixDigits; d += 32)
    a.length[d * tiles + tile] = length[warp][d];
}

/// Puts the columns of each tile to their places.
extern "C" __global__ void __launch_bounds__(128)
    sparsertc_radix_scatter(const __grid_constant__ RadixArguments a) {
  __shared__ uint32_t next[4][kRadixDigits];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t tiles = (a.size - 1) / kRadixTile + 1;
  const uint32_t tile = blockIdx.x * 4 + warp;
  if (tile >= tiles)
    return;
  for (uint32_t d = lane; d < kRadixDigits; d += 32)
    next[warp][d] = static_cast<uint32_t>(a.offset[d * tiles + tile]);
  __syncwarp();
  for (uint32_t k = lane; k < kRadixTile; k += 32) {
    const uint32_t p = tile * kRadixTile + k;
    const bool inside = p < a.size;
    const uint32_t column = inside ? (a.source ? a.source[p] : p) : 0;
    // Lanes behind the end have a digit of their own.
    const uint32_t digit = inside ? (a.level[column] >> a.shift) % kRadixDigits : kRadixDigits;
    const uint32_t same = __match_any_sync(levels::kAll, digit);
    const uint32_t before = __popc(same & ((1u << lane) - 1));
    const uint32_t place = inside ? next[warp][digit] + before : 0;
    __syncwarp();
    if (inside) {
      a.target[place] = column;
      if (before == 0)
        next[warp][digit] += __popc(same);
    }
    __syncwarp();
  }
}

/// Where each level begins among the sorted columns.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_levels_offset(const __grid_constant__ RadixArguments a) {
  const uint64_t p = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (p >= a.size)
    return;
  const uint32_t level = a.level[a.source[p]];
  if (p == 0 || a.level[a.source[p - 1]] != level)
    a.level_offset[level] = static_cast<uint32_t>(p);
}

} // namespace sparsertc::kernels
