#include "tools/lu_compile.h"

#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_batch_loop.h"
#include "compiler/inspect/lu_schedule.h"
#include "compiler/lower/lu_batch.h"
#include "compiler/lower/lu_batch_loop.h"
#include "compiler/lower/lu_refine.h"
#include "compiler/manifest.h"
#include "ir/error.h"
#include "runtime/lu/table_bytes.h"
#include "runtime/plan/lu_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace sparsertc {
namespace {

struct Analysed {
  LuAnalysis analysis;
  LuTables tables;
  std::optional<lu::FactorStatus> chosen;
};

Analysed analyse_pattern(const Matrix& matrix, const LuCompileOptions& options) {
  Analysed result;
  result.analysis = analyse_lu(matrix, options.analysis);
  const LuAnalysis& analysis = result.analysis;
  result.tables = make_lu_tables(
      matrix.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale},
      options.pool, options.finders);
  return result;
}

/// Also factorizes and solves on the CPU: pivots that do not do are chosen anew, or it is an error.
Analysed analyse_values(const Matrix& matrix, const LuCompileOptions& options) {
  LuSolverOptions solver_options;
  solver_options.analysis = options.analysis;
  solver_options.precision = options.precision;
  solver_options.factor.pivot_threshold = options.pivot_threshold;
  solver_options.pool = options.pool;
  solver_options.finders = options.finders;
  solver_options.before_step = options.before_step;
  LuSolver solver(matrix, solver_options);
  LuVectors ones;
  ones.real.assign(matrix.pattern.rows, 1);
  LuSystemReport report;
  solver.solve(matrix, multiply(matrix, ones, false), report);
  return {solver.analysis(), solver.tables(), report.factor};
}

LuNumber number_type(bool single, bool complex) {
  if (complex)
    return single ? LuNumber::c64 : LuNumber::c128;
  return single ? LuNumber::f32 : LuNumber::f64;
}

LuManifest describe(const Matrix& matrix, const Analysed& analysed,
                    const LuCompileOptions& options) {
  const LuTables& tables = analysed.tables;
  const OrderCandidate& order = analysed.analysis.order.winner();
  LuManifest manifest;
  manifest.sparsertc = sparsertc_version();
  manifest.target = options.target.name;
  manifest.n = tables.size;
  manifest.nnz = tables.input_nnz;
  manifest.pattern_digest = pattern_digest(matrix.pattern);
  const bool complex = !matrix.imaginary.empty();
  manifest.type = number_type(options.precision == LuPrecision::f32, complex);
  manifest.factor_type = number_type(options.precision != LuPrecision::f64, complex);
  manifest.transposed = options.transposed;
  manifest.order = order.name;
  manifest.matched = analysed.analysis.matched;
  manifest.matching_reason = analysed.analysis.matching_reason;
  manifest.blocks = analysed.analysis.blocks.blocks();
  manifest.nnz_l = tables.size;
  for (uint32_t j = 0; j < tables.size; ++j) {
    manifest.nnz_l += tables.column_offset[j + 1] - tables.diagonal[j] - 1;
    manifest.nnz_u += tables.diagonal[j] - tables.column_offset[j] + 1;
  }
  manifest.flops = order.cost.flops;
  manifest.levels = tables.factor_levels.count();
  manifest.levels_forward = tables.forward_levels.count();
  manifest.levels_backward = tables.backward_levels.count();
  manifest.chosen = analysed.chosen;
  return manifest;
}

LuKernels describe(const lu::GpuCode& code, uint32_t multiprocessors) {
  LuKernels kernels;
  kernels.input = code.input;
  kernels.factor = code.factor;
  kernels.solve_input = code.solve_input;
  kernels.solve = code.solve;
  kernels.input_threads = code.input_threads;
  kernels.dataflow_threads = code.dataflow_threads;
  kernels.multiprocessors = multiprocessors;
  if (code.block_solve != nullptr) {
    kernels.block_input = code.block_input;
    kernels.block_solve = code.block_solve;
    kernels.block_threads = code.block_threads;
    kernels.block_shared_bytes = code.block_shared_bytes;
  }
  return kernels;
}

std::vector<std::string> names_of(const LuKernels& kernels) {
  std::vector<std::string> names = {kernels.input, kernels.factor, kernels.solve_input,
                                    kernels.solve};
  if (!kernels.block_solve.empty())
    names.insert(names.end(), {kernels.block_input, kernels.block_solve});
  return names;
}

/// Adds the PTX, and a cubin where there is an assembler, whose name is the result. Of code in
/// several functions these are assembled side by side, with so many registers.
std::string add_code(Bundle& bundle, const std::string& part, const ir::Module& module,
                     std::vector<std::string> kernels, const LuCompileOptions& options,
                     bool in_units = false, uint32_t max_registers = 0) {
  std::string assembler;
  const std::string ptx = emit_ptx(module, options.target);
  if (options.assembler != nullptr) {
    AssembleRequest request;
    const std::vector<std::string> units =
        in_units ? emit_ptx_units(module, options.target) : std::vector<std::string>{ptx};
    request.units = units;
    request.max_registers = max_registers;
    request.target = options.target.name;
    request.kernels = std::move(kernels);
    request.provenance = part.empty() ? "part=lu\n" : fmt::format("part={}\n", part);
    request.jobs = options.jobs;
    request.stop = options.stop;
    Assembled assembled = options.assembler->assemble(request);
    assembler = assembled.assembler;
    bundle.sections.push_back({part + "cubin", std::move(assembled.cubin)});
  }
  bundle.sections.push_back({part + "ptx", {ptx.begin(), ptx.end()}});
  return assembler;
}

