// The part of sparsertc.h about sparse LU.
#include "runtime/plan/c_api_lu.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

using namespace sparsertc;

namespace {

LuSystem to_system(const sparsertc_lu_system& given) {
  if (given.right_sides < 0)
    throw UsageError(fmt::format("right_sides is {}", given.right_sides));
  if (given.transposed > 1)
    throw UsageError(fmt::format("transposed is {}, expected 0 or 1", given.transposed));
  if (given.reserved != 0)
    throw UsageError("sparsertc_lu_system: reserved is not 0");
  return {address_of(given.b), address_of(given.x), static_cast<uint64_t>(given.right_sides),
          given.transposed == 1};
}

uint64_t checked_sides(int64_t right_sides) {
  if (right_sides < 0 || right_sides > std::numeric_limits<int32_t>::max())
    throw UsageError(fmt::format("right_sides is {}, possible are 0 to 2^31 - 1", right_sides));
  return static_cast<uint64_t>(right_sides);
}

const sparsertc_lu_refinement& required_refinement(const sparsertc_lu_refinement* refinement) {
  const sparsertc_lu_refinement& given =
      required_struct(refinement, "refinement", "sparsertc_lu_refinement");
  if (given.reserved != 0)
    throw UsageError("sparsertc_lu_refinement: reserved is not 0");
  return given;
}
LuWorkspace memory_of(const sparsertc_lu_refinement& refinement) {
  return {address_of(refinement.memory), refinement.bytes};
}

const sparsertc_lu_system& required_system(const sparsertc_lu_system* system) {
  return required_struct(system, "system", "sparsertc_lu_system");
}
const sparsertc_lu_matrix& required_matrix(const sparsertc_lu_matrix* matrix) {
  return required_struct(matrix, "matrix", "sparsertc_lu_matrix");
}

void create_lu(const sparsertc_context* context, const Bundle& bundle, const std::string& name,
               sparsertc_lu** lu) {
  auto made = std::make_unique<sparsertc_lu>();
  made->plan = std::make_unique<LuPlan>(context->context, bundle, name);
  *lu = made.release();
}

uint32_t outcome_of(const LuStatus& status) {
  switch (status.factor.outcome) {
  case lu::FactorOutcome::singular:
    return SPARSERTC_OUTCOME_SINGULAR;
  case lu::FactorOutcome::not_finite:
    return SPARSERTC_OUTCOME_NOT_FINITE;
  case lu::FactorOutcome::ok:
    break;
  }
  return status.stale.empty() ? SPARSERTC_OUTCOME_OK : SPARSERTC_OUTCOME_STALE;
}

thread_local std::string reason_of_last_status;

const double* or_null(const std::vector<double>& scale) {
  return scale.empty() ? nullptr : scale.data();
}

} // namespace

sparsertc_result sparsertc_lu_load(const sparsertc_context* context, const char* path,
                                   sparsertc_lu** lu) {
  return guarded([&] {
    required(lu, "lu") = nullptr;
    required(context, "context");
    const std::string name = &required(path, "path");
    create_lu(context, read_bundle(name), name, lu);
  });
}

sparsertc_result sparsertc_lu_create(const sparsertc_context* context, const void* bundle,
                                     uint64_t bytes, sparsertc_lu** lu) {
  return guarded([&] {
    required(lu, "lu") = nullptr;
    required(context, "context");
    const std::string name = "bundle in memory";
    const auto* first = &required(static_cast<const uint8_t*>(bundle), "bundle");
    create_lu(context, parse_bundle({first, bytes}, name), name, lu);
  });
}

void sparsertc_lu_destroy(sparsertc_lu* lu) {
  delete lu;
}

