// Sparse LU in host memory, by the calling thread.
#include "ir/error.h"
#include "runtime/lu/condition.h"
#include "runtime/plan/lu_executor.h"
#include "runtime/plan/lu_types.h"
#include "runtime/plan/status_record.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace sparsertc {
namespace {

struct Header {
  StatusRecord record;
  lu::FactorStatus status;
  uint64_t factorized = 0;
};
static_assert(sizeof(Header) <= LuExecutor::kNumbersAt);
static_assert(offsetof(Header, status) == sizeof(StatusRecord));

template <class T>
T* pointer_to(LuAddress address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

/// The caller's numbers in double precision, for residuals: the same memory where they are that.
template <class X>
struct InDoublePrecision {
  using V = lu::Wide<X>;
  std::vector<V> copy;
  std::span<const V> numbers;

  explicit InDoublePrecision(std::span<const X> given) {
    if constexpr (std::is_same_v<X, V>) {
      numbers = given;
    } else {
      copy.assign(given.begin(), given.end());
      numbers = copy;
    }
  }
};

template <class T, class X>
class HostExecutor : public LuExecutor {
public:
  HostExecutor(const LuTables& tables, const lu::MatrixPattern& pattern)
      : tables_(tables), pattern_(pattern), stages_(tables) {}

  uint64_t workspace_bytes(uint64_t) const override {
    return kNumbersAt + lu::Factors<T>::numbers(tables_) * sizeof(T);
  }
  uint64_t workspace_alignment() const override { return 64; }
  uint64_t right_sides_in(uint64_t bytes) const override {
    return bytes < workspace_bytes(0) ? 0 : UINT64_MAX;
  }
  uint64_t table_bytes() const override { return 0; }

  void initialize(const LuWorkspace& workspace, cuda::StreamHandle) const override {
    *pointer_to<Header>(workspace.memory) = Header{};
    const std::span<T> numbers = numbers_in(workspace);
    std::fill(numbers.begin(), numbers.end(), T(0));
  }

  void refactor(const LuWorkspace& workspace, LuAddress values, const lu::FactorOptions& options,
                cuda::StreamHandle) const override {
    Header& header = checked(workspace);
    lu::Factors<T> factors(tables_, stages_, numbers_in(workspace));
    const std::span<const X> given(pointer_to<const X>(values), tables_.input_nnz);
    if constexpr (std::is_same_v<T, X>)
      header.status = factors.refactor(given, options);
    else
      header.status = factors.refactor_rounded(given, options);
    header.factorized = 1;
  }

  void solve(const LuWorkspace& workspace, const LuSystem& system,
             cuda::StreamHandle) const override {
    checked(workspace);
    const lu::Factors<T> factors(tables_, stages_, numbers_in(workspace));
    const uint64_t count = tables_.size * system.right_sides;
    const std::span<const X> b(pointer_to<const X>(system.b), count);
    const std::span<X> x(pointer_to<X>(system.x), count);
    if constexpr (std::is_same_v<T, X>)
      factors.solve(b, x, system.right_sides, system.transposed);
    else
      factors.solve_rounded(b, x, system.right_sides, system.transposed);
  }

  bool can_refine() const override { return true; }

  uint64_t refinement_bytes(uint64_t right_sides) const override {
    return right_sides * sizeof(lu::RefineResult);
  }

  void solve_refined(const LuWorkspace& workspace, const LuSystem& system,
                     const LuRefinement& refinement, cuda::StreamHandle) const override {
    using V = lu::Wide<X>;
    checked(workspace);
    const lu::Factors<T> factors(tables_, stages_, numbers_in(workspace));
    const InDoublePrecision<X> values({pointer_to<const X>(refinement.values), tables_.input_nnz});
    const lu::MatrixView<V> a{tables_.size, pattern_.row_offset, pattern_.column_index,
                              values.numbers};
    auto* const results = pointer_to<lu::RefineResult>(refinement.memory.memory);
    for (uint64_t side = 0; side < system.right_sides; ++side) {
      const InDoublePrecision<X> b(
          {pointer_to<const X>(system.b) + side * tables_.size, tables_.size});
      const std::span<X> x(pointer_to<X>(system.x) + side * tables_.size, tables_.size);
      results[side] =
          lu::solve_refined<T, X>(factors, a, b.numbers, x, system.transposed, refinement.options);
    }
  }

  std::vector<lu::RefineResult> refine_results(const LuWorkspace& memory, uint64_t right_sides,
                                               cuda::StreamHandle) const override {
    const auto* const results = pointer_to<const lu::RefineResult>(memory.memory);
    return {results, results + right_sides};
  }

  lu::FactorStatus status(const LuWorkspace& workspace, cuda::StreamHandle) const override {
    const Header& header = checked(workspace);
    if (header.factorized == 0)
      throw UsageError("nothing has been factorized in this workspace yet");
    return header.status;
  }

  std::vector<double> factors(const LuWorkspace& workspace, cuda::StreamHandle) const override {
    checked(workspace);
    return widened<T>(numbers_in(workspace).first(tables_.nnz()));
  }

  std::vector<double> read(LuAddress numbers, uint64_t count, cuda::StreamHandle) const override {
    return widened<X>({pointer_to<const X>(numbers), count});
  }

  LuAssessment assess(const LuWorkspace& workspace, const lu::MatrixPattern& pattern,
                      std::span<const double> values, const lu::FactorStatus& status,
                      cuda::StreamHandle) const override {
    using V = lu::Wide<T>;
    const lu::Factors<T> factors(tables_, stages_, numbers_in(workspace));
    const lu::MatrixView<V> a{tables_.size, pattern.row_offset, pattern.column_index,
                              as_numbers<V>(values)};
    LuAssessment assessment;
    assessment.condition = lu::estimate_condition<T>(factors, a);
    assessment.singular = lu::is_numerically_singular<T>(factors, a, status, assessment.condition);
    return assessment;
  }

private:
  static Header& checked(const LuWorkspace& workspace) {
    Header& header = *pointer_to<Header>(workspace.memory);
    check_initialized(header.record);
    return header;
  }
  std::span<T> numbers_in(const LuWorkspace& workspace) const {
    return {pointer_to<T>(workspace.memory + kNumbersAt), lu::Factors<T>::numbers(tables_)};
  }

  const LuTables& tables_;
  const lu::MatrixPattern& pattern_;
  const lu::FactorStages stages_;
};

} // namespace

std::unique_ptr<LuExecutor> make_lu_executor(const LuTables& tables,
                                             const lu::MatrixPattern& pattern,
                                             const LuManifest& manifest) {
  return with_lu_types(manifest, [&]<class T, class X>() -> std::unique_ptr<LuExecutor> {
    return std::make_unique<HostExecutor<T, X>>(tables, pattern);
  });
}

} // namespace sparsertc
