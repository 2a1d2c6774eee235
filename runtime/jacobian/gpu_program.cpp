#include "runtime/jacobian/gpu_program.h"

#include "ir/error.h"
#include "ir/sha256.h"
#include "runtime/jacobian/compiler_log.h"
#include "runtime/jacobian/shared_terms.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc::jacobian {
namespace {

constexpr const char* kSection = "cubin";
constexpr uint32_t kThreads = kSharedBlockThreads;
constexpr uint32_t kWarp = 32;
constexpr uint64_t kMostBlocksY = 65535;

class GpuMemory : public ProgramMemory {
public:
  GpuMemory(const cuda::Context& context, uint64_t bytes, const cuda::Stream& stream)
      : buffer_(context, bytes), stream_(stream) {}
  uint64_t address() const override { return buffer_.address(); }
  void write(std::span<const uint8_t> bytes) override {
    buffer_.upload(bytes, stream_);
    stream_.synchronize("copying numbers to the GPU");
  }
  void read(std::span<uint8_t> bytes) const override { buffer_.download(bytes, stream_); }

private:
  cuda::DeviceBuffer buffer_;
  const cuda::Stream& stream_;
};

} // namespace

std::string gpu_target(const cuda::Context& context) {
  return fmt::format("sm_{}", context.properties().compute_capability);
}

std::vector<uint8_t> compile_for_gpu(const cuda::Nvrtc& nvrtc, const std::string& target,
                                     const std::string& program, const ResidualSource& source,
                                     Cache* cache) {
  cuda::CudaSource cuda;
  cuda.name = "residual";
  cuda.text = program;
  cuda.target = target;
  // Functions without __device__ are the GPU's, too.
  cuda.options = {"-std=c++20", "-default-device", "-w"};
  cuda.want_cubin = true;
  cuda.from_user = true;
  Sha256 digest;
  digest.add(program);
  const CacheKey key{fmt::format("schema=1\nresidual=gpu\ncompiler={}\ntarget={}\nprogram={}\n",
                                 nvrtc.identity(), target, digest.hex())};
  if (cache != nullptr)
    if (const std::optional<Bundle> bundle = cache->find(key))
      if (const Bundle::Section* section = bundle->find(kSection))
        return section->bytes;
  std::vector<uint8_t> cubin;
  try {
    cubin = nvrtc.compile(cuda).cubin;
  } catch (const UserError& error) {
    throw_compile_error(error.what(), source);
  }
  if (cache != nullptr)
    cache->store(key, Bundle{"{\"artefact\":\"residual\"}\n", {{kSection, cubin}}});
  return cubin;
}

GpuProgram::GpuProgram(const cuda::Context& context, std::span<const uint8_t> image,
                       const ResidualSource& source, const ParameterSet& parameters, bool batch,
                       bool f32)
    : context_(context), source_(source), batch_(batch),
      number_bytes_(f32 ? sizeof(float) : sizeof(double)), module_(context, image),
      take_status_(module_.kernel("sparsertc_take_status")), stream_(context),
      status_(context, sizeof(ResidualStatus)) {
  for (const ParameterArray& array : parameters.arrays)
    names_.arrays.push_back({array.name, {}, false});
}

std::unique_ptr<ProgramMemory> GpuProgram::allocate(uint64_t bytes) const {
  return std::make_unique<GpuMemory>(context_, bytes, stream_);
}

void GpuProgram::run(const std::string& entry, const ProgramCall& call) const {
  enqueue(kernel(entry), call, call.words, stream_);
  check(stream_);
}

void GpuProgram::enqueue(const cuda::Kernel& kernel, const ProgramCall& call,
                         std::span<const uint64_t> words, const cuda::Stream& stream) const {
  const uint64_t instances = call.instances;
  const uint64_t tasks = call.threads != 0 ? call.threads : call.tasks;
  if (tasks == 0 || instances == 0)
    return;
  // The call is one argument, a struct.
  void* argument = const_cast<uint64_t*>(words.data()); // the driver only reads
  uint32_t threads = kThreads;
  uint64_t blocks_x = 0, blocks_y = 1;
  if (batch_) {
    threads = static_cast<uint32_t>(
        std::min<uint64_t>(kThreads, (instances + kWarp - 1) / kWarp * kWarp));
    blocks_x = (instances + threads - 1) / threads;
    blocks_y = std::min(tasks, kMostBlocksY);
  } else {
    blocks_x = (tasks + threads - 1) / threads;
  }
  if (blocks_x > context_.properties().max_grid[0])
    throw UserError(fmt::format("{} tasks are more than the GPU takes at once", tasks));
  cuda::check(context_.api().cuLaunchKernel(kernel.handle, static_cast<uint32_t>(blocks_x),
                                            static_cast<uint32_t>(blocks_y), 1, threads, 1, 1,
                                            call.kept_numbers * number_bytes_ * threads,
                                            stream.handle(), &argument, nullptr),
              "cuLaunchKernel",
              [&] { return fmt::format("launching the kernel {}", kernel.name); });
}

void GpuProgram::check(const cuda::Stream& stream) const {
  uint64_t address = status_.address();
  void* argument = &address;
  cuda::check(context_.api().cuLaunchKernel(take_status_.handle, 1, 1, 1, 1, 1, 1, 0,
                                            stream.handle(), &argument, nullptr),
              "cuLaunchKernel",
              [&] { return fmt::format("launching the kernel {}", take_status_.name); });
  ResidualStatus status;
  status_.download({reinterpret_cast<uint8_t*>(&status), sizeof(status)}, stream);
  throw_status(status, source_, names_);
}

} // namespace sparsertc::jacobian
