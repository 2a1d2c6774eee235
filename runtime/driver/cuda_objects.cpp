#include "runtime/driver/cuda_objects.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace sparsertc::cuda {
namespace {

constexpr size_t kLogBytes = 16 * 1024;

bool is_elf(std::span<const uint8_t> image) {
  constexpr uint8_t magic[4] = {0x7f, 'E', 'L', 'F'};
  return image.size() >= 4 && std::equal(magic, magic + 4, image.begin());
}

uint32_t attribute_of(const DriverTable& api, DeviceOrdinal device, DeviceAttribute attribute) {
  int32_t value = 0;
  check(api.cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute", [&] {
    return fmt::format("asking device {} for attribute {}", device,
                       static_cast<uint32_t>(attribute));
  });
  return static_cast<uint32_t>(value);
}

DeviceProperties properties_of(const DriverTable& api, DeviceOrdinal device) {
  const auto attribute = [&](DeviceAttribute which) { return attribute_of(api, device, which); };
  DeviceProperties properties;
  char name[256] = {};
  check(api.cuDeviceGetName(name, sizeof(name) - 1, device), "cuDeviceGetName",
        "asking for the GPU's name");
  properties.name = name;
  size_t bytes = 0;
  check(api.cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem", "asking for the GPU's memory");
  properties.memory_bytes = bytes;
  properties.compute_capability = 10 * attribute(DeviceAttribute::compute_capability_major) +
                                  attribute(DeviceAttribute::compute_capability_minor);
  properties.multiprocessors = attribute(DeviceAttribute::multiprocessor_count);
  properties.max_threads_per_block = attribute(DeviceAttribute::max_threads_per_block);
  properties.max_registers_per_block = attribute(DeviceAttribute::max_registers_per_block);
  properties.max_shared_bytes_per_block =
      attribute(DeviceAttribute::max_shared_bytes_per_block_optin);
  properties.max_grid[0] = attribute(DeviceAttribute::max_grid_x);
  properties.max_grid[1] = attribute(DeviceAttribute::max_grid_y);
  properties.max_grid[2] = attribute(DeviceAttribute::max_grid_z);
  properties.l2_cache_bytes = attribute(DeviceAttribute::l2_cache_bytes);
  return properties;
}

} // namespace

// ---- context ----

Context::Context(std::shared_ptr<const Driver> driver, unsigned ordinal)
    : driver_(std::move(driver)) {
  if (ordinal >= driver_->device_count())
    throw UsageError(
        fmt::format("there is no GPU number {}", ordinal),
        fmt::format("this machine has the numbers 0 to {}", driver_->device_count() - 1));
  check(api().cuDeviceGet(&device_, static_cast<int32_t>(ordinal)), "cuDeviceGet",
        [&] { return fmt::format("opening GPU number {}", ordinal); });
  properties_ = properties_of(api(), device_);
  check(api().cuDevicePrimaryCtxRetain(&handle_, device_), "cuDevicePrimaryCtxRetain",
        [&] { return fmt::format("making a context on {}", properties_.name); });
  if (const Result result = api().cuCtxSetCurrent(handle_); result != Result::CUDA_SUCCESS) {
    api().cuDevicePrimaryCtxRelease(device_);
    fail(result, "cuCtxSetCurrent", "making the context current");
  }
}

Context::~Context() {
  api().cuDevicePrimaryCtxRelease(device_);
}

void Context::make_current() const {
  check(api().cuCtxSetCurrent(handle_), "cuCtxSetCurrent", "making the context current");
}

uint64_t Context::free_memory() const {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(api().cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo",
        "asking for free device memory");
  return free_bytes;
}

// ---- stream, event ----

Stream::Stream(const Context& context) : context_(context) {
  check(context_.api().cuStreamCreate(&handle_, kStreamNonBlocking), "cuStreamCreate",
        "making a stream");
}

Stream::~Stream() {
  if (!is_borrowed_)
    context_.api().cuStreamDestroy(handle_);
}

void Stream::synchronize(const char* doing) const {
  check(context_.api().cuStreamSynchronize(handle_), "cuStreamSynchronize", doing);
}

Event::Event(const Context& context) : context_(context) {
  check(context_.api().cuEventCreate(&handle_, kEventDefault), "cuEventCreate", "making an event");
}

Event::~Event() {
  context_.api().cuEventDestroy(handle_);
}

void Event::record(const Stream& stream) const {
  check(context_.api().cuEventRecord(handle_, stream.handle()), "cuEventRecord",
        "recording an event");
}

void Event::synchronize() const {
  check(context_.api().cuEventSynchronize(handle_), "cuEventSynchronize", "waiting for an event");
}

double Event::microseconds_since(const Event& start) const {
  float milliseconds = 0;
  check(context_.api().cuEventElapsedTime(&milliseconds, start.handle_, handle_),
        "cuEventElapsedTime", "reading the time between two events");
  return 1000.0 * milliseconds;
}

// ---- memory ----

DeviceBuffer::DeviceBuffer(const Context& context, uint64_t bytes)
    : context_(context), bytes_(bytes) {
  if (bytes != 0)
    check(context_.api().cuMemAlloc(&address_, bytes), "cuMemAlloc",
          [&] { return fmt::format("allocating {} bytes of device memory", bytes); });
}

