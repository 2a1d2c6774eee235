// The part of NVRTC's interface that we use, so that building needs no CUDA header and running
// links no CUDA library. toolkit_api_check.cpp compares every line with nvrtc.h where that is
// present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sparsertc::cuda {

// ---- result codes: X(name, value) ----
#define SPARSERTC_NVRTC_RESULTS(X)                                                                 \
  X(NVRTC_SUCCESS, 0)                                                                              \
  X(NVRTC_ERROR_OUT_OF_MEMORY, 1)                                                                  \
  X(NVRTC_ERROR_PROGRAM_CREATION_FAILURE, 2)                                                       \
  X(NVRTC_ERROR_INVALID_INPUT, 3)                                                                  \
  X(NVRTC_ERROR_INVALID_PROGRAM, 4)                                                                \
  X(NVRTC_ERROR_INVALID_OPTION, 5)                                                                 \
  X(NVRTC_ERROR_COMPILATION, 6)                                                                    \
  X(NVRTC_ERROR_BUILTIN_OPERATION_FAILURE, 7)                                                      \
  X(NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION, 8)                                          \
  X(NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION, 9)                                            \
  X(NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID, 10)                                                     \
  X(NVRTC_ERROR_INTERNAL_ERROR, 11)                                                                \
  X(NVRTC_ERROR_TIME_FILE_WRITE_FAILED, 12)

/// nvrtcResult. Libraries may return values that are not listed.
enum class NvrtcResult : uint32_t {
#define X(name, value) name = value,
  SPARSERTC_NVRTC_RESULTS(X)
#undef X
};

/// "NVRTC_ERROR_COMPILATION"; "nvrtcResult" for a value that is not listed.
std::string_view name_of(NvrtcResult result);

using NvrtcProgram = struct NvrtcOpaque*; ///< nvrtcProgram

// ---- functions: X(name, parameters) ----
#define SPARSERTC_NVRTC_FUNCTIONS(X)                                                               \
  X(nvrtcVersion, (int* major, int* minor))                                                        \
  X(nvrtcCreateProgram, (NvrtcProgram * program, const char* source, const char* name,             \
                         int header_count, const char* const* headers, const char* const* names))  \
  X(nvrtcDestroyProgram, (NvrtcProgram * program))                                                 \
  X(nvrtcCompileProgram, (NvrtcProgram program, int option_count, const char* const* options))     \
  X(nvrtcGetPTXSize, (NvrtcProgram program, size_t * bytes))                                       \
  X(nvrtcGetPTX, (NvrtcProgram program, char* ptx))                                                \
  X(nvrtcGetCUBINSize, (NvrtcProgram program, size_t * bytes))                                     \
  X(nvrtcGetCUBIN, (NvrtcProgram program, char* cubin))                                            \
  X(nvrtcGetProgramLogSize, (NvrtcProgram program, size_t * bytes))                                \
  X(nvrtcGetProgramLog, (NvrtcProgram program, char* log))

#define X(name, parameters) using name##_function = NvrtcResult(*) parameters;
SPARSERTC_NVRTC_FUNCTIONS(X)
#undef X

/// The functions of one library (or of a test's fake), all present.
struct NvrtcTable {
#define X(name, parameters) name##_function name = nullptr;
  SPARSERTC_NVRTC_FUNCTIONS(X)
#undef X
};

} // namespace sparsertc::cuda
