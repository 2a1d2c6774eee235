#include "tools/lu_program.h"

#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_block_solve.h"
#include "compiler/inspect/lu_dataflow.h"
#include "compiler/inspect/lu_schedule.h"
#include "compiler/lower/lu_dataflow.h"
#include "compiler/lower/lu_emitted.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace sparsertc {
namespace {

/// Fewer warps look less often at what is not there yet; large factors have work for more of them.
/// Measured on an H200: from about the first size on 192 threads are faster than 128, ibmpg1, of
/// 800,000 entries, is fastest with 384.
uint32_t dataflow_threads(const LuTables& tables, const LuGpuOptions& options) {
  constexpr uint64_t kLargeFactors = 140'000, kVeryLargeFactors = 500'000;
  if (options.threads > 0)
    return options.threads;
  return tables.nnz() < kLargeFactors ? 128 : tables.nnz() < kVeryLargeFactors ? 192 : 384;
}

/// Of a block, that a solve as dataflow keeps busy: it has little work and waits most of the time.
/// With two ibmpg1 and ScaleMicrogrid are solved in less time than with four or six.
constexpr uint32_t kSolveWarps = 2;

uint32_t number_bytes(const LuGpuOptions& options, bool single) {
  return (single ? 4 : 8) * (options.complex ? 2 : 1);
}

bool one_block_solves(const LuGpuDevice& device, const LuTables& tables,
                      const LuGpuOptions& options) {
  if (options.solve == LuGpuSolve::dataflow || tables.size == 0)
    return false;
  const uint64_t bytes = lu_block_solve_bytes(tables.size, number_bytes(options, options.single));
  const uint64_t most =
      std::min<uint64_t>(device.shared_bytes_per_block, device.target.shared_bytes_per_block);
  if (bytes <= most && tables.size <= LuBlockSolve::kMostRows)
    return true;
  if (options.solve == LuGpuSolve::block)
    throw UserError(
        fmt::format("{} unknowns do not fit into the {} bytes of a block's shared memory",
                    tables.size, most),
        "the dataflow kernel solves with any number");
  return false;
}

} // namespace

LuGpuProgram make_lu_program(const LuTables& tables, const LuGpuDevice& device,
                             const LuGpuOptions& options, TaskPool* pool) {
  LuGpuProgram program;
  program.choice = choose_lu_strategy(
      tables,
      {options.strategy, options.complex, number_bytes(options, options.single),
       device.multiprocessors, device.memory_bytes, options.most_table_bytes, options.fusion,
       options.atomics, options.tail_columns, options.budget, device.nvrtc});
  LuDataflowOptions deal;
  const uint32_t threads = dataflow_threads(tables, options);
  deal.warps = lu::gpu_streams(device.multiprocessors, threads);
  if (program.choice.strategy == LuStrategy::dataflow) {
    deal.products_of_lane = options.products_of_lane;
    // That it fits has been looked at.
    const std::optional<LuGather> gather =
        make_lu_gather(tables, program.choice.dataflow_bytes, pool);
    program.flows.factor = make_factor_dataflow(tables, gather.value(), deal);
  } else if (program.choice.strategy == LuStrategy::emitted) {
    program.emitted = make_lu_emitted(tables, program.choice.emitted);
  } else {
    program.right_looking = make_right_looking(tables, program.choice.right_looking);
  }
  deal.products_of_lane = options.solve_products;
  deal.block_warps = threads / LuDataflow::kLanes;
  deal.busy_warps = options.threads > 0 ? deal.block_warps : kSolveWarps;
  const bool one_block = one_block_solves(device, tables, options);
  const auto make_solve = [&](bool transposed) -> lu::GpuFlows::Solve {
    if (one_block)
      return make_block_solve(tables, {options.block_threads / 32, options.solve_products},
                              transposed);
    return make_solve_dataflow(tables, deal, transposed);
  };
  program.flows.solve = make_solve(false);
  if (options.transposed)
    program.flows.transposed = make_solve(true);

  LuKernelOptions kernels;
  kernels.type = options.single ? ir::Scalar::f32 : ir::Scalar::f64;
  kernels.given = options.given_single ? ir::Scalar::f32 : ir::Scalar::f64;
  kernels.complex = options.complex;
  kernels.threads = threads;
  kernels.block_threads = options.block_threads;
  if (one_block)
    kernels.block_rows = tables.size;
  program.module = make_lu_kernels(kernels);
  if (program.emitted)
    program.emitted_module = make_lu_emitted_kernels(tables, *program.emitted, kernels);
  lu::GpuCode& code = program.code;
  code.input = kLuInputKernel;
  code.factor = kLuFactorKernel;
  code.solve_input = kLuSolveInputKernel;
  code.solve = kLuSolveKernel;
  code.input_threads = kLuInputThreads;
  code.dataflow_threads = threads;
  if (one_block) {
    code.block_input = kLuBlockInputKernel;
    code.block_solve = kLuBlockSolveKernel;
    code.block_threads = options.block_threads;
    code.block_shared_bytes = ptx_dynamic_shared_bytes(program.module);
  }
  code.complex = options.complex;
  code.factor_bytes = number_bytes(options, options.single);
  code.given_bytes = number_bytes(options, options.given_single);
  return program;
}

} // namespace sparsertc
