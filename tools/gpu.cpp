#include "tools/gpu.h"

#include "runtime/tune/graph_replay.h"
#include "tools/dense_call.h"

#include <chrono>
#include <cstring>

namespace sparsertc {
namespace {

std::span<uint8_t> bytes_of(const AlignedBytes& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}

void* as_pointer(cuda::DeviceAddress address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

/// Each argument in 8 bytes, as the launcher takes it.
std::vector<uint64_t> packed(const std::vector<KernelArgument>& arguments) {
  std::vector<uint64_t> words;
  for (const KernelArgument& argument : arguments) {
    uint64_t word;
    static_assert(sizeof word == sizeof argument);
    std::memcpy(&word, &argument, sizeof word);
    words.push_back(word);
  }
  return words;
}

} // namespace

GpuRun run_on_gpu(const cuda::Context& gpu, const std::string& image, const SpmmSchedule& schedule,
                  const std::vector<KernelManifest>& kernels, const SpmmBuffers& buffers,
                  uint32_t columns, unsigned samples) {
  const cuda::Stream stream(gpu);
  const cuda::DeviceBuffer b(gpu, buffers.b.size()), c(gpu, buffers.c.size()),
      bias(gpu, buffers.bias.size()), residual(gpu, buffers.residual.size());
  b.upload(bytes_of(buffers.b), stream);
  c.upload(bytes_of(buffers.c), stream);
  bias.upload(bytes_of(buffers.bias), stream);
  residual.upload(bytes_of(buffers.residual), stream);
  const OperandAddresses addresses = {as_pointer(b.address()), as_pointer(c.address()),
                                      as_pointer(bias.address()), as_pointer(residual.address())};

  GpuRun run;
  const std::span<const uint8_t> code(reinterpret_cast<const uint8_t*>(image.data()), image.size());
  const auto begin = std::chrono::steady_clock::now();
  if (const std::unique_ptr<DenseCall> dense =
          DenseCall::make(gpu, code, schedule, run.library_refusal)) {
    const std::chrono::duration<double, std::micro> load = std::chrono::steady_clock::now() - begin;
    run.load_us = load.count();
    const tune::GraphReplay replay(
        gpu, stream, [&] { dense->enqueue(b.address(), c.address(), residual.address(), stream); });
    const tune::Timing timing = replay.time(samples);
    run.timing = {timing.median_us, timing.minimum_us, timing.maximum_us, samples};
    c.download(bytes_of(buffers.c), stream);
    return run;
  }
  for (const KernelManifest& kernel : kernels) {
    cuda::LaunchShape shape;
    shape.grid[0] = static_cast<uint32_t>(kernel.grid_x(columns));
    shape.grid[1] = kernel.grid_rows;
    std::memcpy(shape.block, kernel.block, sizeof shape.block);
    shape.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
    if (shape.grid[0] == 0 || shape.grid[1] == 0)
      continue;
    const std::vector<uint64_t> arguments =
        packed(arguments_of(kernel, addresses, columns, buffers.ldb, buffers.ldc));
    const auto start = std::chrono::steady_clock::now();
    const cuda::Launcher launcher(gpu, code, kernel.entry, shape);
    const std::chrono::duration<double, std::micro> load = std::chrono::steady_clock::now() - start;
    run.load_us += load.count();
    launcher.launch(arguments, stream);
    stream.synchronize("running the kernel");
    const cuda::LaunchTiming one = launcher.time_by_graph(arguments, stream, samples);
    run.timing.median_us += one.median_us;
    run.timing.minimum_us += one.minimum_us;
    run.timing.maximum_us += one.maximum_us;
    run.timing.samples = one.samples;
  }
  c.download(bytes_of(buffers.c), stream);
  return run;
}

} // namespace sparsertc
