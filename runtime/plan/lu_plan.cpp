#include "runtime/plan/lu_plan.h"

#include "ir/counted.h"
#include "ir/error.h"
#include "runtime/lu/host_batch_loops.h"
#include "runtime/lu/monitor.h"
#include "runtime/lu/table_bytes.h"
#include "runtime/lu/table_check.h"
#include "runtime/plan/device_check.h"
#include "runtime/plan/lu_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sparsertc {
namespace {

constexpr uint32_t kWarp = LuDataflow::kLanes;
/// All are enqueued, whether they are needed or not.
constexpr unsigned kMostRefineSteps = 1000;

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw UserError(Place{name, 0, 0, {}}, what,
                  "compile it again: sparsertc compile IN --op=lu -o OUT.srtc");
}

const std::vector<uint8_t>& section(const Bundle& bundle, const char* which,
                                    const std::string& name) {
  const Bundle::Section* const found = bundle.find(which);
  if (found == nullptr)
    refuse(name, fmt::format("the bundle has no section {}", which));
  return found->bytes;
}

std::string place_in(const std::string& name, const char* which) {
  return fmt::format("{}: section {}", name, which);
}

LuTables read_tables(const Bundle& bundle, const LuManifest& manifest, const std::string& name) {
  const std::string place = place_in(name, kLuTablesSection);
  LuTables tables = lu::parse_tables(section(bundle, kLuTablesSection, name), place);
  lu::check_tables(tables, place);
  if (tables.size != manifest.n || tables.input_nnz != manifest.nnz)
    refuse(name, fmt::format("the tables are of a matrix of {} rows with {} entries, the manifest "
                             "says {} and {}",
                             tables.size, tables.input_nnz, manifest.n, manifest.nnz));
  return tables;
}

lu::GpuFlows read_flows(const Bundle& bundle, const LuManifest& manifest, const LuTables& tables,
                        const std::string& name) {
  const LuKernels& kernels = *manifest.kernels;
  const uint32_t warps = kernels.dataflow_threads / kWarp;
  const uint64_t streams = uint64_t{warps} * kernels.multiprocessors;
  const auto check_streams = [&](const LuDataflow& flow, const char* which) {
    if (flow.streams() > streams)
      refuse(name, fmt::format("section {} is for {} warps, the manifest says {}", which,
                               flow.streams(), streams));
  };
  lu::GpuFlows flows;
  const std::string place = place_in(name, kLuFactorSection);
  flows.factor = lu::parse_dataflow(section(bundle, kLuFactorSection, name), place);
  check_streams(flows.factor, kLuFactorSection);
  lu::check_factor_flow(flows.factor, tables, warps, place);
  const auto read_solve = [&](const char* which, bool transposed) {
    const std::string solve_place = place_in(name, which);
    lu::GpuFlows::Solve solve = lu::parse_solve(section(bundle, which, name), solve_place);
    if (const auto* const flow = std::get_if<LuDataflow>(&solve))
      check_streams(*flow, which);
    lu::check_solve(solve, tables, transposed, warps, kernels.block_threads / kWarp, solve_place);
    return solve;
  };
  flows.solve = read_solve(kLuSolveSection, false);
  if (manifest.transposed)
    flows.transposed = read_solve(kLuTransposedSection, true);
  return flows;
}

const char* name_or_null(const std::string& name) {
  return name.empty() ? nullptr : name.c_str();
}

lu::GpuCode code_of(const LuManifest& manifest, const std::vector<uint8_t>& image) {
  const LuKernels& kernels = *manifest.kernels;
  lu::GpuCode code;
  code.image = image;
  code.input = kernels.input.c_str();
  code.factor = kernels.factor.c_str();
  code.solve_input = kernels.solve_input.c_str();
  code.solve = kernels.solve.c_str();
  code.block_input = name_or_null(kernels.block_input);
  code.block_solve = name_or_null(kernels.block_solve);
  code.input_threads = kernels.input_threads;
  code.dataflow_threads = kernels.dataflow_threads;
  code.block_threads = kernels.block_threads;
  code.block_shared_bytes = kernels.block_shared_bytes;
  code.complex = is_complex(manifest.type);
  code.factor_bytes = bytes_of(manifest.factor_type);
  code.given_bytes = bytes_of(manifest.type);
  return code;
}

