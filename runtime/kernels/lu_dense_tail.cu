// The dense tail of a right-looking factorization (ir/lu_right_looking.h), included by
// lu_right_looking.cu: a blocked LU without exchanges of rows, in the form L' D U of the rest.
//
//        step                       a block of kTailBlock<T> columns and rows:
//     . . . . . . .
//     . D W W W W W     diagonal    D is factorized by one block of threads
//     . L x x x x x     panels      L' below it, a row for each thread; U beside it, a column for
//     . L x x x x x                 each thread, and W = D U
//     . L x x x x x     update      x = x - L' W, tiles of a block's size
//
// Every entry has its products subtracted one after the other, k ascending, each rounded once, so
// neither the size of blocks nor that of tiles changes a bit.

namespace sparsertc::kernels {
namespace dense_tail {

using right_looking::lane;
using right_looking::Seen;

/// Of a tile of the update that one step of its loop holds in shared memory.
constexpr uint32_t kDepth = 16;

/// Entries of L'+U take their places, all others are zero. A warp has a column.
template <class T>
__device__ void load(const DenseTailArguments<T>& a) {
  const RightLookingArguments<T>& s = a.sparse;
  const uint32_t column = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (column >= a.stride)
    return;
  T* const to = a.square + static_cast<uint64_t>(column) * a.stride;
  for (uint32_t row = lane(); row < a.stride; row += 32)
    to[row] = T{};
  __syncwarp();
  if (column >= a.columns)
    return;
  const uint32_t j = a.first + column;
  const uint32_t end = s.column_offset[j + 1];
  const uint32_t begin = right_looking::lower_bound(s.row_index, s.column_offset[j], end, a.first);
  for (uint32_t slot = begin + lane(); slot < end; slot += 32)
    to[s.row_index[slot] - a.first] = s.values[slot];
}

/// The block on the diagonal, by one block of threads. A thread has row `row` of every
/// kStride-th column. Reciprocals take the pivots' places, also in `values`.
template <class T>
__device__ void diagonal(const DenseTailArguments<T>& a) {
  constexpr uint32_t kSize = kTailBlock<T>;
  constexpr uint32_t kStride = kTailDiagonalThreads / kSize;
  constexpr uint32_t kMine = kSize / kStride;
  __shared__ T left[2][kSize];  // column k
  __shared__ T right[2][kSize]; // row k
  __shared__ T pivot[kSize];
  __shared__ RealOf<T> least[kSize];
  const RightLookingArguments<T>& s = a.sparse;
  const uint32_t first = a.step * kSize;
  const uint32_t size = min(kSize, a.columns - first);
  const uint32_t row = threadIdx.x % kSize, group = threadIdx.x / kSize;
  T* const square = a.square + static_cast<uint64_t>(first) * a.stride + first;
  if (threadIdx.x < size)
    least[threadIdx.x] =
        s.threshold *
        static_cast<RealOf<T>>(__longlong_as_double(s.column_max[a.first + first + threadIdx.x]));
  T mine[kMine];
#pragma unroll
  for (uint32_t m = 0; m < kMine; ++m)
    mine[m] = square[static_cast<uint64_t>(group + kStride * m) * a.stride + row];
#pragma unroll
  for (uint32_t m = 0; m < kMine; ++m) {
    for (uint32_t owner = 0; owner < kStride; ++owner) {
      const uint32_t k = kStride * m + owner;
      if (k >= size)
        break;
      // Two of each, so that nobody writes what others still read.
      T* const l = left[k % 2];
      T* const r = right[k % 2];
      if (group == owner)
        l[row] = mine[m];
      if (row == k) {
#pragma unroll
        for (uint32_t c = 0; c < kMine; ++c)
          r[group + kStride * c] = mine[c];
      }
      __syncthreads();
      const T value = r[k];
      const T used = magnitude(value) < least[k] ? with_phase(value, least[k]) : value;
      const T inverse = reciprocal(used);
      if (row == k && group == owner) {
        pivot[k] = value;
        mine[m] = inverse;
      }
      if (row > k) {
        const T factor = minus(l[row]);
#pragma unroll
        for (uint32_t c = 0; c < kMine; ++c) {
          const uint32_t column = group + kStride * c;
          if (c >= m && column > k)
            mine[c] = times_plus(factor, times(r[column], inverse), mine[c]);
        }
      }
    }
  }
#pragma unroll
  for (uint32_t m = 0; m < kMine; ++m)
    square[static_cast<uint64_t>(group + kStride * m) * a.stride + row] = mine[m];
  __syncthreads();
  Seen seen = {0, 0};
  if (threadIdx.x < size) {
    const uint32_t column = a.first + first + threadIdx.x;
    const T value = pivot[threadIdx.x];
    const T inverse = right_looking::finish_pivot(s, column, value, seen);
    s.values[s.diagonal[column]] = inverse;
    seen.largest = static_cast<double>(magnitude(value));
    if (!is_finite(value) || !is_finite(inverse))
      right_looking::note_column(&s.status->nonfinite_column, column);
    if (!(seen.largest >= 0))
      seen.largest = 0;
  }
  right_looking::note_largest(s.status, seen);
}

/// Of a panel, what a thread has in registers.
constexpr uint32_t kPart = 16;

/// A row of L', entry k at row[k * stride]. block[m][k] = v(m,k) d(m), m before k.
template <class T>
__device__ void solve_row(const DenseTailArguments<T>& a, T* row, const T (*block)[kTailBlock<T>]) {
  const uint64_t stride = a.stride;
  for (uint32_t part = 0; part < kTailBlock<T>; part += kPart) {
    T x[kPart];
#pragma unroll
    for (uint32_t k = 0; k < kPart; ++k)
      x[k] = row[(part + k) * stride];
#pragma unroll 4
    for (uint32_t m = 0; m < part; ++m) {
      const T factor = minus(row[m * stride]);
#pragma unroll
      for (uint32_t k = 0; k < kPart; ++k)
        x[k] = times_plus(factor, block[m][part + k], x[k]);
    }
#pragma unroll
    for (uint32_t m = 0; m < kPart; ++m) {
#pragma unroll
      for (uint32_t k = m + 1; k < kPart; ++k)
        x[k] = times_plus(minus(x[m]), block[part + m][part + k], x[k]);
      row[(part + m) * stride] = x[m];
    }
  }
}

/// A column of U, and the same times d, entry k at scaled[k * stride]. block[m][k] = v(k,m), m
/// before k.
template <class T>
__device__ void solve_column(const DenseTailArguments<T>& a, T* column, T* scaled,
                             const T (*block)[kTailBlock<T>], const T* inverse) {
  const uint64_t stride = a.stride;
  for (uint32_t part = 0; part < kTailBlock<T>; part += kPart) {
    T x[kPart];
#pragma unroll
    for (uint32_t k = 0; k < kPart; ++k)
      x[k] = column[part + k];
#pragma unroll 4
    for (uint32_t m = 0; m < part; ++m) {
      const T factor = minus(scaled[m * stride]);
#pragma unroll
      for (uint32_t k = 0; k < kPart; ++k)
        x[k] = times_plus(block[m][part + k], factor, x[k]);
    }
#pragma unroll
    for (uint32_t m = 0; m < kPart; ++m) {
      const T product = times(x[m], inverse[part + m]);
#pragma unroll
      for (uint32_t k = m + 1; k < kPart; ++k)
        x[k] = times_plus(minus(block[part + m][part + k]), product, x[k]);
      column[part + m] = x[m];
      scaled[(part + m) * stride] = product;
    }
  }
}

/// L' below the block and U beside it; the first blocks of threads have rows, the others columns.
template <class T>
__device__ void panels(const DenseTailArguments<T>& a) {
  constexpr uint32_t kSize = kTailBlock<T>;
  __shared__ T block[kSize][kSize];
  __shared__ T inverse[kSize];
  const uint32_t first = a.step * kSize, behind = first + kSize;
  const uint32_t groups = (a.stride - behind + kTailThreads - 1) / kTailThreads;
  const bool has_row = blockIdx.x < groups;
  const T* const square = a.square + static_cast<uint64_t>(first) * a.stride + first;
  if (threadIdx.x < kSize)
    inverse[threadIdx.x] = square[static_cast<uint64_t>(threadIdx.x) * a.stride + threadIdx.x];
  __syncthreads();
  // For rows: block[m][k] = v(m,k) d(m), m before k. For columns: block[m][k] = v(k,m), m before k.
  for (uint32_t i = threadIdx.x; i < kSize * kSize; i += kTailThreads) {
    const uint32_t row = i % kSize, column = i / kSize;
    const T value = square[static_cast<uint64_t>(column) * a.stride + row];
    if (has_row)
      block[row][column] = times(value, inverse[row]);
    else
      block[column][row] = value;
  }
  __syncthreads();
  const uint32_t number =
      behind + (has_row ? blockIdx.x : blockIdx.x - groups) * kTailThreads + threadIdx.x;
  if (number >= a.stride)
    return;
  if (has_row)
    solve_row(a, a.square + static_cast<uint64_t>(first) * a.stride + number, block);
  else
    solve_column(a, a.square + static_cast<uint64_t>(number) * a.stride + first, a.scaled + number,
                 block, inverse);
}

/// A tile of what is behind the block: `tiles` of them along each side, number blockIdx.x.
template <class T>
__device__ void update(const DenseTailArguments<T>& a) {
  constexpr uint32_t kSize = kTailBlock<T>;
  // Of the tile, what a thread holds: there are 16 x 8 of them.
  constexpr uint32_t kRows = kSize / 16, kColumns = kSize / 8;
  __shared__ T left[kDepth][kSize];
  __shared__ T right[kDepth][kSize];
  const uint32_t first = a.step * kSize, behind = first + kSize;
  const uint32_t tiles = (a.stride - behind) / kSize;
  const uint32_t row = behind + blockIdx.x % tiles * kSize;
  const uint32_t column = behind + blockIdx.x / tiles * kSize;
  const uint32_t my_row = threadIdx.x % 16 * kRows, my_column = threadIdx.x / 16 * kColumns;
  const T* const l = a.square + static_cast<uint64_t>(first) * a.stride + row;
  const T* const w = a.scaled + column;
  T* const to = a.square + static_cast<uint64_t>(column + my_column) * a.stride + row + my_row;
  T sum[kColumns][kRows];
#pragma unroll
  for (uint32_t j = 0; j < kColumns; ++j)
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i)
      sum[j][i] = to[static_cast<uint64_t>(j) * a.stride + i];
  for (uint32_t base = 0; base < kSize; base += kDepth) {
#pragma unroll
    for (uint32_t i = 0; i < kDepth * kSize / kTailThreads; ++i) {
      const uint32_t place = i * kTailThreads + threadIdx.x;
      const uint32_t k = place / kSize, at = place % kSize;
      left[k][at] = l[static_cast<uint64_t>(base + k) * a.stride + at];
      right[k][at] = w[static_cast<uint64_t>(base + k) * a.stride + at];
    }
    __syncthreads();
#pragma unroll
    for (uint32_t k = 0; k < kDepth; ++k) {
      T x[kRows], y[kColumns];
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i)
        x[i] = left[k][my_row + i];
#pragma unroll
      for (uint32_t j = 0; j < kColumns; ++j)
        y[j] = right[k][my_column + j];
#pragma unroll
      for (uint32_t j = 0; j < kColumns; ++j)
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i)
          sum[j][i] = times_plus(minus(x[i]), y[j], sum[j][i]);
    }
    __syncthreads();
  }
