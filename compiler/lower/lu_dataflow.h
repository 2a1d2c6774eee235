// The kernels of sparse LU on the GPU: dataflow over the packets of ir/lu_dataflow.h. They are made
// for a number type and a size of block, not for a pattern, which is in tables in device memory.
//
// *The value is its own ready flag.* A number that is not there yet has all bits set, which is a
// NaN that no arithmetic makes; whoever needs it loads again until it is another one. Results are
// stored at once where they are a number, and as the canonical NaN where they are not.
//
// All blocks of a dataflow kernel must be resident at once, one warp for each stream of the tables.
#pragma once

#include "ir/module.h"

#include <cstdint>

namespace sparsertc {

struct LuKernelOptions {
  /// Of the factors, f32 or f64.
  ir::Scalar type = ir::Scalar::f64;
  /// Of the matrix's values, right-hand sides and solutions as the caller has them: the same type
  /// or f64.
  ir::Scalar given = ir::Scalar::f64;
  /// All of them are complex, of two such parts: real and imaginary part, aligned like both.
  bool complex = false;
  /// Of a block of the dataflow kernels; a multiple of a warp.
  uint32_t threads = 128;
  /// Rows of the matrix for which there is a kernel that solves with one block, its vector being in
  /// shared memory; 0 for none.
  uint32_t block_rows = 0;
  /// Of that block; a multiple of a warp.
  uint32_t block_threads = 512;
};

inline constexpr const char* kLuInputKernel = "sparsertc_lu_input";
inline constexpr const char* kLuFactorKernel = "sparsertc_lu_factor";
inline constexpr const char* kLuSolveInputKernel = "sparsertc_lu_solve_input";
inline constexpr const char* kLuSolveKernel = "sparsertc_lu_solve";
inline constexpr const char* kLuBlockInputKernel = "sparsertc_lu_block_input";
inline constexpr const char* kLuBlockSolveKernel = "sparsertc_lu_block_solve";
/// Threads of a block of the input kernels.
inline constexpr uint32_t kLuInputThreads = 256;

/// Four kernels, and two more where block_rows is not 0; T and V being the types of
/// LuKernelOptions, R the parts of T:
///
///   sparsertc_lu_input(A: V, source: i32, slot: i32, second: i32, column: i32, scale: f64,
///                      initial: T, values: T, kept: i32, column_max: i64, given_max: i64,
///                      status: i64, entries: i32, places: i32)
///     a thread for each entry of A and each place: initial[slot] = scale * A[source], rounded to
///     T, or where slot is negative values[~slot] and values[second]: those are given;
///     column_max[column] the bits of the largest magnitude (|re| + |im| where complex), as f64,
///     given_max[column] that of the given ones; so many places of values not ready, but not those
///     whose bit in kept is set; the status (LuStatusRecord) as at the beginning. column_max and
///     given_max must be 0 before.
///
///   sparsertc_lu_factor(stream: i32, group: i32, task: i32, operands: i32, values: T, initial: T,
///                       column_max: i64, given_max: i64, quotient: f64, status: i64, threshold: R)
///     the tables are those of ir/lu_dataflow.h with places instead of slots (place_factor), group
///     and gate of a packet side by side: values of L'+U, each in two places, and partial sums;
///     quotient[j] = |pivot j before it was replaced| / largest of column j of B;
///     column_max and given_max are 0 again.
///
///   sparsertc_lu_solve_input(b: V, order: i32, scale: f64, work: T, n: i32, active: i32,
///                            conditional: i32)
///     a thread for each row and block_y for each right-hand side, n numbers of b one behind the
///     other; work holds kSolveVectors vectors of n numbers for each.
///
///   sparsertc_lu_solve(stream: i32, group: i32, task: i32, operands: i32, values: T, work: T,
///                      x: V, scale: f64, n: i32, right_sides: i32, active: i32,
///                      conditional: i32)
///     x[number] = scale[number] * the unknown; x may be the memory of b.
///
///   sparsertc_lu_block_input(values: T, slot: i32, pivot: i32, numbers: T, count: i32)
///     a thread for each number of the strips of ir/lu_block_solve.h.
///
///   sparsertc_lu_block_solve(b: V, from: i32, from_scale: f64, x: V, to: i32, to_scale: f64,
///                            diagonal: i32, values: T, numbers: T, end: i32, shape: i32,
///                            records: i32, steps: i32, active: i32, conditional: i32)
///     a block for each right-hand side, along x; the tables are those of ir/lu_block_solve.h for
///     block_threads / 32 warps and block_rows rows, diagonal has the slots of the pivots. x may be
///     the memory of b. Where the solution is not finite, other unknowns may be NaN.
///
/// A solve leaves right-hand side s alone where conditional is not 0 and active[s] is 0.
ir::Module make_lu_kernels(const LuKernelOptions& options);

/// Of shared memory for the solve by one block.
inline uint64_t lu_block_solve_bytes(uint64_t rows, uint32_t factor_bytes) {
  return (rows + 1) * factor_bytes;
}

} // namespace sparsertc
