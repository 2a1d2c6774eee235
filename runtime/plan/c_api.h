// What stands behind the handles of sparsertc.h, and its way in for tests that bring their own
// driver.
#pragma once

#include "runtime/include/sparsertc.h"
#include "runtime/plan/lu_plan.h"
#include "runtime/plan/network.h"

#include <memory>

struct sparsertc_context {
  std::shared_ptr<const sparsertc::ExecutionContext> context;
};
struct sparsertc_plan {
  std::shared_ptr<sparsertc::Plan> plan; ///< never null; a network may have it, too
  // Of a tuned plan, for its report.
  std::string tile, record, remark, strategies;
};

struct sparsertc_network {
  std::unique_ptr<sparsertc::Network> network; ///< never null
};

struct sparsertc_lu {
  std::unique_ptr<sparsertc::LuPlan> plan; ///< never null
};

namespace sparsertc {

/// sparsertc_context_create with a driver that is opened otherwise.
sparsertc_result create_context(int32_t device, const ExecutionContext::OpenDriver& open_driver,
                                sparsertc_context** context);

} // namespace sparsertc