#pragma unroll
  for (uint32_t j = 0; j < kColumns; ++j)
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i)
      to[static_cast<uint64_t>(j) * a.stride + i] = sum[j][i];
}

/// Entries go back to their places; all of a column is looked at. A warp has a column.
template <class T>
__device__ void store(const DenseTailArguments<T>& a) {
  const RightLookingArguments<T>& s = a.sparse;
  const uint32_t column = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (column >= a.columns)
    return;
  const T* const from = a.square + static_cast<uint64_t>(column) * a.stride;
  const uint32_t j = a.first + column, pivot = s.diagonal[j];
  Seen seen = {0, 0};
  bool finite = true;
  for (uint32_t slot = s.column_offset[j] + lane(); slot < s.column_offset[j + 1]; slot += 32) {
    if (slot == pivot)
      continue; // it is there, and has been looked at
    const uint32_t row = s.row_index[slot];
    T value;
    if (row < a.first) {
      value = s.values[slot];
    } else {
      value = from[row - a.first];
      s.values[slot] = value;
    }
    const double size = static_cast<double>(magnitude(value));
    seen.largest = size > seen.largest ? size : seen.largest;
    finite = finite && is_finite(value);
  }
  if (!finite)
    right_looking::note_column(&s.status->nonfinite_column, j);
  __syncwarp();
  right_looking::note_largest(s.status, seen);
}

} // namespace dense_tail

} // namespace sparsertc::kernels
