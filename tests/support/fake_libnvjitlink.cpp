// The fake nvJitLink as a library that SPARSERTC_LIBNVJITLINK can name. SPARSERTC_FAKE_UNKNOWN_WORD
// is an instruction that it does not know, SPARSERTC_FAKE_UNKNOWN_TARGET a target.
#include "tests/support/fake_nvjitlink.h"

#include <cstdlib>

using namespace sparsertc::cuda;

namespace {

const JitLinkTable& fake_table() {
  static FakeNvJitLink fake;
  static const JitLinkTable table = [] {
    if (const char* word = std::getenv("SPARSERTC_FAKE_UNKNOWN_WORD"))
      fake.unknown_word = word;
    if (const char* target = std::getenv("SPARSERTC_FAKE_UNKNOWN_TARGET"))
      fake.unknown_target = target;
    return FakeNvJitLink::table();
  }();
  return table;
}

} // namespace

#define SPARSERTC_FORWARD(name, parameters, arguments)                                             \
  extern "C" JitLinkResult name parameters;                                                        \
  extern "C" JitLinkResult name parameters {                                                       \
    return fake_table().name arguments;                                                            \
  }

SPARSERTC_FORWARD(nvJitLinkVersion, (unsigned* major, unsigned* minor), (major, minor))
SPARSERTC_FORWARD(nvJitLinkCreate,
                  (JitLinkHandle * handle, uint32_t option_count, const char** options),
                  (handle, option_count, options))
SPARSERTC_FORWARD(nvJitLinkDestroy, (JitLinkHandle * handle), (handle))
SPARSERTC_FORWARD(nvJitLinkAddData,
                  (JitLinkHandle handle, JitLinkInput type, const void* data, size_t bytes,
                   const char* name),
                  (handle, type, data, bytes, name))
SPARSERTC_FORWARD(nvJitLinkComplete, (JitLinkHandle handle), (handle))
SPARSERTC_FORWARD(nvJitLinkGetLinkedCubinSize, (JitLinkHandle handle, size_t* bytes),
                  (handle, bytes))
SPARSERTC_FORWARD(nvJitLinkGetLinkedCubin, (JitLinkHandle handle, void* cubin), (handle, cubin))
SPARSERTC_FORWARD(nvJitLinkGetErrorLogSize, (JitLinkHandle handle, size_t* bytes), (handle, bytes))
SPARSERTC_FORWARD(nvJitLinkGetErrorLog, (JitLinkHandle handle, char* log), (handle, log))
SPARSERTC_FORWARD(nvJitLinkGetInfoLogSize, (JitLinkHandle handle, size_t* bytes), (handle, bytes))
SPARSERTC_FORWARD(nvJitLinkGetInfoLog, (JitLinkHandle handle, char* log), (handle, log))
