// Sparse LU of many matrices of one pattern at once, by the tables of ir/lu_batch_loop.h: kernels
// for a number type, and not for a pattern. A lane works on its own matrix; what the tables say is
// the same for all lanes, which read neighbours in memory.
#pragma once

#include "compiler/lower/lu_batch.h"
#include "ir/module.h"

#include <cstdint>

namespace sparsertc {

/// The kernels have the names, the block and the grid of those in compiler/lower/lu_batch.h, their
/// numbers stand in memory in the same way, and so do values, right-hand sides and solutions. After
/// their parameters come the tables:
///
///   sparsertc_lu_batch_factor(values: T, factors: T, status: i32, instances: i32, threshold: T,
///                             numbers: i32, source: i32, slot: i32, end: i32, scale: f64,
///                             entries: i32, packets: i32, count: i32)
///   sparsertc_lu_batch_solve(b: V, x: V, factors: T, instances: i32,
///                            numbers: i32, row: i32, row_scale: f64, column: i32,
///                            column_scale: f64, n: i32, forward: i32, forward_count: i32,
///                            backward: i32, backward_count: i32)
///
/// `entries` counts the padding, `count` packets; one more packet may be read behind the last. A
/// factorization leaves the zeros that a solve needs. Of the options only types count.
///
/// A complex number is its two parts beside one another, of one instance; in a product each part
/// has two roundings, and of zeros the sign is not said.
ir::Module make_lu_batch_loop_kernels(const LuBatchOptions& options);

} // namespace sparsertc
