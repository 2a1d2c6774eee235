#include "runtime/plan/lu_batch_executor.h"

#include "runtime/lu/host_batch.h"
#include "runtime/plan/lu_types.h"

namespace sparsertc {
namespace {

constexpr uint64_t kAlignment = cuda::DeviceMemory::kAlignment;

uint64_t factors_at(uint64_t instances) {
  return (instances * sizeof(uint32_t) + kAlignment - 1) / kAlignment * kAlignment;
}

class GpuBatchExecutor : public LuBatchExecutor {
public:
  GpuBatchExecutor(const cuda::Context& context, std::unique_ptr<const lu::GpuBatchKernels> kernels)
      : context_(context), kernels_(std::move(kernels)) {}

  uint64_t bytes(uint64_t instances) const override {
    return factors_at(instances) + kernels_->factor_bytes(instances);
  }
  uint64_t table_bytes() const override { return kernels_->table_bytes(); }

  void refactor(LuAddress memory, uint64_t instances, LuAddress values,
                const lu::FactorOptions& options, cuda::StreamHandle stream) const override {
    kernels_->factor(values, numbers_in(memory, instances), {context_, stream}, options);
  }
  void solve(LuAddress memory, uint64_t instances, LuAddress b, LuAddress x,
             cuda::StreamHandle stream) const override {
    kernels_->solve(b, x, numbers_in(memory, instances), {context_, stream});
  }

  std::vector<uint32_t> status_words(LuAddress memory, uint64_t instances,
                                     cuda::StreamHandle handle) const override {
    context_.make_current();
    const cuda::Stream stream(context_, handle);
    stream.synchronize("waiting for a batch of factorizations");
    std::vector<uint32_t> words(instances);
    const uint64_t bytes = words.size() * sizeof(uint32_t);
    cuda::DeviceBuffer(context_, memory, bytes)
        .download({reinterpret_cast<uint8_t*>(words.data()), bytes}, stream);
    return words;
  }

private:
  static lu::GpuBatchMemory numbers_in(LuAddress memory, uint64_t instances) {
    return {memory + factors_at(instances), memory, instances};
  }

  const cuda::Context& context_;
  std::unique_ptr<const lu::GpuBatchKernels> kernels_;
};

template <class T>
T* pointer_to(LuAddress address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

template <class T>
class HostBatchExecutor : public LuBatchExecutor {
public:
  explicit HostBatchExecutor(const LuBatchLoop& loop) : batch_(loop) {}

  uint64_t bytes(uint64_t instances) const override {
    return factors_at(instances) + batch_.bytes(instances);
  }
  uint64_t table_bytes() const override { return 0; }

  void refactor(LuAddress memory, uint64_t instances, LuAddress values,
                const lu::FactorOptions& options, cuda::StreamHandle) const override {
    batch_.factor(pointer_to<const T>(values), instances, options.pivot_threshold,
                  pointer_to<void>(memory + factors_at(instances)), pointer_to<uint32_t>(memory));
  }
  void solve(LuAddress memory, uint64_t instances, LuAddress b, LuAddress x,
             cuda::StreamHandle) const override {
    batch_.solve(pointer_to<const T>(b), pointer_to<T>(x), instances,
                 pointer_to<void>(memory + factors_at(instances)));
  }
  std::vector<uint32_t> status_words(LuAddress memory, uint64_t instances,
                                     cuda::StreamHandle) const override {
    const auto* const words = pointer_to<const uint32_t>(memory);
    return {words, words + instances};
  }

private:
  const lu::HostBatch<T> batch_;
};

} // namespace

std::unique_ptr<LuBatchExecutor>
make_lu_batch_executor(const cuda::Context& context,
                       std::unique_ptr<const lu::GpuBatchKernels> kernels) {
  return std::make_unique<GpuBatchExecutor>(context, std::move(kernels));
}

std::unique_ptr<LuBatchExecutor> make_lu_batch_executor(const LuBatchLoop& loop,
                                                        const LuManifest& manifest) {
  return with_lu_types(manifest, [&]<class T, class X>() -> std::unique_ptr<LuBatchExecutor> {
    return std::make_unique<HostBatchExecutor<T>>(loop);
  });
}

} // namespace sparsertc