sparsertc_result sparsertc_lu_query(const sparsertc_lu* lu, sparsertc_lu_info* info) {
  return guarded([&] {
    check_size(required(info, "info"), "sparsertc_lu_info");
    const LuPlan& plan = required_plan(lu);
    const LuManifest& manifest = plan.manifest();
    clear_keeping_size(*info);
    info->n = static_cast<int64_t>(manifest.n);
    info->nnz = static_cast<int64_t>(manifest.nnz);
    info->dtype = name_of(manifest.type);
    info->factor_dtype = name_of(manifest.factor_type);
    info->element_size = bytes_of(manifest.type);
    info->has_transposed = manifest.transposed;
    info->nnz_l = static_cast<int64_t>(manifest.nnz_l);
    info->nnz_u = static_cast<int64_t>(manifest.nnz_u);
    info->flops = manifest.flops;
    info->levels = static_cast<int64_t>(manifest.levels);
    info->levels_forward = static_cast<int64_t>(manifest.levels_forward);
    info->levels_backward = static_cast<int64_t>(manifest.levels_backward);
    info->has_chosen = manifest.chosen.has_value();
    info->matched = manifest.matched;
    if (manifest.chosen) {
      info->chosen_growth = manifest.chosen->growth;
      info->chosen_perturbations = static_cast<int64_t>(manifest.chosen->perturbed);
    }
    info->workspace_alignment = plan.workspace_alignment();
    info->table_size = plan.table_bytes();
    info->order = manifest.order.c_str();
    info->target = manifest.target.c_str();
    info->pattern_digest = manifest.pattern_digest.c_str();
    info->manifest = plan.manifest_text().c_str();
    info->code = plan.code() == Plan::Code::cubin ? SPARSERTC_CODE_CUBIN
                 : plan.code() == Plan::Code::ptx ? SPARSERTC_CODE_PTX
                                                  : SPARSERTC_CODE_NONE;
    info->has_refinement = plan.can_refine();
    info->has_batch = plan.has_batch();
  });
}

sparsertc_result sparsertc_lu_get_structure(const sparsertc_lu* lu,
                                            sparsertc_lu_structure* structure) {
  return guarded([&] {
    check_size(required(structure, "structure"), "sparsertc_lu_structure");
    const LuTables& tables = required_plan(lu).tables();
    clear_keeping_size(*structure);
    structure->rows = tables.row_order.data();
    structure->columns = tables.column_order.data();
    structure->row_scale = or_null(tables.row_scale);
    structure->column_scale = or_null(tables.column_scale);
    structure->column_offsets = tables.column_offset.data();
    structure->row_indices = tables.row_index.data();
    structure->diagonal = tables.diagonal.data();
  });
}

sparsertc_result sparsertc_lu_workspace_size(const sparsertc_lu* lu, int64_t right_sides,
                                             uint64_t* bytes) {
  return guarded([&] {
    uint64_t& result = required(bytes, "bytes");
    const LuPlan& plan = required_plan(lu);
    result = plan.workspace_bytes(checked_sides(right_sides));
  });
}

sparsertc_result sparsertc_lu_workspace_initialize(const sparsertc_lu* lu,
                                                   const sparsertc_lu_workspace* workspace,
                                                   void* stream) {
  return guarded([&] {
    required_plan(lu).initialize_workspace(required_workspace(workspace), stream_of(stream));
  });
}

sparsertc_result sparsertc_lu_refactor(const sparsertc_lu* lu, const sparsertc_lu_matrix* matrix,
                                       const sparsertc_lu_workspace* workspace, void* stream) {
  return guarded([&] {
    const sparsertc_lu_matrix& given = required_matrix(matrix);
    required_plan(lu).refactor(required_workspace(workspace), address_of(given.values),
                               given.pivot_threshold, stream_of(stream));
  });
}

sparsertc_result sparsertc_lu_solve(const sparsertc_lu* lu, const sparsertc_lu_system* system,
                                    const sparsertc_lu_workspace* workspace, void* stream) {
  return guarded([&] {
    required_plan(lu).solve(required_workspace(workspace), to_system(required_system(system)),
                            stream_of(stream));
  });
}

sparsertc_result sparsertc_lu_refinement_size(const sparsertc_lu* lu, int64_t right_sides,
                                              uint64_t* bytes) {
  return guarded([&] {
    uint64_t& result = required(bytes, "bytes");
    result = required_plan(lu).refinement_bytes(checked_sides(right_sides));
  });
}

