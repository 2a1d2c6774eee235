// The part of nvJitLink's interface that we use, so that building needs no CUDA header and running
// links no CUDA library. toolkit_api_check.cpp compares every line with nvJitLink.h where that is
// present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sparsertc::cuda {

// ---- result codes: X(name, value) ----
#define SPARSERTC_NVJITLINK_RESULTS(X)                                                             \
  X(NVJITLINK_SUCCESS, 0)                                                                          \
  X(NVJITLINK_ERROR_UNRECOGNIZED_OPTION, 1)                                                        \
  X(NVJITLINK_ERROR_MISSING_ARCH, 2)                                                               \
  X(NVJITLINK_ERROR_INVALID_INPUT, 3)                                                              \
  X(NVJITLINK_ERROR_PTX_COMPILE, 4)                                                                \
  X(NVJITLINK_ERROR_NVVM_COMPILE, 5)                                                               \
  X(NVJITLINK_ERROR_INTERNAL, 6)                                                                   \
  X(NVJITLINK_ERROR_THREADPOOL, 7)                                                                 \
  X(NVJITLINK_ERROR_UNRECOGNIZED_INPUT, 8)                                                         \
  X(NVJITLINK_ERROR_FINALIZE, 9)                                                                   \
  X(NVJITLINK_ERROR_NULL_INPUT, 10)                                                                \
  X(NVJITLINK_ERROR_INCOMPATIBLE_OPTIONS, 11)                                                      \
  X(NVJITLINK_ERROR_INCORRECT_INPUT_TYPE, 12)                                                      \
  X(NVJITLINK_ERROR_ARCH_MISMATCH, 13)                                                             \
  X(NVJITLINK_ERROR_OUTDATED_LIBRARY, 14)                                                          \
  X(NVJITLINK_ERROR_MISSING_FATBIN, 15)                                                            \
  X(NVJITLINK_ERROR_UNRECOGNIZED_ARCH, 16)                                                         \
  X(NVJITLINK_ERROR_UNSUPPORTED_ARCH, 17)                                                          \
  X(NVJITLINK_ERROR_LTO_NOT_ENABLED, 18)

/// nvJitLinkResult. Libraries may return values that are not listed.
enum class JitLinkResult : uint32_t {
#define X(name, value) name = value,
  SPARSERTC_NVJITLINK_RESULTS(X)
#undef X
};

/// "NVJITLINK_ERROR_PTX_COMPILE"; "nvJitLinkResult" for a value that is not listed.
std::string_view name_of(JitLinkResult result);

using JitLinkHandle = struct JitLinkOpaque*; ///< nvJitLinkHandle

/// nvJitLinkInputType
enum class JitLinkInput : uint32_t { ptx = 2 };

// ---- functions: X(name, parameters) ----
#define SPARSERTC_NVJITLINK_FUNCTIONS(X)                                                           \
  X(nvJitLinkVersion, (unsigned* major, unsigned* minor))                                          \
  X(nvJitLinkCreate, (JitLinkHandle * handle, uint32_t option_count, const char** options))        \
  X(nvJitLinkDestroy, (JitLinkHandle * handle))                                                    \
  X(nvJitLinkAddData,                                                                              \
    (JitLinkHandle handle, JitLinkInput type, const void* data, size_t bytes, const char* name))   \
  X(nvJitLinkComplete, (JitLinkHandle handle))                                                     \
  X(nvJitLinkGetLinkedCubinSize, (JitLinkHandle handle, size_t * bytes))                           \
  X(nvJitLinkGetLinkedCubin, (JitLinkHandle handle, void* cubin))                                  \
  X(nvJitLinkGetErrorLogSize, (JitLinkHandle handle, size_t * bytes))                              \
  X(nvJitLinkGetErrorLog, (JitLinkHandle handle, char* log))                                       \
  X(nvJitLinkGetInfoLogSize, (JitLinkHandle handle, size_t * bytes))                               \
  X(nvJitLinkGetInfoLog, (JitLinkHandle handle, char* log))

#define X(name, parameters) using name##_function = JitLinkResult(*) parameters;
SPARSERTC_NVJITLINK_FUNCTIONS(X)
#undef X

/// The functions of one library (or of a test's fake), all present.
struct JitLinkTable {
#define X(name, parameters) name##_function name = nullptr;
  SPARSERTC_NVJITLINK_FUNCTIONS(X)
#undef X
};

} // namespace sparsertc::cuda
