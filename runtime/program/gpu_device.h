// A GPU as the device of a program: memory that is used again, launches on one stream, recordings
// as CUDA graphs. Loops and choices inside of a recording are conditional nodes, where the driver
// has them.
#pragma once

#include "ir/module.h"
#include "runtime/driver/conditional.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/program/device.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace sparsertc::program {

/// What a program needs that is not in its text.
struct GpuBindings {
  /// Enqueues the work behind an external host function on the stream; allocates nothing and waits
  /// for nothing, so that it can be recorded.
  using Work = std::function<void(std::span<const Bits>, const cuda::Stream&)>;
  /// Loaded code, in which kernels are looked for in this order.
  std::vector<const cuda::Module*> modules;
  std::map<std::string, Work> work; ///< by name
};

class GpuDevice : public Device {
public:
  /// All must outlive it. UserError where the module has an external function that nothing is bound
  /// to, RuntimeError where a kernel is missing in the code.
  GpuDevice(const cuda::Context& context, const cuda::Stream& stream, const ir::Module& module,
            GpuBindings bindings, bool conditional_nodes = true);

  void launch(uint32_t kernel, const uint32_t (&grid)[3], std::span<const Bits> arguments) override;
  void call(uint32_t function, std::span<const Bits> arguments) override;
  void copy(uint64_t to, uint64_t from, uint64_t bytes) override;
  uint64_t allocate(uint64_t bytes) override;
  void free(uint64_t address, uint64_t bytes) override;
  void upload(uint64_t to, const void* from, uint64_t bytes) override;
  void download(void* to, uint64_t from, uint64_t bytes) override;
  void synchronize() override;
  /// Recorder::repeat and choose with conditional nodes, else sequences.
  Records records() const override;
  std::unique_ptr<Recording> record(const std::function<void(Recorder&)>& work) override;

private:
  class GraphRecorder;

  void launch_on(const cuda::Stream& stream, uint32_t kernel, const uint32_t (&grid)[3],
                 std::span<const Bits> arguments) const;
  void call_on(const cuda::Stream& stream, uint32_t function,
               std::span<const Bits> arguments) const;
  void copy_on(const cuda::Stream& stream, uint64_t to, uint64_t from, uint64_t bytes) const;

  const cuda::Context& context_;
  const cuda::Stream& stream_;
  const ir::Module& module_;
  GpuBindings bindings_;
  std::map<uint32_t, cuda::Kernel> kernels_; ///< by function
  std::optional<cuda::ConditionSetter> setter_;
  std::map<uint64_t, std::unique_ptr<cuda::DeviceBuffer>> memory_; ///< by address
  /// Addresses by bytes. The lowest is taken first, so that the same program gets the same memory
  /// again and again, and its recordings stay what they are.
  std::map<uint64_t, std::set<uint64_t>> unused_;
};

} // namespace sparsertc::program
