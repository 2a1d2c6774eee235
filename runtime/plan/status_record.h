// The first bytes of every workspace, in device memory: what an execution has to say. Kernels of
// families that can fail for numerical reasons write it; those of SpMM cannot fail and leave it as
// initialising the workspace made it, so that an execution is one launch and nothing else.
#pragma once

#include "ir/error.h"

#include <cstdint>

namespace sparsertc {

struct StatusRecord {
  static constexpr uint32_t kMagic = 0x54525053; ///< "SPRT"
  static constexpr uint32_t kVersion = 1;

  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t outcome = 0; ///< sparsertc_outcome
  uint32_t reserved = 0;
  int64_t index = -1; ///< where the outcome arose (a pivot's row, say); -1: nowhere
  uint64_t unused[5] = {};
};
static_assert(sizeof(StatusRecord) == 64, "kernels and hosts of all builds agree on the layout");

/// Throws UsageError where initialising a workspace did not write this.
inline void check_initialized(const StatusRecord& record) {
  if (record.magic != StatusRecord::kMagic || record.version != StatusRecord::kVersion)
    throw UsageError("the workspace holds no status record",
                     "initialise each workspace once before its first execution");
}

} // namespace sparsertc
