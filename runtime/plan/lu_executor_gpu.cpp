// Sparse LU in device memory.
#include "ir/error.h"
#include "runtime/lu/condition.h"
#include "runtime/plan/lu_executor.h"
#include "runtime/plan/lu_types.h"
#include "runtime/plan/status_record.h"

#include <algorithm>
#include <cmath>

namespace sparsertc {
namespace {

const StatusRecord kInitialRecord;

template <class T>
std::span<uint8_t> bytes_of(std::vector<T>& numbers) {
  return {reinterpret_cast<uint8_t*>(numbers.data()), numbers.size() * sizeof(T)};
}

/// Solves for right-hand sides on the host, each brought into the range of X by a power of two.
template <class T, class X>
class SolverThere : public lu::Solver<T> {
public:
  SolverThere(const cuda::Context& context, const lu::GpuPlan& plan,
              const lu::GpuWorkspace& workspace, const cuda::Stream& stream)
      : plan_(plan), workspace_(workspace), stream_(stream),
        vector_(context, plan.tables().size * sizeof(X)) {}

  void solve_rounded(std::span<const lu::Wide<T>> b, std::span<lu::Wide<T>> x, uint64_t right_sides,
                     bool transposed) const override {
    const uint64_t n = plan_.tables().size;
    std::vector<X> numbers(n);
    for (uint64_t side = 0; side < right_sides; ++side) {
      double largest = 0;
      for (uint64_t i = 0; i < n; ++i)
        largest = std::max(largest, lu::magnitude(b[side * n + i]));
      int exponent = 0;
      if (largest > 0 && std::isfinite(largest))
        std::frexp(largest, &exponent);
      const double down = std::ldexp(1.0, std::clamp(-exponent, -1000, 1000));
      for (uint64_t i = 0; i < n; ++i)
        numbers[i] = lu::to_scalar<X>(b[side * n + i] * down);
      vector_.upload(bytes_of(numbers), stream_);
      plan_.solve(workspace_, vector_.address(), vector_.address(), 1, transposed, stream_);
      vector_.download(bytes_of(numbers), stream_);
      for (uint64_t i = 0; i < n; ++i)
        x[side * n + i] = lu::to_scalar<lu::Wide<T>>(numbers[i]) / down;
    }
  }
  const LuTables& tables() const override { return plan_.tables(); }

private:
  const lu::GpuPlan& plan_;
  const lu::GpuWorkspace& workspace_;
  const cuda::Stream& stream_;
  cuda::DeviceBuffer vector_;
};

template <class T, class X>
class GpuExecutor : public LuExecutor {
public:
  GpuExecutor(const cuda::Context& context, LuGpuParts parts)
      : context_(context), plan_(std::move(parts.plan)), refinement_(std::move(parts.refinement)) {}

  uint64_t workspace_bytes(uint64_t right_sides) const override {
    const uint64_t at_once = std::min<uint64_t>(right_sides, right_sides_in(UINT64_MAX));
    return kNumbersAt +
           lu::GpuWorkspace::bytes_for(context_, *plan_, static_cast<uint32_t>(at_once));
  }
  uint64_t workspace_alignment() const override { return cuda::DeviceMemory::kAlignment; }
  uint64_t right_sides_in(uint64_t bytes) const override {
    return bytes < kNumbersAt
               ? 0
               : lu::GpuWorkspace::right_sides_in(context_, *plan_, bytes - kNumbersAt);
  }
  uint64_t table_bytes() const override { return plan_->table_bytes(); }

  void initialize(const LuWorkspace& workspace, cuda::StreamHandle stream) const override {
    context_.make_current();
    cuda::check(context_.api().cuMemcpyHtoDAsync(workspace.memory, &kInitialRecord,
                                                 sizeof kInitialRecord, stream),
                "cuMemcpyHtoDAsync", "initialising a workspace");
    numbers_in(workspace, 0).initialize({context_, stream});
  }

  void refactor(const LuWorkspace& workspace, LuAddress values, const lu::FactorOptions& options,
                cuda::StreamHandle stream) const override {
    plan_->refactor(numbers_in(workspace, 0), values, {context_, stream}, options);
  }

  void solve(const LuWorkspace& workspace, const LuSystem& system,
             cuda::StreamHandle stream) const override {
    const uint64_t room = right_sides_in(workspace.bytes);
    const uint64_t column = plan_->tables().size * sizeof(X);
    for (uint64_t first = 0; first < system.right_sides; first += room) {
      const auto count = static_cast<uint32_t>(std::min(room, system.right_sides - first));
      plan_->solve(numbers_in(workspace, count), system.b + first * column,
                   system.x + first * column, count, system.transposed, {context_, stream});
    }
  }

