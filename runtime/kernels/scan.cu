// Offsets from lengths: an exclusive sum of 32-bit numbers in 64 bits, by tiles of kScanTile.

namespace sparsertc::kernels {
namespace scan {

/// The sum over the block; `sums` is shared memory of a number a warp.
__device__ uint64_t block_sum(uint64_t value, uint64_t* sums) {
  for (uint32_t step = 16; step > 0; step /= 2)
    value += __shfl_down_sync(0xffffffffu, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    sums[threadIdx.x / 32] = value;
  __syncthreads();
  uint64_t total = 0;
  for (uint32_t warp = 0; warp < blockDim.x / 32; ++warp)
    total += sums[warp];
  return total;
}

/// The sum over the threads before this one; `total` gets the sum over the block.
__device__ uint64_t block_exclusive(uint64_t value, uint64_t* sums, uint64_t& total) {
  const uint32_t lane = threadIdx.x % 32;
  uint64_t inclusive = value;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint64_t below = __shfl_up_sync(0xffffffffu, inclusive, step);
    if (lane >= step)
      inclusive += below;
  }
  __syncthreads();
  if (lane == 31)
    sums[threadIdx.x / 32] = inclusive;
  __syncthreads();
  uint64_t before = 0;
  total = 0;
  for (uint32_t warp = 0; warp < blockDim.x / 32; ++warp) {
    if (warp < threadIdx.x / 32)
      before += sums[warp];
    total += sums[warp];
  }
  return before + inclusive - value;
}

} // namespace scan

/// The sum of each tile; a block a tile.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_scan_sum(const __grid_constant__ ScanArguments a) {
  __shared__ uint64_t sums[32];
  uint64_t value = 0;
  for (uint32_t k = threadIdx.x; k < kScanTile; k += blockDim.x) {
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kScanTile + k;
    if (i < a.size)
      value += a.length[i];
  }
  const uint64_t total = scan::block_sum(value, sums);
  if (threadIdx.x == 0)
    a.tile_sum[blockIdx.x] = total;
}

/// The sums before each tile, in place; one block.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_scan_tiles(const __grid_constant__ ScanArguments a) {
  __shared__ uint64_t sums[32];
  const uint64_t tiles = (static_cast<uint64_t>(a.size) + kScanTile - 1) / kScanTile;
  uint64_t before = 0;
  for (uint64_t first = 0; first < tiles; first += blockDim.x) {
    const uint64_t i = first + threadIdx.x;
    uint64_t total = 0;
    const uint64_t exclusive = scan::block_exclusive(i < tiles ? a.tile_sum[i] : 0, sums, total);
    if (i < tiles)
      a.tile_sum[i] = before + exclusive;
    before += total;
  }
  if (threadIdx.x == 0)
    a.offset[a.size] = before;
}

/// The offsets; a block a tile.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_scan_offsets(const __grid_constant__ ScanArguments a) {
  __shared__ uint64_t sums[32];
  uint64_t before = a.tile_sum[blockIdx.x];
  for (uint32_t first = 0; first < kScanTile; first += blockDim.x) {
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kScanTile + first + threadIdx.x;
    uint64_t total = 0;
    const uint64_t exclusive = scan::block_exclusive(i < a.size ? a.length[i] : 0, sums, total);
    if (i < a.size)
      a.offset[i] = before + exclusive;
    before += total;
  }
}

} // namespace sparsertc::kernels
