// NVRTC, the CUDA C++ compiler of a CUDA toolkit as a library.
#pragma once

#include "runtime/driver/nvrtc_api.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc::cuda {

/// "nvrtcCompileProgram failed: NVRTC_ERROR_COMPILATION (6)".
std::string describe(NvrtcResult result, std::string_view call);

/// CUDA C++ to be compiled.
struct CudaSource {
  std::string name; ///< in messages and line information, "scan.cu"
  std::string text;
  struct Header {
    std::string name; ///< as #include says it
    std::string text;
  };
  std::vector<Header> headers;
  /// "sm_90a": PTX for it, and a cubin where asked. "compute_90" gives PTX only.
  std::string target;
  std::vector<std::string> options; ///< more, "-DSIZE=4", "-std=c++20"
  bool want_cubin = false;
  /// Whose text it is: a user's, whose mistakes are UserErrors, or ours, where one is a bug
  /// (InternalError).
  bool from_user = false;
};

struct CudaCompiled {
  std::string ptx;            ///< without a NUL at its end
  std::vector<uint8_t> cubin; ///< empty unless asked for
  std::string log;            ///< warnings
};

class Nvrtc {
public:
  /// Opens libnvrtc.so.13 or .12, or the file that SPARSERTC_LIBNVRTC names. Throws RuntimeError
  /// where it is not there, or lacks a function that we need.
  static std::shared_ptr<const Nvrtc> open();

  /// The same for functions that come from elsewhere; all must be present.
  explicit Nvrtc(const NvrtcTable& table);

  /// "NVRTC 13.0": part of what a result depends on.
  std::string identity() const;

  /// Source that does not compile is a UserError or an InternalError (CudaSource::from_user) whose
  /// message has the compiler's log, which names lines as "scan.cu(12): error: ...". An option or
  /// target that the library does not know, and anything else, is a RuntimeError with its log. May
  /// be called by several threads at once.
  CudaCompiled compile(const CudaSource& source) const;

private:
  NvrtcTable table_;
  int major_ = 0, minor_ = 0;
};

} // namespace sparsertc::cuda
