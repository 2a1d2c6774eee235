// `sparsertc solve --batch`: many matrices of one pattern, factorized and solved at once.
#pragma once

#include "compiler/assemble/assembler.h"
#include "compiler/input/matrix.h"
#include "compiler/lower/lu_batch.h"
#include "ir/lu_batch_loop.h"
#include "ir/lu_tables.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/host/task_pool.h"
#include "runtime/lu/factors.h"
#include "runtime/lu/gpu_batch.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// Instance s has the values of A, each times a random factor from 0.9 to 1.1, and b = A * ones.
struct LuBatchRequest {
  uint64_t instances = 0;
  uint64_t seed = 1;
  unsigned repeat = 1; ///< timed runs of each phase; the median counts
  lu::FactorOptions factor;
  LuBatchOptions code;
};

struct LuBatchReport {
  std::string device; ///< "gpu" or "cpu"
  /// Of one instance, when all are done at once (GPU) or by all threads (CPU).
  double factor_ns = 0;
  double solve_ns = 0;
  uint64_t multiply_adds = 0;
  uint64_t replaced = 0;   ///< pivots of all instances
  uint64_t not_finite = 0; ///< instances
  /// The largest relative residual, without refinement, of the instances that were looked at.
  double residual = 0;
  uint64_t checked = 0;
  std::string strategy; ///< "unrolled" for the pattern, or "looped" by tables
  /// Of the CPU: "avx512", say. 0 and empty on the GPU.
  unsigned threads = 0;
  std::string instructions;
  /// Of the GPU's code; empty and 0 on the CPU.
  std::string assembler;
  double assemble_ms = 0;
  uint64_t code_bytes = 0;
  uint32_t registers = 0; ///< a thread of the factorization
};

/// The kernels of compiler/lower/lu_batch.h for a GPU, or those of lu_batch_loop.h with their
/// tables where the options do not allow to unroll: machine code, or PTX where its driver does not
/// take what the assembler makes.
struct LuBatchCode {
  std::vector<uint8_t> image;
  std::optional<LuBatchLoop> loop;
  uint64_t numbers = 0; ///< of an instance
  bool complex = false;
  uint32_t number_bytes = 8; ///< of each
  uint32_t vector_bytes = 8; ///< of the numbers of right-hand sides and solutions
  uint32_t factor_threads = 0, solve_threads = 0; ///< of a block
  std::string assembler;
  double assemble_ms = 0;
};
LuBatchCode make_lu_batch_code(const cuda::Context& gpu, const Assembler& assembler,
                               const LuTables& tables, const LuBatchOptions& options,
                               TaskPool& pool);
/// Loads it and takes the memory for the factors; `gpu` and `tables` must outlive the batch.
std::unique_ptr<lu::GpuBatch> load_lu_batch(const cuda::Context& gpu, const LuBatchCode& code,
                                            const LuTables& tables, uint64_t instances);

/// On the GPU, in the precision of the request's code, each launch timed as a graph. UserError
/// where the memory is too small.
LuBatchReport run_gpu_batch(const cuda::Context& gpu, const Assembler& assembler, const Matrix& a,
                            const LuTables& tables, const LuBatchRequest& request, TaskPool& pool);

/// By runtime/lu/host_batch.h, in the precision of the request's code, complex where A is.
LuBatchReport run_cpu_batch(const Matrix& a, const LuTables& tables, const LuBatchRequest& request,
                            TaskPool& pool);

} // namespace sparsertc