lu::GpuRefineCode code_of(const LuRefineKernels& kernels, LuNumber type,
                          const Bundle::Section& image) {
  lu::GpuRefineCode code;
  code.image = image.bytes;
  code.begin = kernels.begin.c_str();
  code.update = kernels.update.c_str();
  code.residual = kernels.residual.c_str();
  code.decide = kernels.decide.c_str();
  code.end = kernels.end.c_str();
  code.threads = kernels.threads;
  code.single_solution = code.given_single = is_single(type);
  return code;
}

void check_threshold(double pivot_threshold) {
  if (!(pivot_threshold >= 0 && pivot_threshold < 1))
    throw UsageError(fmt::format("a pivot threshold of {}", pivot_threshold),
                     "a number from 0, less than 1; 0 is the default");
}

void check_device(const LuManifest& manifest, const cuda::DeviceProperties& device,
                  const std::string& name) {
  const LuKernels& kernels = *manifest.kernels;
  if (kernels.multiprocessors > device.multiprocessors)
    throw UnsupportedDeviceError(
        fmt::format("checking {} against {}", name, device.name),
        fmt::format("its tables are for {} multiprocessors, the device has {}",
                    kernels.multiprocessors, device.multiprocessors),
        fmt::format("compile with --multiprocessors={}, or --target=native on the machine that "
                    "runs it",
                    device.multiprocessors));
  PlanEntry entry;
  const auto check = [&](const std::string& kernel, uint32_t threads, uint32_t shared) {
    entry.name = kernel;
    entry.block[0] = threads;
    entry.dynamic_shared_bytes = shared;
    check_limits(entry, device);
  };
  check(kernels.input, kernels.input_threads, 0);
  check(kernels.factor, kernels.dataflow_threads, 0);
  if (!kernels.block_solve.empty())
    check(kernels.block_solve, kernels.block_threads, kernels.block_shared_bytes);
  if (manifest.refinement)
    check(manifest.refinement->begin, manifest.refinement->threads, 0);
  if (manifest.batch_kernels) {
    check(manifest.batch_kernels->factor, manifest.batch_kernels->factor_threads, 0);
    check(manifest.batch_kernels->solve, manifest.batch_kernels->solve_threads, 0);
  }
}

} // namespace

LuPlan::LuPlan(std::shared_ptr<const ExecutionContext> context, const Bundle& bundle,
               const std::string& name)
    : context_(std::move(context)), manifest_text_(bundle.manifest),
      manifest_(parse_lu_manifest(bundle.manifest, name)),
      tables_(read_tables(bundle, manifest_, name)), pattern_(lu::pattern_of(tables_)) {
  if (context_->gpu())
    load_gpu(bundle, name);
  else
    executor_ = make_lu_executor(tables_, pattern_, manifest_);
  if (manifest_.batch)
    load_batch(bundle, name);
}

LuPlan::~LuPlan() {
  // Giving memory back needs the context; where it cannot be had, nothing can be given back.
  if (context_->gpu()) {
    try {
      context_->gpu()->make_current();
    } catch (const Error&) {
    }
  }
}

void LuPlan::load_gpu(const Bundle& bundle, const std::string& name) {
  const cuda::Context& gpu = *context_->gpu();
  if (!manifest_.kernels)
    throw UnsupportedDeviceError(fmt::format("checking {} against {}", name, gpu.properties().name),
                                 "the bundle was compiled for the host and has no kernels",
                                 "compile with --target=native, or make a context without a GPU");
  const Bundle::Section& image = choose_code(bundle, manifest_.target, gpu.properties(), name);
  check_device(manifest_, gpu.properties(), name);
  const lu::GpuFlows flows = read_flows(bundle, manifest_, tables_, name);
  gpu.make_current();
  LuGpuParts parts;
  parts.plan = std::make_unique<lu::GpuPlan>(gpu, code_of(manifest_, image.bytes), tables_, flows);
  if (manifest_.refinement)
    parts.refinement = std::make_unique<lu::GpuRefinement>(
        gpu,
        code_of(*manifest_.refinement, manifest_.type,
                choose_code(bundle, manifest_.target, gpu.properties(), name, kLuRefinePart)),
        *parts.plan);
  executor_ = make_lu_executor(gpu, std::move(parts), manifest_);
  code_ = image.name == "ptx" ? Plan::Code::ptx : Plan::Code::cubin;
}

