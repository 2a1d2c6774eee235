// The kernels of iterative refinement on the GPU: everything between the solves. What is decided is
// decided there: the host enqueues the largest number of steps, and those that come after the end
// find that there is nothing to do.
//
//   begin      b is kept; r = b, x = 0
//   [solve     r := U^-1 D^-1 L'^-1 r, where the right-hand side is active
//   (compiler/lower/lu_dataflow.h)
//    update    x := x + r; sizes of both
//    residual  r := b - A x, by rows of A in the caller's order; backward errors of the rows
//    decide    keep this solution? go on?]                             again and again
//   end        the best solution
//
// The rules are those of runtime/lu/refine.h. Sums run in an order that n and the pattern fix, so
// results are the same bits in every run.
#pragma once

#include "ir/module.h"

namespace sparsertc {

struct LuRefineOptions {
  bool complex = false;
  /// Whether the solution is rounded to single precision (each part of it).
  bool single_solution = false;
  /// Whether matrix, right-hand sides and solutions come in single precision, and residuals go to
  /// the solve in it; single_solution is then true. What is kept in between is in double precision.
  bool given_single = false;
};

inline constexpr const char* kLuRefineBegin = "sparsertc_lu_refine_begin";
inline constexpr const char* kLuRefineUpdate = "sparsertc_lu_refine_update";
inline constexpr const char* kLuRefineResidual = "sparsertc_lu_refine_residual";
inline constexpr const char* kLuRefineDecide = "sparsertc_lu_refine_decide";
inline constexpr const char* kLuRefineEnd = "sparsertc_lu_refine_end";
/// Threads of a block of each of them.
inline constexpr uint32_t kLuRefineThreads = 256;

/// Five kernels; numbers V are f64, or pairs of them where complex, numbers G are V, or of single
/// precision where they are given so. Vectors hold n numbers for each
/// right-hand side, which is block_y:
///
///   sparsertc_lu_refine_begin(b: G, kept: V, r: G, x: V, best: V, record: i64, active: i32, n:
///   i32)
///     a thread for each row.
///   sparsertc_lu_refine_update(r: G, x: V, best: V, scale: f64, record: i64, active: i32,
///                              parts: i64, n: i32)
///     at most kLuRefineUpdateParts blocks; scale[i] is that of unknown i.
///   sparsertc_lu_refine_residual(offset: i32, index: i32, source: i32, A: G, kept: V, r: G, x: V,
///                                active: i32, update_parts: i64, update_blocks: i32, parts: i64,
///                                n: i32)
///     kLuRefineResidualParts warps, or at least one for each row. Rows of A (or of its transpose)
///     have the entries offset[i] to offset[i + 1]: column index[p], value A[source[p]].
///   sparsertc_lu_refine_decide(record: i64, active: i32, update_parts: i64, update_blocks: i32,
///                              parts: i64, residual_warps: i32, target: f64, slowest: f64)
///     one block; a backward error of at most `target` is the end of it.
///   sparsertc_lu_refine_end(x: V, best: V, solution: G, record: i64, n: i32)
///     a thread for each row; solution may be the memory of b.
ir::Module make_lu_refine_kernels(const LuRefineOptions& options);

} // namespace sparsertc
