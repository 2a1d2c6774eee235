// Compares cuda_api.h with NVIDIA's cuda.h at compile time, where that is present. No code.
#include "runtime/driver/cuda_api.h"
#include "runtime/driver/same_function.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

static_assert(CUDA_VERSION >= 12000, "cuda_api.h describes CUDA 12 and newer");

namespace sparsertc::cuda {
namespace {

#define X(name, parameters)                                                                        \
  static_assert(same_function<name##_function, decltype(&::name)>, "signature of " #name);
SPARSERTC_CUDA_FUNCTIONS(X)
#undef X
#if CUDA_VERSION >= 13000 // before that the plain names are those of older variants
#define X(name, parameters)                                                                        \
  static_assert(same_function<name##_function, decltype(&::name)>, "signature of " #name);
SPARSERTC_CUDA_CONDITIONAL_FUNCTIONS(X)
#undef X
#endif
static_assert(same_function<GetProcAddress, decltype(&::cuGetProcAddress)>);

#define X(name, value) static_assert(::name == value, "value of " #name);
SPARSERTC_CUDA_RESULTS(X)
#undef X

static_assert(sizeof(DeviceOrdinal) == sizeof(CUdevice));
static_assert(sizeof(DeviceAddress) == sizeof(CUdeviceptr));

constexpr bool same(auto ours, auto theirs) {
  return static_cast<uint64_t>(ours) == static_cast<uint64_t>(theirs);
}
static_assert(same(DeviceAttribute::max_threads_per_block,
                   CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
static_assert(same(DeviceAttribute::max_grid_x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X));
static_assert(same(DeviceAttribute::max_grid_y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y));
static_assert(same(DeviceAttribute::max_grid_z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z));
static_assert(same(DeviceAttribute::max_shared_bytes_per_block,
                   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
static_assert(same(DeviceAttribute::max_registers_per_block,
                   CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK));
static_assert(same(DeviceAttribute::multiprocessor_count,
                   CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(same(DeviceAttribute::l2_cache_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
static_assert(same(DeviceAttribute::compute_capability_major,
                   CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(DeviceAttribute::compute_capability_minor,
                   CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(DeviceAttribute::max_shared_bytes_per_block_optin,
                   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));

static_assert(same(FunctionAttribute::max_threads_per_block,
                   CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
static_assert(same(FunctionAttribute::shared_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
static_assert(same(FunctionAttribute::local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
static_assert(same(FunctionAttribute::registers, CU_FUNC_ATTRIBUTE_NUM_REGS));
static_assert(same(FunctionAttribute::max_dynamic_shared_bytes,
                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));

static_assert(same(JitOption::info_log_buffer, CU_JIT_INFO_LOG_BUFFER));
static_assert(same(JitOption::info_log_buffer_bytes, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES));
static_assert(same(JitOption::error_log_buffer, CU_JIT_ERROR_LOG_BUFFER));
static_assert(same(JitOption::error_log_buffer_bytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES));

static_assert(same(JitOption::max_registers, CU_JIT_MAX_REGISTERS));
static_assert(same(JitOption::optimization_level, CU_JIT_OPTIMIZATION_LEVEL));
static_assert(same(JitOption::target, CU_JIT_TARGET));
static_assert(same(JitOption::log_verbose, CU_JIT_LOG_VERBOSE));
static_assert(same(JitInput::ptx, CU_JIT_INPUT_PTX));
static_assert(sizeof(LinkHandle) == sizeof(CUlinkState));
static_assert(kAcceleratedTarget + 90 == CU_TARGET_COMPUTE_90A);

static_assert(kSetCaptureDependencies == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
#if CUDA_VERSION >= 12040
static_assert(sizeof(ConditionalNodeParams) == sizeof(CUgraphNodeParams));
static_assert(ConditionalNodeParams{}.node_type == CU_GRAPH_NODE_TYPE_CONDITIONAL);
static_assert(offsetof(ConditionalNodeParams, handle) ==
              offsetof(CUgraphNodeParams, conditional.handle));
static_assert(offsetof(ConditionalNodeParams, type) ==
              offsetof(CUgraphNodeParams, conditional.type));
static_assert(offsetof(ConditionalNodeParams, size) ==
              offsetof(CUgraphNodeParams, conditional.size));
static_assert(offsetof(ConditionalNodeParams, bodies) ==
              offsetof(CUgraphNodeParams, conditional.phGraph_out));
static_assert(same(ConditionalType::once, CU_GRAPH_COND_TYPE_IF));
static_assert(same(ConditionalType::repeat, CU_GRAPH_COND_TYPE_WHILE));
static_assert(kConditionAssignDefault == CU_GRAPH_COND_ASSIGN_DEFAULT);
#endif
#if CUDA_VERSION >= 13000
static_assert(offsetof(ConditionalNodeParams, context) ==
              offsetof(CUgraphNodeParams, conditional.ctx));
#endif

static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDefault == CU_EVENT_DEFAULT);
static_assert(kCaptureModeThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

} // namespace
} // namespace sparsertc::cuda
#endif
