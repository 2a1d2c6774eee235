#include "runtime/driver/nvjitlink.h"

#include "ir/error.h"
#include "runtime/driver/library.h"

#include <fmt/format.h>

#include <cstring>

namespace sparsertc::cuda {
namespace {

void check(JitLinkResult result, std::string_view call, const std::string& doing) {
  if (result != JitLinkResult::NVJITLINK_SUCCESS)
    throw RuntimeError(doing, describe(result, call));
}

template <typename Size, typename Get>
std::string read_log(JitLinkHandle handle, Size size, Get get) {
  size_t bytes = 0;
  if (size(handle, &bytes) != JitLinkResult::NVJITLINK_SUCCESS || bytes == 0)
    return {};
  std::string log(bytes + 1, '\0'); // it may come without its NUL
  if (get(handle, log.data()) != JitLinkResult::NVJITLINK_SUCCESS)
    return {};
  log.resize(std::strlen(log.c_str()));
  return log;
}

} // namespace

std::string_view name_of(JitLinkResult result) {
  switch (result) {
#define X(name, value)                                                                             \
  case JitLinkResult::name:                                                                        \
    return #name;
    SPARSERTC_NVJITLINK_RESULTS(X)
#undef X
  }
  return "nvJitLinkResult";
}

std::string describe(JitLinkResult result, std::string_view call) {
  return fmt::format("{} failed: {} ({})", call, name_of(result), static_cast<uint32_t>(result));
}

std::shared_ptr<const NvJitLink> NvJitLink::open() {
  const Library library = Library::open(
      {"nvJitLink", "SPARSERTC_LIBNVJITLINK", {"libnvJitLink.so.13", "libnvJitLink.so.12"}});
  JitLinkTable table;
#define X(name, parameters)                                                                        \
  table.name =                                                                                     \
      reinterpret_cast<name##_function>(library.find(#name, "nvJitLink of CUDA 12.3 or newer"));
  SPARSERTC_NVJITLINK_FUNCTIONS(X)
#undef X
  return std::make_shared<NvJitLink>(table, library.path());
}

NvJitLink::NvJitLink(const JitLinkTable& table, std::string path)
    : table_(table), path_(std::move(path)) {
  check(table_.nvJitLinkVersion(&major_, &minor_), "nvJitLinkVersion",
        "asking for nvJitLink's version");
}

JitLink::JitLink(const NvJitLink& library, const std::vector<std::string>& options,
                 const std::string& doing)
    : api_(library.api()) {
  std::vector<const char*> pointers;
  for (const std::string& option : options)
    pointers.push_back(option.c_str());
  check(api_.nvJitLinkCreate(&handle_, static_cast<uint32_t>(pointers.size()), pointers.data()),
        "nvJitLinkCreate", doing);
}

JitLink::~JitLink() {
  // Whatever it answers: the handle is gone, and the first failure has been reported already.
  api_.nvJitLinkDestroy(&handle_);
}

JitLinkResult JitLink::add_ptx(const std::string& text, std::string name) {
  names_.push_back(std::move(name));
  // The NUL counts.
  return api_.nvJitLinkAddData(handle_, JitLinkInput::ptx, text.c_str(), text.size() + 1,
                               names_.back().c_str());
}

JitLinkResult JitLink::complete() {
  return api_.nvJitLinkComplete(handle_);
}

std::vector<uint8_t> JitLink::cubin(const std::string& doing) const {
  size_t bytes = 0;
  check(api_.nvJitLinkGetLinkedCubinSize(handle_, &bytes), "nvJitLinkGetLinkedCubinSize", doing);
  std::vector<uint8_t> cubin(bytes);
  if (bytes != 0)
    check(api_.nvJitLinkGetLinkedCubin(handle_, cubin.data()), "nvJitLinkGetLinkedCubin", doing);
  return cubin;
}

std::string JitLink::info_log() const {
  return read_log(handle_, api_.nvJitLinkGetInfoLogSize, api_.nvJitLinkGetInfoLog);
}

std::string JitLink::error_log() const {
  return read_log(handle_, api_.nvJitLinkGetErrorLogSize, api_.nvJitLinkGetErrorLog);
}

} // namespace sparsertc::cuda
