// What the parts of sparsertc.h about sparse LU share.
#pragma once

#include "runtime/plan/c_api.h"
#include "runtime/plan/c_guard.h"

namespace sparsertc {

inline LuAddress address_of(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}
inline cuda::StreamHandle stream_of(void* stream) {
  return static_cast<cuda::StreamHandle>(stream);
}

inline const LuPlan& required_plan(const sparsertc_lu* handle) {
  return *required(handle, "lu").plan;
}

inline LuWorkspace required_workspace(const sparsertc_lu_workspace* workspace) {
  const sparsertc_lu_workspace& given =
      required_struct(workspace, "workspace", "sparsertc_lu_workspace");
  return {address_of(given.memory), given.bytes};
}

} // namespace sparsertc
