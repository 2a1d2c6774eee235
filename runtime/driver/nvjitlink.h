// nvJitLink, the assembler and linker of a CUDA toolkit as a library.
#pragma once

#include "runtime/driver/nvjitlink_api.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc::cuda {

/// "nvJitLinkAddData failed: NVJITLINK_ERROR_PTX_COMPILE (4)".
std::string describe(JitLinkResult result, std::string_view call);

class NvJitLink {
public:
  /// Opens libnvJitLink.so.13 or .12, or the file that SPARSERTC_LIBNVJITLINK names. Throws
  /// RuntimeError where it is not there, or lacks a function that we need.
  static std::shared_ptr<const NvJitLink> open();

  /// The same for functions that come from elsewhere; all must be present.
  explicit NvJitLink(const JitLinkTable& table, std::string path = {});

  const JitLinkTable& api() const { return table_; }
  /// The library's file, as the loader was asked for it.
  const std::string& path() const { return path_; }
  unsigned major() const { return major_; }
  unsigned minor() const { return minor_; }

private:
  JitLinkTable table_;
  std::string path_;
  unsigned major_ = 0, minor_ = 0;
};

/// One link: PTX goes in and is assembled on the spot, machine code comes out. Calls give the
/// library's answer; a caller that goes on after a failure gets a result without code and with
/// success in every answer. Several links may be under way at once, on different threads.
class JitLink {
public:
  /// Throws RuntimeError where the library does not take the options (an unknown target, say).
  JitLink(const NvJitLink& library, const std::vector<std::string>& options,
          const std::string& doing);
  ~JitLink();
  JitLink(const JitLink&) = delete;
  JitLink& operator=(const JitLink&) = delete;

  /// `name` is what messages call it.
  [[nodiscard]] JitLinkResult add_ptx(const std::string& text, std::string name);
  [[nodiscard]] JitLinkResult complete();
  /// After complete(). Throws RuntimeError.
  std::vector<uint8_t> cubin(const std::string& doing) const;
  /// What it said; empty where it does not tell.
  std::string info_log() const;
  std::string error_log() const;

private:
  const JitLinkTable& api_;
  /// The library keeps the addresses of names, not the names (13.0: complete() reads them).
  std::deque<std::string> names_;
  JitLinkHandle handle_ = nullptr;
};

} // namespace sparsertc::cuda
