// Where plans live: a GPU's primary context, or no GPU at all.
#pragma once

#include "runtime/driver/cuda_objects.h"

#include <functional>
#include <memory>
#include <optional>

namespace sparsertc {

class ExecutionContext : public std::enable_shared_from_this<ExecutionContext> {
public:
  using OpenDriver = std::function<std::shared_ptr<const cuda::Driver>()>;

  /// Without a GPU: plans can be loaded, queried and saved, not executed.
  static constexpr int kNoDevice = -1;

  /// Opens a device by its number, or none for kNoDevice. The device's primary context is shared
  /// with everything else in the process that uses it (the CUDA runtime API, say) and is current on
  /// the calling thread afterwards. Throws UsageError where there is no such device, NoGpuError
  /// where there is no driver or GPU, RuntimeError where the driver refuses.
  explicit ExecutionContext(int device, const OpenDriver& open_driver = cuda::Driver::open);

  /// Null where there is no GPU.
  const cuda::Context* gpu() const { return gpu_ ? &*gpu_ : nullptr; }
  /// The same; throws NoGpuError where there is none. `doing`: "executing a plan".
  const cuda::Context& require_gpu(const char* doing) const;

private:
  std::optional<cuda::Context> gpu_;
};

} // namespace sparsertc