void LuPlan::load_batch(const Bundle& bundle, const std::string& name) {
  const std::string place = place_in(name, kLuBatchSection);
  batch_loop_ = lu::parse_batch_loop(section(bundle, kLuBatchSection, name), place);
  lu::check_batch_loop(batch_loop_, tables_, place);
  if (!context_->gpu()) {
    batch_ = make_lu_batch_executor(batch_loop_, manifest_);
    return;
  }
  const cuda::Context& gpu = *context_->gpu();
  const LuBatchKernels& kernels = *manifest_.batch_kernels;
  if (kernels.looped && kernels.numbers != batch_loop_.numbers)
    refuse(name, fmt::format("section {} is for {} numbers, the manifest says {}", kLuBatchSection,
                             batch_loop_.numbers, kernels.numbers));
  lu::GpuBatchCode code;
  code.image = choose_code(bundle, manifest_.target, gpu.properties(), name, kLuBatchPart).bytes;
  code.factor = kernels.factor.c_str();
  code.solve = kernels.solve.c_str();
  code.lanes = kLuBatchInstances;
  code.factor_threads = kernels.factor_threads;
  code.solve_threads = kernels.solve_threads;
  code.numbers = kernels.numbers;
  code.complex = is_complex(manifest_.type);
  code.number_bytes = code.vector_bytes = bytes_of(manifest_.type);
  code.not_finite_bit = lu::kBatchNotFinite;
  gpu.make_current();
  batch_ =
      make_lu_batch_executor(gpu, std::make_unique<const lu::GpuBatchKernels>(
                                      gpu, code, tables_, kernels.looped ? &batch_loop_ : nullptr));
  batch_loop_ = {}; // copied to the GPU, or not needed there
}

uint64_t LuPlan::workspace_bytes(uint64_t right_sides) const {
  return executor_->workspace_bytes(right_sides);
}

void LuPlan::check_workspace(const LuWorkspace& workspace) const {
  if (workspace.memory == 0)
    throw UsageError("the workspace is a null pointer",
                     "give as much memory as sparsertc_lu_workspace_size says");
  if (workspace.memory % workspace_alignment() != 0)
    throw UsageError(
        fmt::format("the workspace is not aligned to {} bytes", workspace_alignment()));
  if (const uint64_t least = workspace_bytes(0); workspace.bytes < least)
    throw UsageError(
        fmt::format("the workspace has {} bytes, at least {} are needed", workspace.bytes, least));
}

void LuPlan::check_numbers(const char* what, LuAddress address, uint64_t count) const {
  if (count == 0)
    return;
  if (address == 0)
    throw UsageError(fmt::format("{} is a null pointer", what));
  if (const uint32_t alignment = bytes_of(manifest_.type); address % alignment != 0)
    throw UsageError(fmt::format("{} is not aligned to {} bytes", what, alignment));
}

void LuPlan::check_system(const LuSystem& system) const {
  constexpr uint64_t kMost = uint64_t{1} << 31;
  if (system.right_sides >= kMost)
    throw UsageError(fmt::format("{} right-hand sides", system.right_sides),
                     "0 to 2^31 - 1 are possible");
  const uint64_t count = manifest_.n * system.right_sides;
  check_numbers("b", system.b, count);
  check_numbers("x", system.x, count);
  const uint64_t apart = std::max(system.b, system.x) - std::min(system.b, system.x);
  if (apart != 0 && apart < count * bytes_of(manifest_.type))
    throw UsageError("b and x overlap", "let them be the same memory, or apart");
  if (system.transposed && !manifest_.transposed)
    throw UsageError("the bundle was compiled without solves with the transposed matrix");
}

void LuPlan::check_apart(LuAddress x, uint64_t count, const LuWorkspace& memory,
                         const char* what) const {
  if (count > 0 && x < memory.memory + memory.bytes &&
      memory.memory < x + count * bytes_of(manifest_.type))
    throw UsageError(fmt::format("x lies in {}", what), "give it memory of its own");
}

void LuPlan::initialize_workspace(const LuWorkspace& workspace, cuda::StreamHandle stream) const {
  check_workspace(workspace);
  executor_->initialize(workspace, stream);
}

void LuPlan::refactor(const LuWorkspace& workspace, LuAddress values, double pivot_threshold,
                      cuda::StreamHandle stream) const {
  check_workspace(workspace);
  check_numbers("values", values, manifest_.nnz);
  check_threshold(pivot_threshold);
  executor_->refactor(workspace, values, {pivot_threshold}, stream);
}

void LuPlan::solve(const LuWorkspace& workspace, const LuSystem& system,
                   cuda::StreamHandle stream) const {
  check_workspace(workspace);
  check_system(system);
  check_apart(system.x, manifest_.n * system.right_sides, workspace, "the workspace");
  if (system.right_sides == 0)
    return;
  check_has_room(workspace);
  executor_->solve(workspace, system, stream);
}

