// Sparse LU on the GPU: the tables and kernels of one pattern, and the numbers of one matrix with
// that pattern. README.md says how the kernels work.
#pragma once

#include "ir/lu_block_solve.h"
#include "ir/lu_dataflow.h"
#include "ir/lu_tables.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/lu/factors.h"
#include "runtime/lu/gpu_places.h"
#include "runtime/lu/gpu_strategy.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace sparsertc::lu {

/// The kernels of compiler/lower/lu_dataflow.h for one pair of types.
struct GpuCode {
  std::span<const uint8_t> image; ///< PTX or a cubin
  const char* input = nullptr;    ///< names of the kernels
  const char* factor = nullptr;
  const char* solve_input = nullptr;
  const char* solve = nullptr;
  const char* block_input = nullptr; ///< null where no solve is by one block
  const char* block_solve = nullptr;
  uint32_t input_threads = 0;      ///< of a block of the input kernels
  uint32_t dataflow_threads = 0;   ///< of a block of the dataflow kernels
  uint32_t block_threads = 0;      ///< of the block that solves
  uint32_t block_shared_bytes = 0; ///< that it asks for at its launch (dynamic ones)
  bool complex = false;            ///< whether numbers have a real and an imaginary part
  uint32_t factor_bytes = 0;       ///< of a number of the factors: 4, 8 or 16
  uint32_t given_bytes = 0;        ///< of a number of matrix, right-hand side and solution
};

/// What the inspector made.
struct GpuFlows {
  /// A solve by all multiprocessors, or by one block for each right-hand side.
  using Solve = std::variant<LuDataflow, LuBlockSolve>;
  LuDataflow factor;
  /// Another way to factorize; `factor` is then empty.
  std::shared_ptr<const GpuFactorStrategy> strategy;
  Solve solve;
  /// Without it there is no solve with the transposed matrix.
  std::optional<Solve> transposed;
};

/// The streams (warps) that the tables should be made for: one block on each multiprocessor.
uint32_t gpu_streams(uint32_t multiprocessors, uint32_t dataflow_threads);

/// Tables on the GPU.
using GpuTable = std::unique_ptr<cuda::DeviceBuffer>;
struct GpuDataflowTables {
  GpuTable stream, group, task, operands;
  uint32_t partial_sums = 0;
  uint32_t blocks = 0;
};
struct GpuBlockTables {
  GpuTable end, shape, records, slot, pivot;
  uint32_t steps = 0;
  uint64_t numbers = 0;
};

class GpuWorkspace;

/// Does not change while it executes: several streams may use it at once, each with a workspace of
/// its own.
class GpuPlan {
public:
  /// Copies the tables to the GPU. `context` and `tables` must outlive it.
  GpuPlan(const cuda::Context& context, const GpuCode& code, const LuTables& tables,
          const GpuFlows& flows);

  /// Enqueues the factorization of the matrix with these values, input_nnz numbers of the given
  /// type (aligned to given_bytes()) in the caller's order: two launches (another strategy has
  /// more), nothing else, so that it can be captured. What it has to say stays in the workspace.
  /// RuntimeError where the driver cannot have all blocks resident at once
  /// (CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE).
  void refactor(const GpuWorkspace& workspace, cuda::DeviceAddress values,
                const cuda::Stream& stream, const FactorOptions& options = {}) const;

  /// Enqueues A X = B, or A^T X = B, for columns of n numbers one behind the other, at most as many
  /// as the workspace has room for. `b` and `x` may be the same memory. Two launches.
  void solve(const GpuWorkspace& workspace, cuda::DeviceAddress b, cuda::DeviceAddress x,
             uint32_t right_sides, bool transposed, const cuda::Stream& stream) const;
  /// The two parts of a solve, for several with the same factors: what depends on these alone, and
  /// the rest. Where `active` is not null, it leaves right-hand side s alone if active[s] (i32, on
  /// the GPU) is 0.
  void prepare_solve(const GpuWorkspace& workspace, bool transposed,
                     const cuda::Stream& stream) const;
  void solve_prepared(const GpuWorkspace& workspace, cuda::DeviceAddress b, cuda::DeviceAddress x,
                      uint32_t right_sides, bool transposed, const cuda::Stream& stream,
                      cuda::DeviceAddress active = 0) const;

  /// Waits for the stream and says how the last factorization went. UsageError where there was
  /// none.
  FactorStatus status(const GpuWorkspace& workspace, const cuda::Stream& stream) const;

  /// Waits for the stream and copies L'+U by slot, reciprocals at the pivots: numbers of the
  /// factors' type.
  void download_values(const GpuWorkspace& workspace, std::span<uint8_t> values,
                       const cuda::Stream& stream) const;