DeviceBuffer::~DeviceBuffer() {
  if (bytes_ != 0 && !is_borrowed_)
    context_.api().cuMemFree(address_);
}

void DeviceBuffer::upload(std::span<const uint8_t> source, const Stream& stream) const {
  if (source.size() > bytes_)
    throw InternalError(
        fmt::format("upload of {} bytes into a device buffer of {}", source.size(), bytes_));
  if (source.empty())
    return;
  check(context_.api().cuMemcpyHtoDAsync(address_, source.data(), source.size(), stream.handle()),
        "cuMemcpyHtoDAsync",
        [&] { return fmt::format("copying {} bytes to the GPU", source.size()); });
}

void DeviceBuffer::download(std::span<uint8_t> destination, const Stream& stream) const {
  if (destination.size() > bytes_)
    throw InternalError(
        fmt::format("download of {} bytes from a device buffer of {}", destination.size(), bytes_));
  if (!destination.empty())
    check(context_.api().cuMemcpyDtoHAsync(destination.data(), address_, destination.size(),
                                           stream.handle()),
          "cuMemcpyDtoHAsync",
          [&] { return fmt::format("copying {} bytes from the GPU", destination.size()); });
  stream.synchronize("waiting for a copy from the GPU");
}

void DeviceBuffer::fill(uint8_t byte, const Stream& stream) const {
  if (bytes_ != 0)
    check(context_.api().cuMemsetD8Async(address_, byte, bytes_, stream.handle()),
          "cuMemsetD8Async",
          [&] { return fmt::format("filling {} bytes of device memory", bytes_); });
}

DeviceBuffer DeviceMemory::take(uint64_t bytes) {
  const uint64_t begin = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  bytes_ = begin + bytes;
  return is_borrowed_ ? DeviceBuffer(context_, memory_ + begin, bytes)
                      : DeviceBuffer(context_, bytes);
}

// ---- module, kernel ----

Module::Module(const Context& context, std::span<const uint8_t> image) : context_(context) {
  if (image.empty())
    throw InternalError("an empty image was given to the driver");
  // PTX must end in a NUL for the driver.
  std::vector<uint8_t> text;
  const bool is_ptx = !is_elf(image);
  if (is_ptx && image.back() != 0) {
    text.assign(image.begin(), image.end());
    text.push_back(0);
    image = text;
  }
  std::vector<char> info_log(kLogBytes);
  std::vector<char> error_log(kLogBytes);
  JitOption options[] = {JitOption::info_log_buffer, JitOption::info_log_buffer_bytes,
                         JitOption::error_log_buffer, JitOption::error_log_buffer_bytes};
  void* values[] = {info_log.data(), reinterpret_cast<void*>(kLogBytes), error_log.data(),
                    reinterpret_cast<void*>(kLogBytes)};
  const Result result =
      context_.api().cuModuleLoadDataEx(&handle_, image.data(), 4, options, values);
  // A full log may lack its NUL.
  info_log.back() = error_log.back() = 0;
  if (result != Result::CUDA_SUCCESS) {
    std::string doing = is_ptx ? "assembling PTX by the driver" : "loading code into the GPU";
    const std::string call = "cuModuleLoadDataEx";
    if (error_log.front() == 0)
      fail(result, call, doing);
    throw RuntimeError(doing, fmt::format("{}\n{}", describe(result, call), error_log.data()));
  }
  log_ = info_log.data();
}

Module::~Module() {
  context_.api().cuModuleUnload(handle_);
}

Kernel Module::kernel(const std::string& name) const {
  std::optional<Kernel> kernel = find_kernel(name);
  if (!kernel)
    fail(Result::CUDA_ERROR_NOT_FOUND, "cuModuleGetFunction",
         fmt::format("looking for the kernel {} in the loaded code", name));
  return std::move(*kernel);
}

DeviceBuffer Module::array(const std::string& name) const {
  DeviceAddress address = 0;
  size_t bytes = 0;
  check(context_.api().cuModuleGetGlobal(&address, &bytes, handle_, name.c_str()),
        "cuModuleGetGlobal",
        [&] { return fmt::format("looking for the array {} in the loaded code", name); });
  return {context_, address, bytes};
}

std::optional<Kernel> Module::find_kernel(const std::string& name) const {
  const DriverTable& api = context_.api();
  Kernel kernel;
  kernel.name = name;
  const Result found = api.cuModuleGetFunction(&kernel.handle, handle_, name.c_str());
  if (found == Result::CUDA_ERROR_NOT_FOUND)
    return std::nullopt;
  check(found, "cuModuleGetFunction",
        [&] { return fmt::format("looking for the kernel {} in the loaded code", name); });
  const auto attribute = [&](FunctionAttribute which) {
    int32_t value = 0;
    check(api.cuFuncGetAttribute(&value, which, kernel.handle), "cuFuncGetAttribute",
          [&] { return fmt::format("asking for an attribute of the kernel {}", name); });
    return static_cast<uint32_t>(value);
  };
  kernel.registers = attribute(FunctionAttribute::registers);
  kernel.local_bytes = attribute(FunctionAttribute::local_bytes);
  kernel.static_shared_bytes = attribute(FunctionAttribute::shared_bytes);
  kernel.max_threads_per_block = attribute(FunctionAttribute::max_threads_per_block);
  return kernel;
}

} // namespace sparsertc::cuda
