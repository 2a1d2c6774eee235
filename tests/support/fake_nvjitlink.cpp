#include "tests/support/fake_nvjitlink.h"

#include "tests/support/fake_cubin.h"

#include <cstring>
#include <stdexcept>

namespace sparsertc::cuda {
namespace {

FakeNvJitLink* current_library = nullptr;

constexpr JitLinkResult kSuccess = JitLinkResult::NVJITLINK_SUCCESS;
constexpr JitLinkResult kInvalid = JitLinkResult::NVJITLINK_ERROR_INVALID_INPUT;

/// Leaves the enclosing function when the call is to fail.
#define ENTER(name)                                                                                \
  FakeNvJitLink& fake = FakeNvJitLink::current();                                                  \
  const std::lock_guard lock(fake.mutex);                                                          \
  if (const JitLinkResult injected = fake.enter(#name); injected != kSuccess)                      \
  return injected
/// The same for calls on a link.
#define ENTER_LINK(name)                                                                           \
  ENTER(name);                                                                                     \
  const auto found = fake.links.find(reinterpret_cast<uint64_t>(handle));                          \
  if (found == fake.links.end())                                                                   \
    return kInvalid;                                                                               \
  [[maybe_unused]] FakeNvJitLink::Link& link = found->second

JitLinkResult version(unsigned* major, unsigned* minor) {
  ENTER(nvJitLinkVersion);
  *major = 13;
  *minor = 0;
  return kSuccess;
}
JitLinkResult create(JitLinkHandle* handle, uint32_t count, const char** options) {
  ENTER(nvJitLinkCreate);
  fake.options.assign(options, options + count);
  for (const std::string& option : fake.options)
    if (option == "-arch=" + fake.unknown_target)
      return JitLinkResult::NVJITLINK_ERROR_UNSUPPORTED_ARCH;
  fake.links[fake.next_link] = {};
  *handle = reinterpret_cast<JitLinkHandle>(fake.next_link++);
  return kSuccess;
}
/// Destroys in any case, as a library would that says something went wrong on the way.
JitLinkResult destroy(JitLinkHandle* handle) {
  FakeNvJitLink& fake = FakeNvJitLink::current();
  const std::lock_guard lock(fake.mutex);
  const JitLinkResult injected = fake.enter("nvJitLinkDestroy");
  const bool known = fake.links.erase(reinterpret_cast<uint64_t>(*handle)) == 1;
  *handle = nullptr;
  return known ? injected : kInvalid;
}
JitLinkResult add_data(JitLinkHandle handle, JitLinkInput type, const void* data, size_t bytes,
                       const char*) {
  ENTER_LINK(nvJitLinkAddData);
  const char* text = static_cast<const char*>(data);
  if (type != JitLinkInput::ptx || bytes == 0 || std::strlen(text) != bytes - 1)
    return kInvalid;
  fake.added.emplace_back(text);
  link.error_log = testing::complaint_about(fake.unknown_word, text);
  if (!link.error_log.empty())
    return JitLinkResult::NVJITLINK_ERROR_PTX_COMPILE;
  for (const std::string& kernel : testing::entries_in(text)) {
    link.kernels.push_back(kernel);
    link.info_log += "ptxas info    : Function properties for " + kernel +
                     "\nptxas         .     0 bytes stack frame, 8 bytes spill stores, 16 bytes "
                     "spill loads\nptxas info    : Used 24 registers, used 1 barriers\n";
  }
  return kSuccess;
}
/// Says success whatever happened before, as the real one does.
JitLinkResult complete(JitLinkHandle handle) {
  ENTER_LINK(nvJitLinkComplete);
  link.complete = true;
  link.error_log += fake.link_error;
  return kSuccess;
}
std::vector<uint8_t> cubin_of(const FakeNvJitLink& fake, const FakeNvJitLink::Link& link) {
  return testing::fake_cubin(fake.loses_code ? std::vector<std::string>() : link.kernels);
}
JitLinkResult cubin_size(JitLinkHandle handle, size_t* bytes) {
  ENTER_LINK(nvJitLinkGetLinkedCubinSize);
  if (!link.complete)
    return kInvalid;
  *bytes = cubin_of(fake, link).size();
  return kSuccess;
}
JitLinkResult cubin(JitLinkHandle handle, void* bytes) {
  ENTER_LINK(nvJitLinkGetLinkedCubin);
  const std::vector<uint8_t> file = cubin_of(fake, link);
  std::memcpy(bytes, file.data(), file.size());
  return kSuccess;
}
JitLinkResult error_log_size(JitLinkHandle handle, size_t* bytes) {
  ENTER_LINK(nvJitLinkGetErrorLogSize);
  *bytes = link.error_log.size();
  return kSuccess;
}
JitLinkResult error_log(JitLinkHandle handle, char* log) {
  ENTER_LINK(nvJitLinkGetErrorLog);
  std::memcpy(log, link.error_log.data(), link.error_log.size());
  return kSuccess;
}
JitLinkResult info_log_size(JitLinkHandle handle, size_t* bytes) {
  ENTER_LINK(nvJitLinkGetInfoLogSize);
  *bytes = link.info_log.size();
  return kSuccess;
}
JitLinkResult info_log(JitLinkHandle handle, char* log) {
  ENTER_LINK(nvJitLinkGetInfoLog);
  std::memcpy(log, link.info_log.data(), link.info_log.size());
  return kSuccess;
}

} // namespace

FakeNvJitLink::FakeNvJitLink() {
  if (current_library)
    throw std::logic_error("a second FakeNvJitLink");
  current_library = this;
}

FakeNvJitLink::~FakeNvJitLink() {
  current_library = nullptr;
}

FakeNvJitLink& FakeNvJitLink::current() {
  if (!current_library)
    throw std::logic_error("a call after the FakeNvJitLink went");
  return *current_library;
}

JitLinkTable FakeNvJitLink::table() {
  return {version, create,         destroy,   add_data,      complete, cubin_size,
          cubin,   error_log_size, error_log, info_log_size, info_log};
}

void FakeNvJitLink::fail_call(uint64_t number, JitLinkResult result) {
  countdown_ = number;
  countdown_result_ = result;
  failed_.clear();
}

JitLinkResult FakeNvJitLink::enter(const char* name) {
  if (countdown_ != 0 && --countdown_ == 0) {
    failed_ = name;
    return countdown_result_;
  }
  return kSuccess;
}

} // namespace sparsertc::cuda
