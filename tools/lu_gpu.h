// Sparse LU on a GPU: from the tables of a pattern to a plan with kernels.
#pragma once

#include "ir/lu_tables.h"
#include "runtime/lu/gpu_plan.h"
#include "tools/lu_backend.h"

#include <cstdint>
#include <memory>
#include <string>

namespace sparsertc {

/// Who solves: all multiprocessors, one block for each right-hand side, or the latter where its
/// vector fits into shared memory.
enum class LuGpuSolve : uint8_t { automatic, dataflow, block };

struct LuGpuOptions {
  bool single = false;           ///< factors in f32
  bool given_single = false;     ///< values, right-hand sides and solutions in f32
  bool transposed = true;        ///< whether A^T X = B can be solved, too
  uint32_t threads = 0;          ///< of a block of the dataflow kernels; 0: by the factors' size
  uint32_t products_of_lane = 4; ///< LuDataflowOptions, of the factorization
  uint32_t solve_products = 4;   ///< the same of the solve, by either kernel
  LuGpuSolve solve = LuGpuSolve::automatic;
  uint32_t block_threads = 1024; ///< of the block that solves
  uint64_t most_table_bytes = 0; ///< of the gather's tables; 0: half of the free device memory
};

/// Makes the tables and the kernels; `context` and `tables` must outlive the plan. UserError where
/// the tables do not fit.
std::unique_ptr<lu::GpuPlan> make_gpu_plan(const cuda::Context& context, const LuTables& tables,
                                           const LuGpuOptions& options, TaskPool* pool);

/// On the GPU; real numbers only. Refinement runs on the host, each of its solves on the GPU.
/// `tables`, `pattern` (of A) and `pool` must outlive it. Of `options` the types are chosen by
/// `precision`. Throws as make_gpu_plan, and NoGpuError.
std::unique_ptr<LuBackend> make_gpu_backend(const LuTables& tables, const Pattern& pattern,
                                            LuPrecision precision, TaskPool* pool,
                                            const LuGpuOptions& options = {});

} // namespace sparsertc
