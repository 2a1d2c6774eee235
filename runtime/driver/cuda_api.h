// The part of the CUDA driver API that we use, so that building needs no CUDA header and running
// links no CUDA library. cuda_api_check.cpp compares every line with cuda.h where that is present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sparsertc::cuda {

// ---- result codes: X(name, value) ----
#define SPARSERTC_CUDA_RESULTS(X)                                                                  \
  X(CUDA_SUCCESS, 0)                                                                               \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                                                   \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                   \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                                 \
  X(CUDA_ERROR_DEINITIALIZED, 4)                                                                   \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                                                                   \
  X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                                             \
  X(CUDA_ERROR_NO_DEVICE, 100)                                                                     \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                                                                \
  X(CUDA_ERROR_DEVICE_NOT_LICENSED, 102)                                                           \
  X(CUDA_ERROR_INVALID_IMAGE, 200)                                                                 \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                               \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                             \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                             \
  X(CUDA_ERROR_UNSUPPORTED_LIMIT, 215)                                                             \
  X(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, 216)                                                        \
  X(CUDA_ERROR_INVALID_PTX, 218)                                                                   \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                                          \
  X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221)                                                        \
  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                                                       \
  X(CUDA_ERROR_JIT_COMPILATION_DISABLED, 223)                                                      \
  X(CUDA_ERROR_INVALID_SOURCE, 300)                                                                \
  X(CUDA_ERROR_FILE_NOT_FOUND, 301)                                                                \
  X(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, 302)                                                \
  X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303)                                                     \
  X(CUDA_ERROR_OPERATING_SYSTEM, 304)                                                              \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                                                                \
  X(CUDA_ERROR_ILLEGAL_STATE, 401)                                                                 \
  X(CUDA_ERROR_NOT_FOUND, 500)                                                                     \
  X(CUDA_ERROR_NOT_READY, 600)                                                                     \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                               \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                                       \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                                \
  X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708)                                                        \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                          \
  X(CUDA_ERROR_ASSERT, 710)                                                                        \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                                          \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                                           \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                            \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                                         \
  X(CUDA_ERROR_INVALID_PC, 718)                                                                    \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                 \
  X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720)                                                  \
  X(CUDA_ERROR_NOT_PERMITTED, 800)                                                                 \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                                 \
  X(CUDA_ERROR_SYSTEM_NOT_READY, 802)                                                              \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                                        \
  X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804)                                                \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                    \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                    \
  X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903)                                                      \
  X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)                                                       \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                       \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                                                   \
  X(CUDA_ERROR_UNKNOWN, 999)

/// CUresult. Drivers may return values that are not listed.
enum class Result : uint32_t {
#define X(name, value) name = value,
  SPARSERTC_CUDA_RESULTS(X)
#undef X
};

/// "CUDA_ERROR_OUT_OF_MEMORY"; "CUresult" for a value that is not listed.
std::string_view name_of(Result result);

// ---- handles and enums ----
using DeviceOrdinal = int32_t;  ///< CUdevice
using DeviceAddress = uint64_t; ///< CUdeviceptr
using ContextHandle = struct ContextOpaque*;
using ModuleHandle = struct ModuleOpaque*;
using FunctionHandle = struct FunctionOpaque*;
using StreamHandle = struct StreamOpaque*;
using EventHandle = struct EventOpaque*;
using GraphHandle = struct GraphOpaque*;
using GraphExecHandle = struct GraphExecOpaque*;
using GraphNodeHandle = struct GraphNodeOpaque*;
using LinkHandle = struct LinkOpaque*; ///< CUlinkState
using ConditionHandle = uint64_t;      ///< CUgraphConditionalHandle

/// CUdevice_attribute
enum class DeviceAttribute : uint32_t {
  max_threads_per_block = 1,
  max_grid_x = 5,
  max_grid_y = 6,
  max_grid_z = 7,
  max_shared_bytes_per_block = 8,
  max_registers_per_block = 12,
  multiprocessor_count = 16,
  l2_cache_bytes = 38,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  max_shared_bytes_per_block_optin = 97,
};

/// CUfunction_attribute
enum class FunctionAttribute : uint32_t {
  max_threads_per_block = 0,
  shared_bytes = 1,
  local_bytes = 3,
  registers = 4,
  max_dynamic_shared_bytes = 8,
};

/// CUjit_option
enum class JitOption : uint32_t {
  max_registers = 0,
  info_log_buffer = 3,
  info_log_buffer_bytes = 4,
  error_log_buffer = 5,
  error_log_buffer_bytes = 6,
  optimization_level = 7,
  target = 9,
  log_verbose = 12,
};

