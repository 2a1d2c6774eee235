// Sparse LU on a GPU: plans with kernels, and the backend of `solve`.
#pragma once

#include "ir/lu_tables.h"
#include "runtime/lu/gpu_plan.h"
#include "runtime/lu/gpu_refine.h"
#include "tools/lu_backend.h"
#include "tools/lu_program.h"

#include <cstdint>
#include <memory>
#include <string>

namespace sparsertc {

/// Whether there is an NVRTC: columns by levels need it.
bool has_nvrtc();

/// Makes the tables and the kernels; `context` and `tables` must outlive the plan. UserError where
/// the tables do not fit. `choice`, if given, gets the strategy and why.
std::unique_ptr<lu::GpuPlan> make_gpu_plan(const cuda::Context& context, const LuTables& tables,
                                           const LuGpuOptions& options, TaskPool* pool,
                                           LuStrategyChoice* choice = nullptr);

/// Refinement on the GPU with the plan's factors, of solutions in double or single precision;
/// `context` and `plan` must outlive it.
std::unique_ptr<lu::GpuRefinement>
make_gpu_refinement(const cuda::Context& context, const lu::GpuPlan& plan, bool single_solution);

/// On the GPU, refinement too. Where `options` leave the strategy to this, dataflow is tried once:
/// if the driver cannot have its blocks resident at once, the factorization is by levels; UserError
/// if it can then not solve either. `tables`, `pattern` (of A) and `pool` must outlive it. Of
/// `options` the types are chosen by `precision` and `complex`. Throws as make_gpu_plan, and
/// NoGpuError.
std::unique_ptr<LuBackend> make_gpu_backend(const LuTables& tables, const Pattern& pattern,
                                            LuPrecision precision, bool complex, TaskPool* pool,
                                            const LuGpuOptions& options = {});

} // namespace sparsertc