  bool can_refine() const override { return refinement_ != nullptr; }

  uint64_t refinement_bytes(uint64_t right_sides) const override {
    return lu::GpuRefineWorkspace::bytes_for(context_, *plan_, static_cast<uint32_t>(right_sides));
  }

  void solve_refined(const LuWorkspace& workspace, const LuSystem& system,
                     const LuRefinement& refinement, cuda::StreamHandle stream) const override {
    const auto sides = static_cast<uint32_t>(system.right_sides);
    const auto room = static_cast<uint32_t>(
        std::min<uint64_t>(right_sides_in(workspace.bytes), system.right_sides));
    const lu::GpuRefineWorkspace vectors(context_, *plan_, sides, refinement.memory.memory);
    refinement_->solve(numbers_in(workspace, room), vectors, refinement.values, system.b, system.x,
                       sides, system.transposed, {context_, stream}, refinement.options);
  }

  std::vector<lu::RefineResult> refine_results(const LuWorkspace& memory, uint64_t right_sides,
                                               cuda::StreamHandle handle) const override {
    context_.make_current();
    const auto sides = static_cast<uint32_t>(right_sides);
    const cuda::Stream stream(context_, handle);
    stream.synchronize("waiting for a refined solution");
    return refinement_->results({context_, *plan_, sides, memory.memory}, sides, stream);
  }

  lu::FactorStatus status(const LuWorkspace& workspace, cuda::StreamHandle stream) const override {
    wait_and_check(workspace, stream);
    return plan_->status(numbers_in(workspace, 0), {context_, stream});
  }

  std::vector<double> factors(const LuWorkspace& workspace,
                              cuda::StreamHandle stream) const override {
    wait_and_check(workspace, stream);
    std::vector<T> numbers(plan_->tables().nnz());
    plan_->download_values(numbers_in(workspace, 0), bytes_of(numbers), {context_, stream});
    return widened<T>(numbers);
  }

  std::vector<double> read(LuAddress address, uint64_t count,
                           cuda::StreamHandle stream) const override {
    context_.make_current();
    std::vector<X> numbers(count);
    const cuda::DeviceBuffer there(context_, address, count * sizeof(X));
    there.download(bytes_of(numbers), {context_, stream});
    return widened<X>(numbers);
  }

  LuAssessment assess(const LuWorkspace& workspace, const lu::MatrixPattern& pattern,
                      std::span<const double> values, const lu::FactorStatus& status,
                      cuda::StreamHandle handle) const override {
    using V = lu::Wide<T>;
    context_.make_current();
    const cuda::Stream stream(context_, handle);
    const lu::GpuWorkspace numbers = numbers_in(workspace, 1);
    const SolverThere<T, X> solver(context_, *plan_, numbers, stream);
    const lu::MatrixView<V> a{plan_->tables().size, pattern.row_offset, pattern.column_index,
                              as_numbers<V>(values)};
    LuAssessment assessment;
    assessment.condition = lu::estimate_condition<T>(solver, a);
    assessment.singular = lu::is_numerically_singular<T>(solver, a, status, assessment.condition);
    return assessment;
  }

private:
  lu::GpuWorkspace numbers_in(const LuWorkspace& workspace, uint32_t right_sides) const {
    return {context_, *plan_, right_sides, workspace.memory + kNumbersAt};
  }

  /// First waits alone, so that a failure of a kernel is not reported as one of the copy.
  void wait_and_check(const LuWorkspace& workspace, cuda::StreamHandle handle) const {
    context_.make_current();
    const cuda::Stream stream(context_, handle);
    stream.synchronize("waiting for a factorization");
    StatusRecord record;
    cuda::DeviceBuffer(context_, workspace.memory, sizeof record)
        .download({reinterpret_cast<uint8_t*>(&record), sizeof record}, stream);
    check_initialized(record);
  }

  const cuda::Context& context_;
  std::unique_ptr<lu::GpuPlan> plan_;
  std::unique_ptr<lu::GpuRefinement> refinement_; ///< of the plan
};

} // namespace

std::unique_ptr<LuExecutor> make_lu_executor(const cuda::Context& context, LuGpuParts parts,
                                             const LuManifest& manifest) {
  return with_lu_types(manifest, [&]<class T, class X>() -> std::unique_ptr<LuExecutor> {
    return std::make_unique<GpuExecutor<T, X>>(context, std::move(parts));
  });
}

} // namespace sparsertc
