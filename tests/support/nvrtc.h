// NVRTC in tests that can do without it.
#pragma once

#include "ir/error.h"
#include "runtime/driver/nvrtc.h"

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <utility>

namespace sparsertc::test {

/// Null, said aloud, where it is not installed.
inline std::shared_ptr<const cuda::Nvrtc> nvrtc_or_skip() {
  try {
    return cuda::Nvrtc::open();
  } catch (const RuntimeError& error) {
    WARN("SKIPPED: " << error.what());
    return nullptr;
  }
}

/// PTX of a residual's program, which has given no warnings.
inline std::string compile_residual(const cuda::Nvrtc& nvrtc, std::string program) {
  cuda::CudaSource source;
  source.name = "residual";
  source.text = std::move(program);
  source.target = "compute_90";
  source.options = {"-std=c++20", "-default-device"};
  source.from_user = true;
  cuda::CudaCompiled compiled = nvrtc.compile(source);
  CHECK(compiled.log.empty());
  return std::move(compiled.ptx);
}

} // namespace sparsertc::test
