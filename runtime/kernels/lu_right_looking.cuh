// What the kernels of lu_right_looking.cu are given; included by them and by the host's code.
#pragma once

#ifdef __CUDACC_RTC__
using int32_t = int;
using int64_t = long long;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif

namespace sparsertc::kernels {

/// As in memory: real part, imaginary part.
template <class R>
struct alignas(2 * sizeof(R)) Complex {
  R re;
  R im;
};
template <class T>
struct NumberTraits {
  using Real = T;
};
template <class R>
struct NumberTraits<Complex<R>> {
  using Real = R;
};
/// float of float and Complex<float>.
template <class T>
using RealOf = typename NumberTraits<T>::Real;

/// LuSource of ir/lu_right_looking.h.
struct ColumnSource {
  uint32_t slot;
  uint32_t begin;
  uint32_t length;
};
/// LuUpdate, and its flags.
struct ColumnUpdate {
  uint64_t first_source;
  uint32_t sources;
  uint32_t column;
  uint32_t first_slot;
  uint32_t end_slot;
  uint32_t reached_slot;
  uint32_t flags;
};
constexpr uint32_t kUpdateLast = 1;
constexpr uint32_t kUpdateDense = 2;
constexpr uint32_t kUpdateRows = 4;
constexpr uint32_t kUpdateShared = 8;

/// LuStatusRecord of ir/lu_dataflow.h.
struct FactorRecord {
  int64_t largest;
  int64_t largest_input;
  int64_t perturbed;
  int64_t perturbed_column;
  int64_t zero_column;
  int64_t nonfinite_column;
};

/// T is float, double or Complex of either. L'+U in compressed columns as in ir/lu_tables.h, with
/// fewer than 2^31 slots.
template <class T>
struct RightLookingArguments {
  uint32_t size; ///< n
  uint32_t slots;
  const uint32_t* row_index;     ///< slots
  const uint32_t* column_offset; ///< size + 1
  const uint32_t* diagonal;      ///< size
  const ColumnUpdate* update;
  const ColumnSource* source;
  const uint32_t* stage_offset;

  const T* initial;    ///< slots: the matrix, zeros where only L'+U has an entry
  T* values;           ///< slots
  T* dense;            ///< a vector of `size` numbers for each warp of a launch that needs them
  int64_t* column_max; ///< size: the bits of the largest magnitude of each column of B, as f64.
                       ///< 0 again where a column is finished.
  double* quotient;    ///< size: of the pivot, before it was replaced, and that magnitude
  FactorRecord* status;
  RealOf<T> threshold;

  uint32_t first_stage;
  uint32_t end_stage;
  uint64_t* arrived; ///< of the barrier between blocks. Zero at first.
  uint64_t expected; ///< what it is when the launch begins
};

/// Columns (and rows) of a block of the dense tail. A block is kept in shared memory.
template <class T>
constexpr uint32_t kTailBlock = sizeof(T) > sizeof(double) ? 32 : 64;
/// Threads of a block of the tail's kernels.
constexpr uint32_t kTailThreads = 128;
constexpr uint32_t kTailDiagonalThreads = 256;

template <class T>
struct DenseTailArguments {
  RightLookingArguments<T> sparse;
  uint32_t first;   ///< column of the tail
  uint32_t columns; ///< of the tail
  uint32_t stride;  ///< columns, rounded up to a multiple of kTailBlock<T>
  uint32_t step;    ///< block of columns
  T* square;        ///< stride x stride, column by column
  T* scaled;        ///< kTailBlock<T> x stride: v(k,j) * d(k) of the block's rows, row by row
};

} // namespace sparsertc::kernels
