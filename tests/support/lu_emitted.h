// One pattern factorized by kernels that were made for it, on a GPU or on the interpreter.
#pragma once

#include "compiler/inspect/lu_emitted.h"
#include "runtime/lu/gpu_emitted.h"
#include "tests/support/lu_strategy.h"

#include <memory>
#include <string>
#include <vector>

namespace sparsertc::test {

/// The kernels' sums on the CPU (compiler/lower/lu_emitted.h). No pivot is replaced.
template <class T>
std::vector<T> factor_by_plan(const LuTables& tables, const LuEmitted& plan,
                              const std::vector<lu::Wide<T>>& values);

/// Of the kernels of a plan.
std::vector<std::string> kernel_names(const LuEmitted& plan);

/// The kernels for factors of type T, as PTX for `target`.
template <class T>
std::unique_ptr<lu::GpuEmitted> make_emitted(const cuda::Context& context, const LuTables& tables,
                                             const LuEmitted& plan, const std::string& target);

} // namespace sparsertc::test
