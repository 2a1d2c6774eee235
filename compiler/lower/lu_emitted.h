// The kernels of a factorization by levels that are made for one pattern (ir/lu_emitted.h): short
// columns are straight-line code with all places and lengths in it, the other entries are gathered
// by loops over tables.
//
// A column in straight-line code is a warp's work. Its rows are dealt to the lanes, 32 at a time
// (a *chunk*), in a register of each lane:
//
//   column j      lane 0   lane 1   lane 2   lane 3   ...
//   chunk 0          b        b        b        b             from B
//   source k         u ---------------------> shuffled to all lanes; times -d(k)
//                             |        |                      lanes that have a row of column k,
//                    .      fma      fma      .               a constant: its place is that of the
//   ...                                                       column plus the bits below the lane's
//   pivot            .        .      1/x      .
//
// so v(i,j) = fma(v(i,k), -(v(k,j) d(k)), v(i,j)) for k ascending, as in compiler/lower/lu_batch.h.
// Lanes without a row add zero. An entry that is gathered is b(i,j) minus the sum of
// v(i,k) * (v(k,j) d(k)): of a short task by one lane, k ascending; of a long one lane l adds every
// 32nd product from number l on, then lanes are added in pairs, the farthest first.
#pragma once

#include "compiler/lower/lu_dataflow.h"
#include "ir/lu_emitted.h"
#include "ir/lu_tables.h"
#include "ir/module.h"

#include <cstdint>
#include <string>

namespace sparsertc {

/// The kernel of LuEmitted::launches[number].
std::string lu_emitted_kernel(uint32_t number);
inline constexpr const char* kLuEmittedNotes = "sparsertc_lu_emitted_notes";
/// Of a block of the last kernel, and slots that a thread of it looks at.
inline constexpr uint32_t kLuNotesThreads = 256;
inline constexpr uint32_t kLuNotesSlots = 8;

/// A kernel for each launch, then one that takes notes; T and R are the types of the factors and of
/// their parts. Of `options` the types count.
///
///   sparsertc_lu_level_N(values: T, initial: T, column_max: i64, pivots: T, task: i32, left: i32,
///                        right: i32, pivot: i32, threshold: R)
///     the levels of launch N: values of L'+U; pivots[j] is the pivot before it was replaced.
///
///   sparsertc_lu_emitted_notes(values: T, pivots: T, slot_column: i32, column_max: i64,
///                              quotient: f64, status: i64, threshold: R, slots: i32)
///     what sparsertc_lu_factor leaves beside the values (compiler/lower/lu_dataflow.h).
ir::Module make_lu_emitted_kernels(const LuTables& tables, const LuEmitted& plan,
                                   const LuKernelOptions& options);

} // namespace sparsertc
