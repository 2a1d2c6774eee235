#include "compiler/emit/clusters.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc {

void require_clusters(const ir::Module& module, const Target& target) {
  constexpr uint32_t kFirstWithClusters = 90;
  if (target.is_host || target.compute_capability >= kFirstWithClusters)
    return;
  for (const ir::Function& function : module.functions) {
    const bool needs =
        function.has_cluster() ||
        std::any_of(function.ops.begin(), function.ops.end(), [](const ir::Op& op) {
          return op.code == ir::Opcode::cluster_barrier || op.code == ir::Opcode::peer;
        });
    if (needs)
      throw UserError(fmt::format("@{} is for clusters of blocks, which {} does not have",
                                  function.name, target.name),
                      "choose sm_90 or newer as target, or a tile with cluster=1");
  }
}

} // namespace sparsertc