void LuPlan::check_has_room(const LuWorkspace& workspace) const {
  if (executor_->right_sides_in(workspace.bytes) == 0)
    throw UsageError(fmt::format("the workspace has {} bytes, a right-hand side needs {}",
                                 workspace.bytes, workspace_bytes(1)));
}

uint64_t LuPlan::refinement_bytes(uint64_t right_sides) const {
  if (!can_refine())
    throw UsageError("the bundle was compiled without refinement", "compile it again");
  return executor_->refinement_bytes(right_sides);
}

void LuPlan::check_refinement(const LuWorkspace& memory, uint64_t right_sides) const {
  const uint64_t needed = refinement_bytes(right_sides);
  if (needed == 0)
    return;
  if (memory.memory == 0)
    throw UsageError("the memory of the refinement is a null pointer",
                     "give as much as sparsertc_lu_refinement_size says");
  if (memory.memory % workspace_alignment() != 0)
    throw UsageError(fmt::format("the memory of the refinement is not aligned to {} bytes",
                                 workspace_alignment()));
  if (memory.bytes < needed)
    throw UsageError(fmt::format("the refinement's memory has {} bytes, {} {} {}", memory.bytes,
                                 counted(right_sides, "right-hand side"),
                                 right_sides == 1 ? "needs" : "need", needed));
}

void LuPlan::solve_refined(const LuWorkspace& workspace, const LuSystem& system,
                           const LuRefinement& refinement, cuda::StreamHandle stream) const {
  check_workspace(workspace);
  check_system(system);
  check_numbers("values", refinement.values, manifest_.nnz);
  check_refinement(refinement.memory, system.right_sides);
  const uint64_t count = manifest_.n * system.right_sides;
  check_apart(system.x, count, workspace, "the workspace");
  check_apart(system.x, count, refinement.memory, "the memory of the refinement");
  if (!(refinement.options.target >= 0 && refinement.options.target < 1))
    throw UsageError(fmt::format("a target of {}", refinement.options.target),
                     "a number from 0, less than 1; 0 is the unit roundoff");
  if (refinement.options.maximum_steps > kMostRefineSteps)
    throw UsageError(fmt::format("{} steps of refinement", refinement.options.maximum_steps),
                     fmt::format("0 to {} are possible", kMostRefineSteps));
  if (system.right_sides == 0)
    return;
  check_has_room(workspace);
  executor_->solve_refined(workspace, system, refinement, stream);
}

std::vector<lu::RefineResult> LuPlan::refine_results(const LuWorkspace& memory,
                                                     uint64_t right_sides,
                                                     cuda::StreamHandle stream) const {
  check_refinement(memory, right_sides);
  return executor_->refine_results(memory, right_sides, stream);
}

uint64_t LuPlan::batch_bytes(uint64_t instances) const {
  if (!batch_)
    throw UsageError("the bundle was compiled without batches", "compile it with --batch");
  constexpr uint64_t kMost = uint64_t{1} << 31;
  // A group of one instance takes no less than any other.
  if (instances >= kMost || static_cast<double>(batch_->bytes(1)) * instances > 0x1p62)
    throw UsageError(fmt::format("a batch of {} matrices", instances),
                     "0 to 2^31 - 1 are possible, as far as memory can be addressed");
  return batch_->bytes(instances);
}

void LuPlan::check_batch(const LuWorkspace& workspace, uint64_t instances) const {
  const uint64_t needed = batch_bytes(instances);
  if (instances == 0)
    return;
  if (workspace.memory == 0)
    throw UsageError("the workspace is a null pointer",
                     "give as much memory as sparsertc_lu_batch_size says");
  if (workspace.memory % workspace_alignment() != 0)
    throw UsageError(
        fmt::format("the workspace is not aligned to {} bytes", workspace_alignment()));
  if (workspace.bytes < needed)
    throw UsageError(fmt::format("the workspace has {} bytes, {} {} {}", workspace.bytes,
                                 counted(instances, "instance"), instances == 1 ? "needs" : "need",
                                 needed));
}

void LuPlan::batch_refactor(const LuWorkspace& workspace, uint64_t instances, LuAddress values,
                            double pivot_threshold, cuda::StreamHandle stream) const {
  check_batch(workspace, instances);
  check_numbers("values", values, manifest_.nnz * instances);
  check_threshold(pivot_threshold);
  if (instances > 0)
    batch_->refactor(workspace.memory, instances, values, {pivot_threshold}, stream);
}

