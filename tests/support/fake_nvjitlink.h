// nvJitLink without a toolkit: what it makes holds the entries of the PTX that it was given, it
// counts its calls, and any call can be made to fail. For tests.
#pragma once

#include "runtime/driver/nvjitlink_api.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace sparsertc::cuda {

/// One at a time in a process: the library's functions have no argument that could name it. They
/// may be called from several threads at once; what is below only while none is.
class FakeNvJitLink {
public:
  FakeNvJitLink();
  ~FakeNvJitLink();
  FakeNvJitLink(const FakeNvJitLink&) = delete;
  FakeNvJitLink& operator=(const FakeNvJitLink&) = delete;

  static JitLinkTable table();

  /// The call with this number (from 1, counted from now, of any kind) returns `result` and does
  /// nothing; 0: none.
  void fail_call(uint64_t number, JitLinkResult result = JitLinkResult::NVJITLINK_ERROR_INTERNAL);
  /// The name of the call that fail_call() made fail; empty while it has not come.
  std::string failed_call() const { return failed_; }
  /// Links made and not destroyed.
  size_t alive() const { return links.size(); }

  /// Of the last link that was made.
  std::vector<std::string> options;
  /// Every text that was added, without its NUL.
  std::vector<std::string> added;
  /// Complete gives a cubin without code and says success.
  bool loses_code = false;
  /// Complete says this in the log, and success.
  std::string link_error;
  /// The instruction it does not know.
  std::string unknown_word = "addd";
  /// Targets it does not know.
  std::string unknown_target = "sm_20";

  // For the functions of the table.
  struct Link {
    std::vector<std::string> kernels;
    std::string error_log, info_log;
    bool complete = false;
  };
  JitLinkResult enter(const char* name);
  std::mutex mutex;
  std::map<uint64_t, Link> links;
  uint64_t next_link = 1;
  static FakeNvJitLink& current();

private:
  uint64_t countdown_ = 0;
  JitLinkResult countdown_result_ = JitLinkResult::NVJITLINK_SUCCESS;
  std::string failed_;
};

} // namespace sparsertc::cuda
