// Sparse LU of many matrices of one pattern at once: straight-line code for the pattern, a lane for
// each matrix (an *instance*), every place in memory a constant.
//
// Instances stand in groups of a warp. The numbers of a group are one behind the other, each for
// all lanes: number s of instance g * 32 + lane is factors[(g * numbers + s) * 32 + lane], so one
// pointer and a constant offset reach all of them. Slots of L'+U (ir/lu_tables.h) come first, then
// a number for what a cut inside a column carries over for each warp, then z and x of a solve.
//
// The matrices' values are values[entry * instances + instance], entries in the caller's order;
// right-hand sides and solutions are b[row * instances + instance], x[column * instances +
// instance].
#pragma once

#include "ir/lu_tables.h"
#include "ir/module.h"

#include <cstdint>
#include <string_view>

namespace sparsertc {

struct LuBatchOptions {
  /// Of all numbers, f32 or f64; of their parts, where they are complex. These are worked through
  /// by tables alone (lu_batch_loop.h).
  ir::Scalar type = ir::Scalar::f64;
  bool complex = false;
  /// Right-hand sides and solutions are f64 where the factors are f32, rounded after scaling.
  bool wide_vectors = false;
  /// A device function ends when it has so many operations.
  uint32_t operations_of_function = 1500;
  /// Numbers that are remembered to be in registers.
  uint32_t window = 64;
  /// Operands that are loaded before the one that is needed now.
  uint32_t ahead = 24;
  /// Of a block, which share its instances' columns (compiler/inspect/lu_batch_shares.h); from 1 to
  /// kLuBatchMostWarps. Kernels whose columns cannot be shared have fewer.
  uint32_t warps = 4;
  /// Of a thread, at most; 0: as many as allow four blocks on a multiprocessor.
  uint32_t registers = 0;
  /// More multiply-adds than this are refused: assembling takes time for each.
  uint64_t most_multiply_adds = 300000;
};

inline constexpr const char* kLuBatchFactorKernel = "sparsertc_lu_batch_factor";
inline constexpr const char* kLuBatchSolveKernel = "sparsertc_lu_batch_solve";
/// Instances of a group, which a block has.
inline constexpr uint32_t kLuBatchLanes = 32;
inline constexpr uint32_t kLuBatchMostWarps = 8;
/// A status word: the number of replaced pivots, and this bit where a number of the factorization
/// is not finite (so it is for a column of zeros).
inline constexpr uint32_t kLuBatchNotFinite = 0x80000000;

/// Whether the options allow to unroll this pattern; else compiler/lower/lu_batch_loop.h.
bool is_unrolled(const LuTables& tables, const LuBatchOptions& options);
/// Of right-hand sides and solutions.
ir::Scalar lu_batch_vector_type(const LuBatchOptions& options);
/// Numbers of one instance in the memory `factors`.
uint64_t lu_batch_numbers(const LuTables& tables);

/// Two kernels, a block for each group of instances; T is the type of the options, V that of
/// vectors, and what is scaled is rounded once:
///
///   sparsertc_lu_batch_factor(values: T, factors: T, status: i32, instances: i32, threshold: T)
///     v(i,j) of L'+U, the products subtracted in the order of k, each with one rounding:
///     fma(v(i,k), -(v(k,j) d(k)), v(i,j)); status[instance] as above. A pivot below threshold
///     times the largest of its column of B becomes that, with its sign.
///
///   sparsertc_lu_batch_solve(b: V, x: V, factors: T, instances: i32)
///     forward: k ascending, z(i) = d(i) fma(-L'(i,k), z(k), y(i)); backward: k descending,
///     s = fma(U(i,k), x(k), s) from the first product on, x(i) = fma(-s, d(i), z(i)). b and x must
///     not overlap.
///
/// The kernels' blocks are as large as the module says (lu_batch_threads). UserError where it is
/// not to be unrolled.
ir::Module make_lu_batch(const LuTables& tables, const LuBatchOptions& options = {});

/// Threads of a block of a kernel.
uint32_t lu_batch_threads(const ir::Module& module, std::string_view kernel);

} // namespace sparsertc
