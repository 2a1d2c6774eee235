#include "runtime/driver/cuda_driver.h"

#include "ir/error.h"
#include "runtime/driver/call_error.h"
#include "runtime/driver/library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <dlfcn.h>

namespace sparsertc::cuda {
namespace {

constexpr const char* kLibraryVariable = "SPARSERTC_LIBCUDA";
/// Never plain libcuda.so: that is the toolkit's stub where only the toolkit is installed.
constexpr const char* kLibraryName = "libcuda.so.1";
constexpr const char* kUseCpu = "commands that have --device run on the CPU with --device=cpu";

std::string way_out_of(Result result) {
  switch (result) {
  case Result::CUDA_ERROR_OUT_OF_MEMORY:
    return "other programs may hold the GPU's memory (nvidia-smi shows them); or use a smaller "
           "problem";
  case Result::CUDA_ERROR_NO_BINARY_FOR_GPU:
    return "the code was made for another GPU; compile with --target=native";
  case Result::CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    return "the driver is older than the PTX; assemble it with ptxas, or update the driver";
  case Result::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    return "the block needs more registers or shared memory than the GPU has; choose a smaller "
           "block (--tile=warps=..,groups=..,splitk=..)";
  case Result::CUDA_ERROR_ILLEGAL_ADDRESS:
  case Result::CUDA_ERROR_MISALIGNED_ADDRESS:
  case Result::CUDA_ERROR_LAUNCH_FAILED:
  case Result::CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case Result::CUDA_ERROR_HARDWARE_STACK_ERROR:
  case Result::CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case Result::CUDA_ERROR_INVALID_PC:
    return "a kernel made a forbidden access; running the program under compute-sanitizer says "
           "where, and the context cannot be used any more";
  default:
    return {};
  }
}

[[noreturn]] void no_gpu(Result result, const char* call) {
  const char* reason = result == Result::CUDA_ERROR_STUB_LIBRARY
                           ? "the library is the CUDA toolkit's stub and not a driver: "
                       : result == Result::CUDA_ERROR_NO_DEVICE ? "the driver finds no device: "
                                                                : "the driver does not start: ";
  throw NoGpuError(fmt::format("no usable GPU: {}{}", reason, describe(result, call)), kUseCpu);
}

DriverTable resolve(GetProcAddress get_address, const std::string& library) {
  DriverTable table;
  const auto resolve_one = [&](const char* name) {
    void* function = nullptr;
    uint32_t status = 0;
    const Result result = get_address(name, &function, kInterfaceVersion, 0, &status);
    if (result == Result::CUDA_ERROR_STUB_LIBRARY)
      no_gpu(result, "cuGetProcAddress");
    if (result != Result::CUDA_SUCCESS || !function)
      throw RuntimeError(fmt::format("looking up {} in {}", name, library),
                         result != Result::CUDA_SUCCESS ? describe(result, "cuGetProcAddress")
                                                        : "the driver does not have it",
                         "a driver for CUDA 12.0 or newer is needed");
    return function;
  };
#define X(name, parameters) table.name = reinterpret_cast<name##_function>(resolve_one(#name));
  SPARSERTC_CUDA_FUNCTIONS(X)
#undef X
  bool conditional = true;
#define X(name, parameters)                                                                        \
  {                                                                                                \
    void* function = nullptr;                                                                      \
    uint32_t status = 0;                                                                           \
    conditional = conditional &&                                                                   \
                  get_address(#name, &function, kConditionalInterfaceVersion, 0, &status) ==       \
                      Result::CUDA_SUCCESS &&                                                      \
                  function != nullptr;                                                             \
    table.name = reinterpret_cast<name##_function>(function);                                      \
  }
  SPARSERTC_CUDA_CONDITIONAL_FUNCTIONS(X)
#undef X
  if (!conditional) {
#define X(name, parameters) table.name = nullptr;
    SPARSERTC_CUDA_CONDITIONAL_FUNCTIONS(X)
#undef X
  }
  return table;
}

} // namespace

std::string_view name_of(Result result) {
  switch (result) {
#define X(name, value)                                                                             \
  case Result::name:                                                                               \
    return #name;
    SPARSERTC_CUDA_RESULTS(X)
#undef X
  }
  return "CUresult";
}

std::string describe(Result result, std::string_view call) {
  return fmt::format("{} failed: {} ({})", call, name_of(result), static_cast<uint32_t>(result));
}

void fail(Result result, std::string_view call, const std::string& doing) {
  throw CallError(result, doing, describe(result, call), way_out_of(result));
}

std::shared_ptr<const Driver> Driver::open() {
  const char* chosen = std::getenv(kLibraryVariable);
  const std::string library = chosen && *chosen ? chosen : kLibraryName;
  // Never closed: the driver's threads and exit handlers do not survive it.
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw NoGpuError(
        fmt::format("no NVIDIA driver: cannot open {}: {}", library, loader_error()),
        fmt::format("{}; {} names the driver's library where it is in an unusual place", kUseCpu,
                    kLibraryVariable));
  void* get_address = dlsym(handle, "cuGetProcAddress_v2");
  if (!get_address)
    throw RuntimeError(fmt::format("opening {}", library), "it has no cuGetProcAddress_v2",
                       "a driver for CUDA 12.0 or newer is needed");
  return std::make_shared<Driver>(resolve(reinterpret_cast<GetProcAddress>(get_address), library));
}

Driver::Driver(const DriverTable& table) : table_(table) {
  if (const Result result = table_.cuInit(0); result == Result::CUDA_ERROR_OUT_OF_MEMORY)
    fail(result, "cuInit", "starting the NVIDIA driver");
  else if (result != Result::CUDA_SUCCESS)
    no_gpu(result, "cuInit");
  check(table_.cuDriverGetVersion(&version_), "cuDriverGetVersion",
        "asking for the driver's version");
  int32_t count = 0;
  if (const Result result = table_.cuDeviceGetCount(&count); result == Result::CUDA_ERROR_NO_DEVICE)
    no_gpu(result, "cuDeviceGetCount");
  else
    check(result, "cuDeviceGetCount", "counting the GPUs");
  if (count <= 0)
    throw NoGpuError("no usable GPU: the driver finds no device", kUseCpu);
  device_count_ = static_cast<unsigned>(count);
}

} // namespace sparsertc::cuda
