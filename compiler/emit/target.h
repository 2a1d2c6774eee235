// What code is made for: an NVIDIA architecture, or the host CPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// A known target and what a kernel may use on it.
struct Target {
  std::string name; ///< "sm_90a", "host"
  bool is_host = false;
  uint32_t compute_capability = 0;     ///< 90 for sm_90 and sm_90a; 0 for the host
  std::string ptx_version;             ///< least PTX ISA version that knows it, "8.0"
  uint32_t shared_bytes_per_block = 0; ///< the most a block may ask for (opt-in included)
  uint32_t lanes_f32 = 0; ///< host: vector elements of f32 a lane group works on (1 without SIMD)
};

/// Looks a target up by name: sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_120, host. ("native"
/// is resolved by the caller, who knows the GPU.) Throws UserError with the list of known ones.
Target find_target(std::string_view name);
std::vector<std::string> known_targets();

} // namespace sparsertc
