// Compares cublaslt_api.h, nvjitlink_api.h and nvrtc_api.h with NVIDIA's headers at compile time,
// where those are present. No code.
#include "runtime/driver/cublaslt_api.h"
#include "runtime/driver/nvjitlink_api.h"
#include "runtime/driver/nvrtc_api.h"
#include "runtime/driver/same_function.h"

#if __has_include(<nvJitLink.h>)
// Its inline functions call names of exactly one version. Nothing here is called, so nothing of
// that is linked.
#include <nvJitLink.h>

namespace sparsertc::cuda {
namespace {

#define X(name, parameters)                                                                        \
  static_assert(same_function<name##_function, decltype(&::name)>, "signature of " #name);
SPARSERTC_NVJITLINK_FUNCTIONS(X)
#undef X
#define X(name, value) static_assert(::name == value, "value of " #name);
SPARSERTC_NVJITLINK_RESULTS(X)
#undef X
static_assert(static_cast<int>(JitLinkInput::ptx) == ::NVJITLINK_INPUT_PTX);
static_assert(sizeof(JitLinkHandle) == sizeof(::nvJitLinkHandle));

} // namespace
} // namespace sparsertc::cuda
#endif

#if __has_include(<nvrtc.h>)
#include <nvrtc.h>

namespace sparsertc::cuda {
namespace {

#define X(name, parameters)                                                                        \
  static_assert(same_function<name##_function, decltype(&::name)>, "signature of " #name);
SPARSERTC_NVRTC_FUNCTIONS(X)
#undef X
#define X(name, value) static_assert(::name == value, "value of " #name);
SPARSERTC_NVRTC_RESULTS(X)
#undef X

} // namespace
} // namespace sparsertc::cuda
#endif

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace sparsertc::cuda {
namespace {

#define X(name, parameters)                                                                        \
  static_assert(same_function<name##_function, decltype(&::name)>, "signature of " #name);
SPARSERTC_CUBLASLT_FUNCTIONS(X)
#undef X
#define X(name, theirs, value) static_assert(::theirs == value, "value of " #theirs);
SPARSERTC_CUBLASLT_CONSTANTS(X)
#undef X
static_assert(same_function<size_t (*)(), decltype(&::cublasLtGetVersion)>);
static_assert(sizeof(BlasAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(BlasHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(BlasHeuristic, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(BlasHeuristic, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));

} // namespace
} // namespace sparsertc::cuda
#endif
