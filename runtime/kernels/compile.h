// The programs of this folder, compiled by NVRTC for a GPU.
#pragma once

#include "runtime/bundle/cache.h"
#include "runtime/driver/nvrtc.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc::kernels {

/// The cubin of lu_analysis.cu for GPUs of this compute capability (90 for 9.0): from `cache`, if
/// given and it is there, else compiled and kept. RuntimeError where NVRTC does not know the GPU.
std::vector<uint8_t> compile_lu_analysis(const cuda::Nvrtc& nvrtc, uint32_t compute_capability,
                                         Cache* cache = nullptr);

/// The same of lu_right_looking.cu, for factors of this type: "f32", "f64", "c64" or "c128".
std::vector<uint8_t> compile_lu_right_looking(const cuda::Nvrtc& nvrtc, uint32_t compute_capability,
                                              const std::string& number, Cache* cache = nullptr);

} // namespace sparsertc::kernels
