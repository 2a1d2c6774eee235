#include "runtime/driver/launcher.h"

#include "ir/error.h"
#include "runtime/driver/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace sparsertc::cuda {
namespace {

void check_shape(const DeviceProperties& device, const Kernel& kernel, const LaunchShape& shape) {
  const auto refuse = [&](const std::string& reason) {
    throw RuntimeError(fmt::format("preparing the kernel {} for {}", kernel.name, device.name),
                       reason, "choose a smaller tile (--tile=...)");
  };
  const uint64_t threads = shape.threads_per_block();
  if (threads > device.max_threads_per_block)
    refuse(fmt::format("a block has {} threads, the device allows {}", threads,
                       device.max_threads_per_block));
  if (threads > kernel.max_threads_per_block)
    refuse(fmt::format("a block has {} threads, {} registers a thread allow {}", threads,
                       kernel.registers, kernel.max_threads_per_block));
  const uint64_t shared = uint64_t{shape.dynamic_shared_bytes} + kernel.static_shared_bytes;
  if (shared > device.max_shared_bytes_per_block)
    refuse(fmt::format("a block needs {} bytes of shared memory, the device has {}", shared,
                       device.max_shared_bytes_per_block));
  for (int axis = 0; axis < 3; ++axis)
    if (shape.grid[axis] > device.max_grid[axis])
      refuse(fmt::format("the grid has {} blocks along axis {}, the device allows {}",
                         shape.grid[axis], axis, device.max_grid[axis]));
}

} // namespace

Launcher::Launcher(const Context& context, std::span<const uint8_t> image, const std::string& entry,
                   const LaunchShape& shape)
    : context_(context), module_(context, image), kernel_(module_.kernel(entry)), shape_(shape) {
  check_shape(context_.properties(), kernel_, shape_);
  if (uint64_t{shape_.dynamic_shared_bytes} + kernel_.static_shared_bytes >
      kSharedBytesWithoutOptin)
    check(context_.api().cuFuncSetAttribute(kernel_.handle,
                                            FunctionAttribute::max_dynamic_shared_bytes,
                                            static_cast<int32_t>(shape_.dynamic_shared_bytes)),
          "cuFuncSetAttribute", [&] {
            return fmt::format("asking for {} bytes of dynamic shared memory for the kernel {}",
                               shape_.dynamic_shared_bytes, entry);
          });
}

void Launcher::launch(std::span<const uint64_t> arguments, const Stream& stream) const {
  if (shape_.grid[0] == 0 || shape_.grid[1] == 0 || shape_.grid[2] == 0)
    return;
  constexpr size_t kMostArguments = 64;
  if (arguments.size() > kMostArguments)
    throw InternalError(fmt::format("{} kernel arguments, at most {} are possible",
                                    arguments.size(), kMostArguments));
  void* pointers[kMostArguments];
  for (size_t i = 0; i < arguments.size(); ++i)
    pointers[i] = const_cast<uint64_t*>(&arguments[i]); // the driver only reads
  check(context_.api().cuLaunchKernel(kernel_.handle, shape_.grid[0], shape_.grid[1],
                                      shape_.grid[2], shape_.block[0], shape_.block[1],
                                      shape_.block[2], shape_.dynamic_shared_bytes, stream.handle(),
                                      pointers, nullptr),
        "cuLaunchKernel", [&] { return fmt::format("launching the kernel {}", kernel_.name); });
}

LaunchTiming Launcher::time_by_events(std::span<const uint64_t> arguments, const Stream& stream,
                                      unsigned samples) const {
  const Event start(context_);
  const Event end(context_);
  launch(arguments, stream);
  std::vector<double> times;
  for (unsigned i = 0; i < std::max(samples, 1u); ++i) {
    start.record(stream);
    launch(arguments, stream);
    end.record(stream);
    end.synchronize();
    times.push_back(end.microseconds_since(start));
  }
  return summarise(std::move(times));
}

LaunchTiming Launcher::time_by_graph(std::span<const uint64_t> arguments, const Stream& stream,
                                     unsigned samples, unsigned launches) const {
  launches = std::max(launches, 1u);
  launch(arguments, stream); // loads the code, which a graph would not
  stream.synchronize();
  const Graph graph(context_, stream, [&] {
    for (unsigned i = 0; i < launches; ++i)
      launch(arguments, stream);
  });
  return graph.time(samples, launches);
}

} // namespace sparsertc::cuda