  const LuTables& tables() const { return tables_; }
  /// On the GPU, f64 by the caller's number: what an unknown of the scaled system is multiplied
  /// with.
  cuda::DeviceAddress unknown_scale(bool transposed) const {
    return (transposed ? row_scale_ : column_scale_)->address();
  }
  uint32_t factor_bytes() const { return code_.factor_bytes; }
  uint32_t given_bytes() const { return code_.given_bytes; }
  bool is_complex() const { return code_.complex; }
  /// Of device memory for the tables.
  uint64_t table_bytes() const { return table_bytes_; }
  const cuda::Kernel& factor_kernel() const { return factor_; }
  bool one_block_solves() const { return std::holds_alternative<Block>(solve_flow_); }

private:
  friend class GpuWorkspace;
  using Table = GpuTable;
  using Flow = GpuDataflowTables;
  using Block = GpuBlockTables;
  using Solve = std::variant<Flow, Block>;

  Table upload(std::span<const uint8_t> bytes, const cuda::Stream& stream);
  Flow upload(const LuDataflow& flow, const cuda::Stream& stream);
  /// Of the input kernel: where entries go; `factor` is null for another strategy.
  void upload_input(const LuDataflow* factor, const cuda::Stream& stream);
  /// The places of the values of slots; other words stay.
  std::vector<uint32_t> in_places(std::vector<uint32_t> slots) const;
  Block upload(const LuBlockSolve& solve, const cuda::Stream& stream);
  /// Values of the workspace, with partial sums.
  uint64_t value_places() const {
    return (places_ ? places_->end : tables_.nnz()) + factor_flow_.partial_sums;
  }
  /// Of the workspace, for solves by one block.
  uint64_t block_numbers() const;
  /// Of the workspace, for another strategy.
  uint64_t scratch_bytes() const { return strategy_ ? strategy_->scratch_bytes() : 0; }
  /// Of the workspace, for each right-hand side that is solved for at once.
  uint64_t right_side_numbers() const;
  Solve upload(const GpuFlows::Solve& solve, const cuda::Stream& stream);
  const Solve& solve_tables(bool transposed) const;
  void launch(const cuda::Kernel& kernel, uint32_t blocks_x, uint32_t blocks_y, uint32_t threads,
              bool together, std::span<const uint64_t> arguments, const cuda::Stream& stream,
              uint32_t dynamic_shared_bytes = 0) const;

  const cuda::Context& context_;
  GpuCode code_;
  const LuTables& tables_;
  cuda::Module module_;
  cuda::Kernel input_, factor_, solve_input_, solve_, block_input_, block_solve_;
  Table source_, slot_, second_, column_, scale_, kept_; ///< of the input kernel
  Table row_order_, column_order_, row_scale_, column_scale_, diagonal_;
  Flow factor_flow_;
  std::shared_ptr<const GpuFactorStrategy> strategy_;
  Solve solve_flow_;
  std::optional<Solve> transposed_flow_;
  std::optional<GpuPlaces> places_; ///< of the dataflow; else a slot's value is at its number
  uint64_t table_bytes_ = 0;
};

/// The numbers of one matrix on the GPU.
class GpuWorkspace {
public:
  /// Takes the memory and enqueues initialize(); `right_sides` can be solved for at once.
  GpuWorkspace(const cuda::Context& context, const GpuPlan& plan, uint32_t right_sides,
               const cuda::Stream& stream);
  /// The same in memory of the caller's, aligned to DeviceMemory::kAlignment, that initialize() has
  /// once filled. Enqueues nothing.
  GpuWorkspace(const cuda::Context& context, const GpuPlan& plan, uint32_t right_sides,
               cuda::DeviceAddress memory);
  /// Of memory for the above. More right-hand sides only take more at its end.
  static uint64_t bytes_for(const cuda::Context& context, const GpuPlan& plan,
                            uint32_t right_sides);
  /// The most right-hand sides that memory of this size has room for, if any.
  static uint32_t right_sides_in(const cuda::Context& context, const GpuPlan& plan, uint64_t bytes);

  /// Enqueues what must be there before the first factorization.
  void initialize(const cuda::Stream& stream) const;

  /// Of L'+U, where the plan's kernels keep them (GpuPlan::download_values), and partial sums.
  const cuda::DeviceBuffer& values() const { return values_; }
  /// Of the last factorization: an LuStatusRecord.
  const cuda::DeviceBuffer& status_record() const { return status_; }
  uint32_t right_sides() const { return right_sides_; }
  uint64_t bytes() const { return bytes_; }

private:
  friend class GpuPlan;
  GpuWorkspace(const GpuPlan& plan, uint32_t right_sides, cuda::DeviceMemory memory);

  uint32_t right_sides_;
  cuda::DeviceBuffer values_, initial_, column_max_, given_max_, quotient_, status_, numbers_,
      scratch_, work_;
  uint64_t bytes_;
};

} // namespace sparsertc::lu
