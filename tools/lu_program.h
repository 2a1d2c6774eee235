// Sparse LU on a GPU: from the tables of a pattern to tables for one GPU and kernels.
#pragma once

#include "compiler/emit/target.h"
#include "compiler/inspect/lu_strategy.h"
#include "ir/lu_emitted.h"
#include "ir/lu_tables.h"
#include "ir/module.h"
#include "runtime/host/task_pool.h"
#include "runtime/lu/gpu_plan.h"

#include <cstdint>
#include <optional>

namespace sparsertc {

class Assembler;
class Cache;

/// Who solves: all multiprocessors, one block for each right-hand side, or the latter where its
/// vector fits into shared memory.
enum class LuGpuSolve : uint8_t { automatic, dataflow, block };

struct LuGpuOptions {
  bool single = false;       ///< factors in f32, or c64
  bool given_single = false; ///< values, right-hand sides and solutions in f32, or c64
  bool complex = false;
  bool transposed = true;        ///< whether A^T X = B can be solved, too
  uint32_t threads = 0;          ///< of a block of the dataflow kernels; 0: by the factors' size
  uint32_t products_of_lane = 4; ///< LuDataflowOptions, of the factorization
  uint32_t solve_products = 4;   ///< the same of the solve, by either kernel
  LuGpuSolve solve = LuGpuSolve::automatic;
  uint32_t block_threads = 1024; ///< of the block that solves
  uint64_t most_table_bytes = 0; ///< of the gather's tables; 0: half of the device memory there is
  /// How to factorize. What is not dataflow needs NVRTC where the plan is made.
  LuStrategy strategy = LuStrategy::dataflow;
  LuStageFusion fusion = LuStageFusion::automatic;
  bool atomics = false;                 ///< LuRightLookingOptions
  std::optional<uint32_t> tail_columns; ///< the same
  /// Multiply-adds in straight-line code, of kernels that are made for the pattern.
  uint64_t budget = LuEmittedOptions().most_multiply_adds;
  /// Assembles these, if given; else the driver does, which takes longer.
  const Assembler* assembler = nullptr;
  uint64_t memory_limit = 0; ///< of device memory, for the choice; 0: what is free
  Cache* cache = nullptr;    ///< for what NVRTC compiles, if given
};

/// The GPU that the tables are made for.
struct LuGpuDevice {
  Target target;
  uint32_t multiprocessors = 0;
  uint64_t shared_bytes_per_block = 0; ///< with opt-in
  uint64_t memory_bytes = 0;           ///< that may be used
  bool nvrtc = true;                   ///< LuStrategyRequest
};

struct LuGpuProgram {
  ir::Module module;
  /// Without an image; names are those of compiler/lower/lu_dataflow.h.
  lu::GpuCode code;
  lu::GpuFlows flows; ///< without a strategy
  LuStrategyChoice choice;
  /// Where columns are worked on by levels: what lu::GpuRightLooking needs.
  std::optional<LuRightLooking> right_looking;
  /// Where kernels are made for the pattern: what lu::GpuEmitted needs, and these.
  std::optional<LuEmitted> emitted;
  ir::Module emitted_module;
};

/// UserError where the tables do not fit, or where one block is asked to solve and cannot.
LuGpuProgram make_lu_program(const LuTables& tables, const LuGpuDevice& device,
                             const LuGpuOptions& options, TaskPool* pool);

} // namespace sparsertc
