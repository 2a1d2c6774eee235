// Whether a device can run a bundle's code, found out before the driver sees it: the driver's own
// answers ("invalid value", "out of resources") do not say what is too large.
#pragma once

#include "ir/error.h"
#include "runtime/bundle/bundle.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/plan/plan_manifest.h"

namespace sparsertc {

/// The device cannot run the code; another one may.
class UnsupportedDeviceError : public RuntimeError {
public:
  using RuntimeError::RuntimeError;
};

/// Whether machine code for `target` runs on a device of this compute capability (90 for 9.0):
/// sm_90a exactly there, sm_86 also on later minors of its major.
/// Throws UserError for what is no target of a GPU.
bool runs_machine_code(const std::string& target, uint32_t compute_capability);
/// The same for PTX that the driver assembles: sm_90a exactly there, sm_80 on everything later.
bool runs_ptx(const std::string& target, uint32_t compute_capability);

/// The section that the device runs: the cubin where it fits, else the PTX; `part` precedes their
/// names in bundles with several. Throws UnsupportedDeviceError where neither does, UserError where
/// the bundle `name` has no code.
const Bundle::Section& choose_code(const Bundle& bundle, const std::string& target,
                                   const cuda::DeviceProperties& device, const std::string& name,
                                   const std::string& part = "");

/// Checks threads and shape of a block, shared memory, rows of the grid and, where the manifest
/// knows the registers, their number. Throws UnsupportedDeviceError.
void check_limits(const PlanEntry& entry, const cuda::DeviceProperties& device);
/// The same with what the driver says about the loaded kernel.
void check_loaded(const PlanEntry& entry, const cuda::Kernel& kernel,
                  const cuda::DeviceProperties& device);

} // namespace sparsertc