/// CUjitInputType
enum class JitInput : uint32_t { ptx = 1 };

/// Added to 10 * major + minor in JitOption::target for architectures like sm_90a.
constexpr uint32_t kAcceleratedTarget = 0x10000;

constexpr uint32_t kStreamNonBlocking = 1;      ///< CU_STREAM_NON_BLOCKING
constexpr uint32_t kEventDefault = 0;           ///< CU_EVENT_DEFAULT
constexpr uint32_t kCaptureModeThreadLocal = 1; ///< CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr uint32_t kSetCaptureDependencies = 1; ///< CU_STREAM_SET_CAPTURE_DEPENDENCIES
constexpr uint32_t kConditionAssignDefault = 1; ///< CU_GRAPH_COND_ASSIGN_DEFAULT
constexpr uint32_t kSharedBytesWithoutOptin = 48 * 1024;

/// CUgraphConditionalNodeType
enum class ConditionalType : uint32_t { once = 0, repeat = 1 };

/// CUgraphNodeParams of a conditional node, CU_GRAPH_NODE_TYPE_CONDITIONAL.
struct ConditionalNodeParams {
  uint32_t node_type = 13;
  uint32_t reserved0[3] = {};
  ConditionHandle handle = 0;
  ConditionalType type = ConditionalType::once;
  uint32_t size = 1;             ///< graphs of the body
  GraphHandle* bodies = nullptr; ///< set by the driver, which owns them
  ContextHandle context = nullptr;
  uint64_t reserved1[26] = {};
};
static_assert(sizeof(ConditionalNodeParams) == 256);

// ---- functions: X(name, parameters) ----
#define SPARSERTC_CUDA_FUNCTIONS(X)                                                                \
  X(cuInit, (uint32_t flags))                                                                      \
  X(cuDriverGetVersion, (int32_t * version))                                                       \
  X(cuDeviceGetCount, (int32_t * count))                                                           \
  X(cuDeviceGet, (DeviceOrdinal * device, int32_t ordinal))                                        \
  X(cuDeviceGetName, (char* name, int32_t bytes, DeviceOrdinal device))                            \
  X(cuDeviceGetAttribute, (int32_t * value, DeviceAttribute attribute, DeviceOrdinal device))      \
  X(cuDeviceTotalMem, (size_t * bytes, DeviceOrdinal device))                                      \
  X(cuDevicePrimaryCtxRetain, (ContextHandle * context, DeviceOrdinal device))                     \
  X(cuDevicePrimaryCtxRelease, (DeviceOrdinal device))                                             \
  X(cuCtxSetCurrent, (ContextHandle context))                                                      \
  X(cuMemGetInfo, (size_t * free, size_t * total))                                                 \
  X(cuMemAlloc, (DeviceAddress * address, size_t bytes))                                           \
  X(cuMemFree, (DeviceAddress address))                                                            \
  X(cuMemcpyHtoDAsync,                                                                             \
    (DeviceAddress destination, const void* source, size_t bytes, StreamHandle stream))            \
  X(cuMemcpyDtoHAsync,                                                                             \
    (void* destination, DeviceAddress source, size_t bytes, StreamHandle stream))                  \
  X(cuMemcpyDtoDAsync,                                                                             \
    (DeviceAddress destination, DeviceAddress source, size_t bytes, StreamHandle stream))          \
  X(cuMemsetD8Async, (DeviceAddress address, uint8_t byte, size_t count, StreamHandle stream))     \
  X(cuModuleLoadDataEx, (ModuleHandle * module, const void* image, uint32_t option_count,          \
                         JitOption* options, void** option_values))                                \
  X(cuModuleUnload, (ModuleHandle module))                                                         \
  X(cuModuleGetFunction, (FunctionHandle * function, ModuleHandle module, const char* name))       \
  X(cuModuleGetGlobal,                                                                             \
    (DeviceAddress * address, size_t * bytes, ModuleHandle module, const char* name))              \
  X(cuLinkCreate,                                                                                  \
    (uint32_t option_count, JitOption * options, void** option_values, LinkHandle* link))          \
  X(cuLinkAddData, (LinkHandle link, JitInput type, void* data, size_t bytes, const char* name,    \
                    uint32_t option_count, JitOption* options, void** option_values))              \
  X(cuLinkComplete, (LinkHandle link, void** cubin, size_t* bytes))                                \
  X(cuLinkDestroy, (LinkHandle link))                                                              \
  X(cuFuncGetAttribute, (int32_t * value, FunctionAttribute attribute, FunctionHandle function))   \
  X(cuFuncSetAttribute, (FunctionHandle function, FunctionAttribute attribute, int32_t value))     \
  X(cuStreamCreate, (StreamHandle * stream, uint32_t flags))                                       \
  X(cuStreamDestroy, (StreamHandle stream))                                                        \
  X(cuStreamSynchronize, (StreamHandle stream))                                                    \
  X(cuStreamBeginCapture, (StreamHandle stream, uint32_t mode))                                    \
  X(cuStreamEndCapture, (StreamHandle stream, GraphHandle * graph))                                \
  X(cuEventCreate, (EventHandle * event, uint32_t flags))                                          \
  X(cuEventDestroy, (EventHandle event))                                                           \
  X(cuEventRecord, (EventHandle event, StreamHandle stream))                                       \
  X(cuEventSynchronize, (EventHandle event))                                                       \
  X(cuEventElapsedTime, (float* milliseconds, EventHandle start, EventHandle end))                 \
  X(cuGraphInstantiateWithFlags,                                                                   \
    (GraphExecHandle * executable, GraphHandle graph, unsigned long long flags))                   \
  X(cuGraphLaunch, (GraphExecHandle executable, StreamHandle stream))                              \
  X(cuGraphExecDestroy, (GraphExecHandle executable))                                              \
  X(cuGraphDestroy, (GraphHandle graph))                                                           \
  X(cuLaunchKernel,                                                                                \
    (FunctionHandle function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, \
     uint32_t block_y, uint32_t block_z, uint32_t dynamic_shared_bytes, StreamHandle stream,       \
     void** parameters, void** extra))                                                             \
  X(cuLaunchCooperativeKernel,                                                                     \
    (FunctionHandle function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, \
     uint32_t block_y, uint32_t block_z, uint32_t dynamic_shared_bytes, StreamHandle stream,       \
     void** parameters))

