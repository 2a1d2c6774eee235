// A bundle made ready to run: loaded, checked against the device, and constant from then on.
//
//   bundle --> manifest --> checks --> module --> Plan --> execute, execute, execute, ...
//              (JSON)       (device)   (driver)   const    (one launch each, any thread and stream)
//
// Everything slow happens in the constructor. What an execution changes lies in its workspace, so
// that several threads may execute one plan at once, each with its own workspace.
#pragma once

#include "runtime/bundle/bundle.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/plan/execution_context.h"
#include "runtime/plan/plan_manifest.h"
#include "runtime/plan/status_record.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// C = act(A * B + bias + residual). Addresses are device memory; an operand without elements, or
/// one that the plan does not take, may be null.
struct SpmmArguments {
  cuda::DeviceAddress b = 0;        ///< K x N
  cuda::DeviceAddress c = 0;        ///< M x N, overwritten
  cuda::DeviceAddress bias = 0;     ///< M
  cuda::DeviceAddress residual = 0; ///< M x N, laid out as C
  int64_t n = 0;                    ///< columns of B
  /// Elements from one row (column, where column-major) to the next; 0: the plan's, or where the
  /// plan leaves them open as close as they can be (n).
  int64_t ldb = 0, ldc = 0;
};

class Plan {
public:
  enum class Code : uint8_t {
    none,  ///< not loaded: no GPU, or nothing to compute
    cubin, ///< machine code from the bundle
    ptx    ///< assembled by the driver for this device
  };

  /// Loads the bundle `name` (for messages). Throws UserError where it is none or damaged,
  /// UnsupportedDeviceError where the device cannot run it, RuntimeError where the driver refuses.
  Plan(std::shared_ptr<const ExecutionContext> context, Bundle bundle, const std::string& name);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const ExecutionContext& context() const { return *context_; }
  const Bundle& bundle() const { return bundle_; }
  const PlanManifest& manifest() const { return manifest_; }
  Code code() const { return code_; }
  /// Bytes to which B, C and the residual must be aligned.
  uint64_t operand_alignment() const { return alignment_; }
  /// As the driver says, of the first kernel; null where nothing is loaded.
  const cuda::Kernel* kernel() const { return kernels_.empty() ? nullptr : &kernels_.front(); }

  /// Device memory that every execution under way needs for itself.
  static constexpr uint64_t kWorkspaceBytes = sizeof(StatusRecord);
  static constexpr uint64_t kWorkspaceAlignment = 64;

  /// Enqueues what a workspace must hold before its first execution.
  void initialize_workspace(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const;

  /// Enqueues the layer on the stream: one cuLaunchKernel for each entry of the manifest and no
  /// other call of the driver; nothing is allocated, loaded, locked or waited for. n = 0 enqueues
  /// nothing. The device's primary context must be current on the calling thread. Throws UsageError
  /// for arguments that the kernels cannot take, NoGpuError without a GPU, RuntimeError where the
  /// driver refuses.
  void execute(const SpmmArguments& arguments, cuda::DeviceAddress workspace,
               cuda::StreamHandle stream) const;

  /// Waits for the stream and reads what the last execution with this workspace had to say. Throws
  /// RuntimeError where a kernel failed, UsageError where the workspace was never initialised.
  StatusRecord status(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const;

private:
  void load(const std::string& name);

  std::shared_ptr<const ExecutionContext> context_;
  Bundle bundle_;
  PlanManifest manifest_;
  Code code_ = Code::none;
  std::optional<cuda::Module> module_;
  std::vector<cuda::Kernel> kernels_; ///< one for each entry
  uint64_t alignment_ = 1;            ///< of B, C and the residual
  uint64_t most_columns_ = 0;
};

} // namespace sparsertc
