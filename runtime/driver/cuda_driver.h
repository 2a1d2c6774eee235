// The CUDA driver, opened at run time: nothing is linked, and a machine without it is told so.
#pragma once

#include "runtime/driver/cuda_api.h"

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace sparsertc::cuda {

/// "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2)".
std::string describe(Result result, std::string_view call);

/// Throws RuntimeError that says what was being done ("allocating 64 bytes of device memory"),
/// which call failed, with which code, and where one is known the way out.
[[noreturn]] void fail(Result result, std::string_view call, const std::string& doing);

inline void check(Result result, std::string_view call, const char* doing) {
  if (result != Result::CUDA_SUCCESS) [[unlikely]]
    fail(result, call, doing);
}
/// The same with a text that is only made when it is needed.
template <typename Doing>
requires std::is_invocable_r_v<std::string, Doing>
void check(Result result, std::string_view call, Doing&& doing) {
  if (result != Result::CUDA_SUCCESS) [[unlikely]]
    fail(result, call, doing());
}

/// An initialised driver with at least one device. Everything made from it holds a reference.
class Driver {
public:
  /// Opens libcuda.so.1, or the file that the environment variable SPARSERTC_LIBCUDA names, and
  /// initialises it. Throws NoGpuError where the library is absent, a stub, or finds no device;
  /// RuntimeError where it lacks a function that we need.
  static std::shared_ptr<const Driver> open();

  /// The same for functions that come from elsewhere.
  explicit Driver(const DriverTable& table);

  const DriverTable& api() const { return table_; }
  /// The newest CUDA version it supports: 13000 is 13.0.
  int version() const { return version_; }
  unsigned device_count() const { return device_count_; }
  /// Whether graphs can have conditional nodes.
  bool has_conditional_nodes() const {
    return table_.cuGraphConditionalHandleCreate != nullptr &&
           version_ >= kConditionalInterfaceVersion;
  }

private:
  DriverTable table_;
  int32_t version_ = 0;
  unsigned device_count_ = 0;
};

} // namespace sparsertc::cuda
