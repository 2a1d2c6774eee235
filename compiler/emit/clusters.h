// Clusters of blocks exist from sm_90 on.
#pragma once

#include "compiler/emit/target.h"
#include "ir/module.h"

namespace sparsertc {

/// Throws UserError where a GPU's code would need clusters of blocks, which `target` lacks.
void require_clusters(const ir::Module& module, const Target& target);

} // namespace sparsertc
