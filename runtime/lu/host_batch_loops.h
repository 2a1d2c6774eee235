// The loops of host_batch.h, compiled several times for different sets of instructions. They take
// plain pointers, and host_batch_loops.cpp includes nothing with code in it: an inline function
// that two of them shared might be linked from the one that this machine cannot run.
#pragma once

#include <cstdint>

namespace sparsertc::lu {

/// Of a group of instances: bytes of each part of a number, for all of them.
inline constexpr uint32_t kBatchLineBytes = 64;
/// Of a status word: a number of the factorization is not finite. The rest counts replaced pivots.
inline constexpr uint32_t kBatchNotFinite = 0x80000000;

/// The arrays of ir/lu_batch_loop.h.
struct BatchLoopArrays {
  const uint32_t *entry_source, *entry_slot, *entry_end;
  const double* entry_scale;
  uint64_t entries;
  const uint32_t *factor, *forward, *backward; ///< packets
  uint64_t factor_count, forward_count, backward_count;
  const uint32_t *row, *column;
  const double *row_scale, *column_scale;
  uint64_t size, unknowns; ///< rows, and the place of the first unknown
  uint64_t plus_zero, minus_zero;
};

/// A group of `used` instances, at least 1, whose numbers lie at `numbers`: number s is a line with
/// a part for each instance, of complex numbers two. Values and vectors begin with the group's
/// first instance, `instances` being the distance of entries and rows.
struct BatchLoops {
  void (*factor)(const BatchLoopArrays& arrays, const void* values, uint64_t instances,
                 uint32_t used, void* numbers, uint32_t* status, double threshold);
  void (*solve)(const BatchLoopArrays& arrays, const void* b, void* x, uint64_t instances,
                uint32_t used, void* numbers);
};

/// For f32, f64, c64, c128 in this order.
struct BatchLoopSet {
  BatchLoops of[4];
};
extern const BatchLoopSet kBatchLoopsBaseline;
#ifdef SPARSERTC_BATCH_X86
extern const BatchLoopSet kBatchLoopsAvx2;   ///< needs AVX2 and FMA
extern const BatchLoopSet kBatchLoopsAvx512; ///< needs AVX-512 F
#endif

} // namespace sparsertc::lu
