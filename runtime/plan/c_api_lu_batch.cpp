// The part of sparsertc.h about batches of sparse LU.
#include "ir/error.h"
#include "runtime/plan/c_api_lu.h"

#include <fmt/format.h>

#include <limits>

using namespace sparsertc;

namespace {

uint64_t checked_instances(int64_t instances) {
  if (instances < 0 || instances > std::numeric_limits<int32_t>::max())
    throw UsageError(fmt::format("instances is {}, possible are 0 to 2^31 - 1", instances));
  return static_cast<uint64_t>(instances);
}

} // namespace

sparsertc_result sparsertc_lu_batch_size(const sparsertc_lu* lu, int64_t instances,
                                         uint64_t* bytes) {
  return guarded([&] {
    uint64_t& result = required(bytes, "bytes");
    result = required_plan(lu).batch_bytes(checked_instances(instances));
  });
}

sparsertc_result sparsertc_lu_batch_refactor(const sparsertc_lu* lu,
                                             const sparsertc_lu_batch_matrices* matrices,
                                             const sparsertc_lu_workspace* workspace,
                                             void* stream) {
  return guarded([&] {
    const sparsertc_lu_batch_matrices& given =
        required_struct(matrices, "matrices", "sparsertc_lu_batch_matrices");
    required_plan(lu).batch_refactor(required_workspace(workspace),
                                     checked_instances(given.instances), address_of(given.values),
                                     given.pivot_threshold, stream_of(stream));
  });
}

sparsertc_result sparsertc_lu_batch_solve(const sparsertc_lu* lu,
                                          const sparsertc_lu_batch_systems* systems,
                                          const sparsertc_lu_workspace* workspace, void* stream) {
  return guarded([&] {
    const sparsertc_lu_batch_systems& given =
        required_struct(systems, "systems", "sparsertc_lu_batch_systems");
    required_plan(lu).batch_solve(required_workspace(workspace), checked_instances(given.instances),
                                  address_of(given.b), address_of(given.x), stream_of(stream));
  });
}

sparsertc_result sparsertc_lu_batch_status(const sparsertc_lu* lu,
                                           const sparsertc_lu_workspace* workspace, void* stream,
                                           int64_t instances, uint32_t* outcomes,
                                           int64_t* perturbations) {
  return guarded([&] {
    const LuPlan& plan = required_plan(lu);
    const std::vector<lu::BatchStatus> status = plan.batch_status(
        required_workspace(workspace), checked_instances(instances), stream_of(stream));
    for (size_t s = 0; s < status.size(); ++s) {
      if (outcomes != nullptr)
        outcomes[s] = !status[s].finite          ? SPARSERTC_OUTCOME_NOT_FINITE
                      : plan.is_stale(status[s]) ? SPARSERTC_OUTCOME_STALE
                                                 : SPARSERTC_OUTCOME_OK;
      if (perturbations != nullptr)
        perturbations[s] = status[s].replaced;
    }
  });
}
