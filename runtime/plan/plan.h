// A bundle made ready to run: loaded, checked against the device, and constant from then on, except
// that other weights may be bound to it between executions.
//
//   bundle --> manifest --> checks --> module --> Plan --> execute, execute, execute, ...
//              (JSON)       (device)   (driver)   const    (one launch each, any thread and stream)
//
// Everything slow happens in the constructor. What an execution changes lies in its workspace, so
// that several threads may execute one plan at once, each with its own workspace.
#pragma once

#include "runtime/bundle/binding.h"
#include "runtime/bundle/bundle.h"
#include "runtime/driver/cublaslt.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/plan/execution_context.h"
#include "runtime/plan/plan_manifest.h"
#include "runtime/plan/status_record.h"

#include <memory>
#include <mutex>
#include <optional>
#include <span>
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
  /// A dense library's algorithms take at most so many bytes of the workspace.
  Plan(std::shared_ptr<const ExecutionContext> context, Bundle bundle, const std::string& name,
       uint64_t most_library_workspace = cuda::DenseProduct::kUsualWorkspace);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const ExecutionContext& context() const { return *context_; }
  /// With the digest of the values that are bound now. Valid until others are bound.
  const Bundle& bundle() const;
  const PlanManifest& manifest() const { return manifest_; }
  Code code() const { return code_; }
  /// The dense library that multiplies; null where the plan's own kernels do. Then, of a plan that
  /// would have one, why.
  const cuda::CublasLt* library() const { return product_ ? &product_->library() : nullptr; }
  const std::string& library_refusal() const { return library_refusal_; }
  /// Bytes to which B, C and the residual must be aligned.
  uint64_t operand_alignment() const { return alignment_; }
  /// As the driver says, of the first kernel; null where nothing is loaded.
  const cuda::Kernel* kernel() const { return kernels_.empty() ? nullptr : &kernels_.front(); }

  /// New weights for the same pattern, one for each entry in the order of its rows: rounded to the
  /// plan's type as the compiler does it, written into the machine code, which is then loaded in
  /// place of the old. Nothing is compiled, and the results are those of a compilation with these
  /// weights, bit by bit. The PTX of the bundle, which has the old weights, is dropped.
  ///
  /// No execution may be under way or begin meanwhile; graphs that captured this plan hold the old
  /// code and may not be launched any more. Where it throws, nothing has changed: NotBindableError
  /// where the bundle's code cannot take other weights, UsageError for a number of values that is
  /// not the pattern's or a value that is not finite in the plan's type, UserError where the
  /// bundle's table of places is damaged, RuntimeError where the driver refuses.
  void bind_values(std::span<const double> values);
  void bind_values(std::span<const float> values);

  /// Device memory that every execution under way needs for itself: at least kWorkspaceBytes, more
  /// for a library's algorithm.
  uint64_t workspace_bytes() const;
  /// Of these the algorithm's.
  uint64_t library_workspace_bytes() const { return product_ ? product_->workspace_bytes() : 0; }
  static constexpr uint64_t kWorkspaceBytes = sizeof(StatusRecord);
  static constexpr uint64_t kWorkspaceAlignment = 64;

  /// Enqueues what a workspace must hold before its first execution.
  void initialize_workspace(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const;

  /// Enqueues the layer on the stream: one cuLaunchKernel for each entry of the manifest and no
  /// other call of the driver, or one call of a dense library; nothing is allocated, loaded, locked
  /// or waited for. n = 0 enqueues nothing. The device's primary context must be current on the
  /// calling thread. Throws UsageError for arguments that the kernels cannot take, NoGpuError
  /// without a GPU, RuntimeError where the driver refuses.
  void execute(const SpmmArguments& arguments, cuda::DeviceAddress workspace,
               cuda::StreamHandle stream) const;

  /// Waits for the stream and reads what the last execution with this workspace had to say. Throws
  /// RuntimeError where a kernel failed, UsageError where the workspace was never initialised.
  StatusRecord status(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const;

private:
  void load();
  std::unique_ptr<cuda::DenseProduct> open_library(const cuda::Module& module);
  void unload(std::unique_ptr<cuda::Module>& module) const;
  template <typename Value>
  void bind(std::span<const Value> values);

  std::shared_ptr<const ExecutionContext> context_;
  std::string name_;
  mutable Bundle bundle_; ///< the digest of bound values follows when somebody asks
  PlanManifest manifest_;
  Code code_ = Code::none;
  std::unique_ptr<cuda::Module> module_;
  std::vector<cuda::Kernel> kernels_; ///< one for each entry
  std::unique_ptr<cuda::DenseProduct> product_;
  cuda::DeviceAddress dense_array_ = 0;
  std::string library_refusal_;
  uint64_t most_library_workspace_;

  std::optional<ValuePlaces> places_;   ///< read when values are bound for the first time
  std::vector<uint32_t> elements_;      ///< what stands there now
  std::vector<uint32_t> next_elements_; ///< what shall stand there; kept for its memory
  std::vector<double> bound_;           ///< whose digest the manifest does not have yet
  mutable bool digest_is_stale_ = false;
  mutable std::mutex digest_mutex_;

  uint64_t alignment_ = 1; ///< of B, C and the residual
  uint64_t most_columns_ = 0;
};

} // namespace sparsertc