void add_refinement(Bundle& bundle, LuManifest& manifest, const LuCompileOptions& options) {
  manifest.refinement = LuRefineKernels{kLuRefineBegin,  kLuRefineUpdate, kLuRefineResidual,
                                        kLuRefineDecide, kLuRefineEnd,    kLuRefineThreads};
  const ir::Module module = make_lu_refine_kernels(
      {is_complex(manifest.type), is_single(manifest.type), is_single(manifest.type)});
  const LuRefineKernels& kernels = *manifest.refinement;
  add_code(bundle, kLuRefinePart, module,
           {kernels.begin, kernels.update, kernels.residual, kernels.decide, kernels.end}, options);
}

void add_batch(Bundle& bundle, LuManifest& manifest, const LuTables& tables,
               const LuCompileOptions& options) {
  manifest.batch = true;
  const LuBatchLoop loop = make_lu_batch_loop(tables);
  bundle.sections.push_back({kLuBatchSection, lu::to_bytes(loop)});
  if (options.target.is_host)
    return;
  if (options.before_step)
    options.before_step("code for batches");
  LuBatchOptions batch;
  batch.type = is_single(manifest.type) ? ir::Scalar::f32 : ir::Scalar::f64;
  batch.complex = is_complex(manifest.type);
  batch.most_multiply_adds = options.batch_budget;
  const bool looped = !is_unrolled(tables, batch);
  const ir::Module module =
      looped ? make_lu_batch_loop_kernels(batch) : make_lu_batch(tables, batch);
  LuBatchKernels kernels;
  kernels.factor = kLuBatchFactorKernel;
  kernels.solve = kLuBatchSolveKernel;
  kernels.looped = looped;
  kernels.factor_threads = lu_batch_threads(module, kLuBatchFactorKernel);
  kernels.solve_threads = lu_batch_threads(module, kLuBatchSolveKernel);
  kernels.numbers = looped ? loop.numbers : lu_batch_numbers(tables);
  manifest.batch_kernels = kernels;
  add_code(bundle, kLuBatchPart, module, {kernels.factor, kernels.solve}, options, true,
           register_limit(4 * std::max(kernels.factor_threads, kernels.solve_threads)));
}

void add_gpu(Bundle& bundle, LuManifest& manifest, const LuTables& tables,
             const LuCompileOptions& options) {
  const uint32_t multiprocessors =
      options.multiprocessors > 0 ? options.multiprocessors : multiprocessors_of(options.target);
  LuGpuOptions gpu;
  gpu.single = is_single(manifest.factor_type);
  gpu.given_single = is_single(manifest.type);
  gpu.complex = is_complex(manifest.type);
  gpu.transposed = options.transposed;
  gpu.most_table_bytes = options.most_table_bytes;
  gpu.solve = options.solve;
  const LuGpuDevice device{options.target, multiprocessors, options.target.shared_bytes_per_block,
                           options.most_table_bytes};
  if (options.before_step)
    options.before_step("tables for the GPU");
  const LuGpuProgram program = make_lu_program(tables, device, gpu, options.pool);
  manifest.kernels = describe(program.code, multiprocessors);
  bundle.sections.push_back({kLuFactorSection, lu::to_bytes(program.flows.factor)});
  bundle.sections.push_back({kLuSolveSection, lu::to_bytes(program.flows.solve)});
  if (program.flows.transposed)
    bundle.sections.push_back({kLuTransposedSection, lu::to_bytes(*program.flows.transposed)});
  if (options.before_step && options.assembler != nullptr)
    options.before_step("assembling");
  add_refinement(bundle, manifest, options);
  manifest.assembler = add_code(bundle, "", program.module, names_of(*manifest.kernels), options);
}

} // namespace

bool has_no_values(const Matrix& matrix) {
  return matrix.stored == StoredType::none && matrix.values.empty();
}

uint32_t multiprocessors_of(const Target& target) {
  switch (target.compute_capability) {
  case 80:
    return 108; // A100
  case 86:
    return 72; // A10
  case 89:
    return 58; // L4
  case 90:
    return 132; // H100 and H200, SXM
  case 100:
    return 148; // B200
  case 120:
    return 84; // RTX 5080
  default:
    throw InternalError(fmt::format("how many multiprocessors has a GPU for {}?", target.name));
  }
}

Bundle compile_lu(const Matrix& matrix, const LuCompileOptions& options) {
  if (options.batch && options.precision == LuPrecision::mixed)
    throw UserError("batches have factors of the matrix's own type", "numbers=f64 or numbers=f32");
  const Analysed analysed =
      has_no_values(matrix) ? analyse_pattern(matrix, options) : analyse_values(matrix, options);
  LuManifest manifest = describe(matrix, analysed, options);
  Bundle bundle;
  bundle.sections.push_back({kLuTablesSection, lu::to_bytes(analysed.tables)});
  if (options.batch)
    add_batch(bundle, manifest, analysed.tables, options);
  if (!options.target.is_host)
    add_gpu(bundle, manifest, analysed.tables, options);
  bundle.manifest = lu_manifest_json(manifest);
  return bundle;
}

} // namespace sparsertc