void LuPlan::batch_solve(const LuWorkspace& workspace, uint64_t instances, LuAddress b, LuAddress x,
                         cuda::StreamHandle stream) const {
  check_batch(workspace, instances);
  const uint64_t count = manifest_.n * instances;
  check_numbers("b", b, count);
  check_numbers("x", x, count);
  check_apart(x, count, workspace, "the workspace");
  if (std::max(b, x) - std::min(b, x) < count * bytes_of(manifest_.type))
    throw UsageError("b and x overlap", "the solutions of a batch need memory of their own");
  if (instances > 0)
    batch_->solve(workspace.memory, instances, b, x, stream);
}

std::vector<lu::BatchStatus> LuPlan::batch_status(const LuWorkspace& workspace, uint64_t instances,
                                                  cuda::StreamHandle stream) const {
  check_batch(workspace, instances);
  std::vector<lu::BatchStatus> status;
  if (instances == 0)
    return status;
  for (const uint32_t word : batch_->status_words(workspace.memory, instances, stream))
    status.push_back({word & ~lu::kBatchNotFinite, (word & lu::kBatchNotFinite) == 0});
  return status;
}

bool LuPlan::is_stale(const lu::BatchStatus& status) const {
  return status.replaced > (manifest_.chosen ? manifest_.chosen->perturbed : 0);
}

LuStatus LuPlan::status(const LuWorkspace& workspace, cuda::StreamHandle stream) const {
  check_workspace(workspace);
  LuStatus status;
  status.factor = executor_->status(workspace, stream);
  status.stale = lu::find_staleness(manifest_.chosen.value_or(lu::FactorStatus{}), status.factor);
  return status;
}

LuAssessment LuPlan::assess(const LuWorkspace& workspace, LuAddress values,
                            cuda::StreamHandle stream) const {
  check_workspace(workspace);
  check_numbers("values", values, manifest_.nnz);
  const lu::FactorStatus factor = executor_->status(workspace, stream);
  LuAssessment assessment;
  if (factor.outcome != lu::FactorOutcome::ok) {
    assessment.singular = factor.outcome == lu::FactorOutcome::singular;
    assessment.condition = std::numeric_limits<double>::infinity();
    return assessment;
  }
  check_has_room(workspace);
  return executor_->assess(workspace, pattern_, executor_->read(values, manifest_.nnz, stream),
                           factor, stream);
}

double LuPlan::residual(const LuSystem& system, LuAddress values, cuda::StreamHandle stream) const {
  check_system(system);
  check_numbers("values", values, manifest_.nnz);
  const uint64_t count = manifest_.n * system.right_sides;
  const std::vector<double> a = executor_->read(values, manifest_.nnz, stream);
  const std::vector<double> b = executor_->read(system.b, count, stream);
  const std::vector<double> x = executor_->read(system.x, count, stream);
  return with_lu_types(manifest_, [&]<class T, class X>() {
    using V = lu::Wide<X>;
    const lu::MatrixView<V> view{tables_.size, pattern_.row_offset, pattern_.column_index,
                                 as_numbers<V>(a)};
    double worst = 0;
    for (uint64_t side = 0; side < system.right_sides; ++side) {
      const double found = lu::relative_residual<V>(
          view, as_numbers<V>(b).subspan(side * tables_.size, tables_.size),
          as_numbers<V>(x).subspan(side * tables_.size, tables_.size), system.transposed);
      if (!(found <= worst))
        worst = found;
      if (std::isnan(worst))
        break;
    }
    return worst;
  });
}

std::vector<double> LuPlan::factors(const LuWorkspace& workspace, cuda::StreamHandle stream) const {
  check_workspace(workspace);
  executor_->status(workspace, stream); // there must be factors
  std::vector<double> parts = executor_->factors(workspace, stream);
  with_lu_types(manifest_, [&]<class T, class X>() {
    using V = lu::Wide<X>;
    V* const v = reinterpret_cast<V*>(parts.data());
    for (uint32_t j = 0; j < tables_.size; ++j) {
      const V reciprocal = v[tables_.diagonal[j]];
      for (uint64_t slot = tables_.diagonal[j] + 1; slot < tables_.column_offset[j + 1]; ++slot)
        v[slot] = lu::times(v[slot], reciprocal);
      v[tables_.diagonal[j]] = lu::reciprocal(reciprocal);
    }
  });
  return parts;
}

} // namespace sparsertc
