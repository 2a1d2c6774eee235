// The texts of this folder's CUDA C++ files, as they were when the program was built.
#pragma once

#include <span>
#include <string_view>

namespace sparsertc::kernels {

struct KernelSource {
  std::string_view name; ///< of the file, "fill2.cu"
  std::string_view text;
};

/// All files that CMakeLists.txt lists.
std::span<const KernelSource> kernel_sources();

/// The text of one; InternalError where there is no such file.
std::string_view kernel_source(std::string_view name);

} // namespace sparsertc::kernels