sparsertc_result sparsertc_lu_solve_refined(const sparsertc_lu* lu,
                                            const sparsertc_lu_matrix* matrix,
                                            const sparsertc_lu_system* system,
                                            const sparsertc_lu_refinement* refinement,
                                            const sparsertc_lu_workspace* workspace, void* stream) {
  return guarded([&] {
    const sparsertc_lu_refinement& given = required_refinement(refinement);
    LuRefinement wanted{memory_of(given), address_of(required_matrix(matrix).values), {}};
    wanted.options.maximum_steps = given.maximum_steps;
    wanted.options.target = given.target;
    required_plan(lu).solve_refined(required_workspace(workspace),
                                    to_system(required_system(system)), wanted, stream_of(stream));
  });
}

sparsertc_result sparsertc_lu_refinement_results(const sparsertc_lu* lu,
                                                 const sparsertc_lu_refinement* refinement,
                                                 void* stream, int64_t right_sides,
                                                 double* backward_errors, double* residuals,
                                                 int64_t* steps) {
  return guarded([&] {
    const LuWorkspace memory = memory_of(required_refinement(refinement));
    const std::vector<lu::RefineResult> results =
        required_plan(lu).refine_results(memory, checked_sides(right_sides), stream_of(stream));
    for (size_t side = 0; side < results.size(); ++side) {
      if (backward_errors != nullptr)
        backward_errors[side] = results[side].backward_error;
      if (residuals != nullptr)
        residuals[side] = results[side].residual;
      if (steps != nullptr)
        steps[side] = results[side].steps;
    }
  });
}

sparsertc_result sparsertc_lu_status(const sparsertc_lu* lu,
                                     const sparsertc_lu_workspace* workspace, void* stream,
                                     sparsertc_lu_factor_status* status) {
  return guarded([&] {
    check_size(required(status, "status"), "sparsertc_lu_factor_status");
    LuStatus found = required_plan(lu).status(required_workspace(workspace), stream_of(stream));
    reason_of_last_status = std::move(found.stale);
    clear_keeping_size(*status);
    found.stale = reason_of_last_status;
    status->outcome = outcome_of(found);
    status->row = found.factor.row;
    status->column = found.factor.column;
    status->perturbations = static_cast<int64_t>(found.factor.perturbed);
    status->perturbed_row = found.factor.perturbed_row;
    status->perturbed_column = found.factor.perturbed_column;
    status->growth = found.factor.growth;
    status->weakest_pivot = found.factor.weakest_pivot;
    status->weakest_row = found.factor.weakest_row;
    status->weakest_column = found.factor.weakest_column;
    status->reason = reason_of_last_status.c_str();
  });
}

sparsertc_result sparsertc_lu_assess(const sparsertc_lu* lu, const sparsertc_lu_matrix* matrix,
                                     const sparsertc_lu_system* system,
                                     const sparsertc_lu_workspace* workspace, void* stream,
                                     sparsertc_lu_assessment* assessment) {
  return guarded([&] {
    check_size(required(assessment, "assessment"), "sparsertc_lu_assessment");
    const LuPlan& plan = required_plan(lu);
    const LuAddress values = address_of(required_matrix(matrix).values);
    const LuAssessment found =
        plan.assess(required_workspace(workspace), values, stream_of(stream));
    const double residual =
        system ? plan.residual(to_system(required_system(system)), values, stream_of(stream)) : 0;
    clear_keeping_size(*assessment);
    assessment->condition = found.condition;
    assessment->residual = residual;
    assessment->singular = found.singular;
  });
}

sparsertc_result sparsertc_lu_get_factors(const sparsertc_lu* lu,
                                          const sparsertc_lu_workspace* workspace, void* stream,
                                          double* factors, uint64_t count) {
  return guarded([&] {
    const LuPlan& plan = required_plan(lu);
    if (count != plan.tables().nnz())
      throw UsageError(
          fmt::format("count is {}, the factors have {} entries", count, plan.tables().nnz()));
    const std::vector<double> found =
        plan.factors(required_workspace(workspace), stream_of(stream));
    if (count != 0)
      check_not_null(factors, "factors");
    std::copy(found.begin(), found.end(), factors);
  });
}
