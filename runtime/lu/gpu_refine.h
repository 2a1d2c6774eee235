// Iterative refinement on the GPU: solutions to the accuracy of the data without a number going to
// the host in between. README.md says how.
#pragma once

#include "runtime/lu/gpu_plan.h"
#include "runtime/lu/refine.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sparsertc::lu {

/// The kernels of compiler/lower/lu_refine.h.
struct GpuRefineCode {
  std::span<const uint8_t> image; ///< PTX or a cubin
  const char* begin = nullptr;    ///< names of the kernels
  const char* update = nullptr;
  const char* residual = nullptr;
  const char* decide = nullptr;
  const char* end = nullptr;
  uint32_t threads = 0;         ///< of a block of each
  bool single_solution = false; ///< whether they round the solution to single precision
  bool given_single = false;    ///< whether matrix, right-hand sides and solutions come in it
};

class GpuRefineWorkspace;

/// Like the plan, constant while it executes.
class GpuRefinement {
public:
  /// Copies the pattern of A to the GPU. `context` and `plan`, whose caller's numbers are in the
  /// precision that `code` says, must outlive it.
  GpuRefinement(const cuda::Context& context, const GpuRefineCode& code, const GpuPlan& plan);

  /// Enqueues A X = B, or A^T X = B, each right-hand side refined on its own by the rules of
  /// refine.h: columns of n numbers one behind the other, at most as many as `workspace` has room
  /// for; where `factors` has room for fewer, they go in turns. `factors` are those of `values`
  /// (input_nnz numbers in the caller's order) or of a matrix near it. `b` and `x` may be the same
  /// memory. The launches are those of maximum_steps corrections, whatever is needed, and nothing
  /// else, so that it can be captured; kernels of corrections that are not needed return at once.
  void solve(const GpuWorkspace& factors, const GpuRefineWorkspace& workspace,
             cuda::DeviceAddress values, cuda::DeviceAddress b, cuda::DeviceAddress x,
             uint32_t right_sides, bool transposed, const cuda::Stream& stream,
             const RefineOptions& options = {}) const;

  /// Waits for the stream and says how the last solve went, for each right-hand side.
  std::vector<RefineResult> results(const GpuRefineWorkspace& workspace, uint32_t right_sides,
                                    const cuda::Stream& stream) const;

  const GpuPlan& plan() const { return plan_; }

private:
  /// Rows with the entries of A, or of its transpose, in the caller's order of values.
  struct Rows {
    GpuTable offset, index, source;
  };

  Rows upload(const std::vector<uint32_t>& offset, const std::vector<uint32_t>& index,
              const std::vector<uint32_t>& source, const cuda::Stream& stream) const;
  /// Of the right-hand sides from `first` on, as many as are solved for at once.
  void solve_some(const GpuWorkspace& factors, const GpuRefineWorkspace& workspace,
                  cuda::DeviceAddress values, cuda::DeviceAddress b, cuda::DeviceAddress x,
                  uint32_t first, uint32_t right_sides, bool transposed, const cuda::Stream& stream,
                  const RefineOptions& options) const;
  void launch(const cuda::Kernel& kernel, uint64_t blocks, uint32_t right_sides,
              std::span<const uint64_t> arguments, const cuda::Stream& stream) const;

  const cuda::Context& context_;
  GpuRefineCode code_;
  const GpuPlan& plan_;
  cuda::Module module_;
  cuda::Kernel begin_, update_, residual_, decide_, end_;
  Rows rows_, columns_;
};

/// Vectors and notes of right-hand sides that are refined at once.
class GpuRefineWorkspace {
public:
  GpuRefineWorkspace(const cuda::Context& context, const GpuPlan& plan, uint32_t right_sides);
  /// The same in memory of the caller's, aligned to DeviceMemory::kAlignment. What is there does
  /// not matter; the records come first.
  GpuRefineWorkspace(const cuda::Context& context, const GpuPlan& plan, uint32_t right_sides,
                     cuda::DeviceAddress memory);
  /// Of memory for the above.
  static uint64_t bytes_for(const cuda::Context& context, const GpuPlan& plan,
                            uint32_t right_sides);

  uint32_t right_sides() const { return right_sides_; }
  /// An LuRefineRecord for each.
  const cuda::DeviceBuffer& records() const { return records_; }

private:
  friend class GpuRefinement;
  GpuRefineWorkspace(const GpuPlan& plan, uint32_t right_sides, cuda::DeviceMemory memory);

  uint32_t right_sides_;
  cuda::DeviceBuffer records_, kept_, r_, x_, best_, active_, update_parts_, parts_;
  uint64_t bytes_;
};

} // namespace sparsertc::lu