// What makes graphs with conditional nodes; drivers older than kConditionalInterfaceVersion lack
// it.
#define SPARSERTC_CUDA_CONDITIONAL_FUNCTIONS(X)                                                    \
  X(cuStreamGetCaptureInfo,                                                                        \
    (StreamHandle stream, uint32_t * status, uint64_t * id, GraphHandle * graph,                   \
     const GraphNodeHandle** dependencies, const void** edges, size_t* dependency_count))          \
  X(cuStreamUpdateCaptureDependencies,                                                             \
    (StreamHandle stream, GraphNodeHandle * dependencies, const void* edges,                       \
     size_t dependency_count, uint32_t flags))                                                     \
  X(cuStreamBeginCaptureToGraph,                                                                   \
    (StreamHandle stream, GraphHandle graph, const GraphNodeHandle* dependencies,                  \
     const void* edges, size_t dependency_count, uint32_t mode))                                   \
  X(cuGraphAddNode,                                                                                \
    (GraphNodeHandle * node, GraphHandle graph, const GraphNodeHandle* dependencies,               \
     const void* edges, size_t dependency_count, ConditionalNodeParams* parameters))               \
  X(cuGraphConditionalHandleCreate, (ConditionHandle * handle, GraphHandle graph,                  \
                                     ContextHandle context, uint32_t initial, uint32_t flags))

// The types are made here and not in the table, because cuda.h defines some of these names as
// macros; pasting protects them.
#define X(name, parameters) using name##_function = Result(*) parameters;
SPARSERTC_CUDA_FUNCTIONS(X)
SPARSERTC_CUDA_CONDITIONAL_FUNCTIONS(X)
#undef X

/// cuGetProcAddress_v2: the one function looked up by name in the library.
using GetProcAddress = Result (*)(const char* symbol, void** function, int32_t cuda_version,
                                  uint64_t flags, uint32_t* status);
/// The interface version asked of cuGetProcAddress: which of a function's variants (_v2, ...) we
/// mean. Drivers from this version on will do.
constexpr int32_t kInterfaceVersion = 12000;
/// The same for SPARSERTC_CUDA_CONDITIONAL_FUNCTIONS.
constexpr int32_t kConditionalInterfaceVersion = 12040;

/// The functions of one driver (or of a test's fake): all present but those for conditional nodes,
/// which are all present or all null.
struct DriverTable {
#define X(name, parameters) name##_function name = nullptr;
  SPARSERTC_CUDA_FUNCTIONS(X)
  SPARSERTC_CUDA_CONDITIONAL_FUNCTIONS(X)
#undef X
};

} // namespace sparsertc::cuda
