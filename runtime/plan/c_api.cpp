#include "runtime/plan/c_api.h"

#include "ir/error.h"
#include "runtime/plan/c_guard.h"

#include <fmt/format.h>

namespace sparsertc {
namespace {

cuda::DeviceAddress address_of(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}
cuda::StreamHandle stream_of(void* stream) {
  return static_cast<cuda::StreamHandle>(stream);
}

const cuda::Context& current_gpu(const sparsertc_context* handle, const char* doing) {
  const cuda::Context& gpu = required(handle, "context").context->require_gpu(doing);
  gpu.make_current();
  return gpu;
}

int64_t or_open(const std::optional<uint64_t>& value) {
  return value ? static_cast<int64_t>(*value) : -1;
}

void fill_in(const Plan& plan, sparsertc_plan_info& info) {
  const PlanManifest& manifest = plan.manifest();
  clear_keeping_size(info);
  info.m = static_cast<int64_t>(manifest.m);
  info.k = static_cast<int64_t>(manifest.k);
  info.n = or_open(manifest.n);
  info.nnz = static_cast<int64_t>(manifest.nnz);
  info.dtype = manifest.dtype.c_str();
  info.layout = manifest.column_major ? SPARSERTC_COLUMN_MAJOR : SPARSERTC_ROW_MAJOR;
  info.element_size = manifest.element_bytes;
  info.ldb = or_open(manifest.ldb);
  info.ldc = or_open(manifest.ldc);
  info.has_bias = manifest.bias;
  info.has_residual = manifest.residual;
  info.activation = manifest.activation.c_str();
  info.workspace_size = plan.workspace_bytes();
  info.workspace_alignment = Plan::kWorkspaceAlignment;
  info.operand_alignment = plan.operand_alignment();
  info.target = manifest.target.c_str();
  info.strategy = manifest.strategy.c_str();
  info.pattern_digest = manifest.pattern_digest.c_str();
  info.manifest = plan.bundle().manifest.c_str();
  info.code = plan.code() == Plan::Code::cubin ? SPARSERTC_CODE_CUBIN
              : plan.code() == Plan::Code::ptx ? SPARSERTC_CODE_PTX
                                               : SPARSERTC_CODE_NONE;
  if (const cuda::Kernel* kernel = plan.kernel()) {
    const PlanEntry& entry = manifest.entries.front();
    info.registers = kernel->registers;
    info.local_size = kernel->local_bytes;
    info.shared_size = kernel->static_shared_bytes + entry.dynamic_shared_bytes;
    info.block_threads = static_cast<uint32_t>(entry.threads_per_block());
  }
}

void create_plan(const sparsertc_context* context, Bundle bundle, const std::string& name,
                 sparsertc_plan** plan) {
  auto made = std::make_unique<sparsertc_plan>();
  made->plan = std::make_unique<Plan>(context->context, std::move(bundle), name);
  *plan = made.release();
}

} // namespace

sparsertc_result create_context(int32_t device, const ExecutionContext::OpenDriver& open_driver,
                                sparsertc_context** context) {
  return guarded([&] {
    required(context, "context") = nullptr;
    *context = new sparsertc_context{std::make_shared<ExecutionContext>(device, open_driver)};
  });
}

} // namespace sparsertc

using namespace sparsertc;

const char* sparsertc_version(void) {
  return SPARSERTC_VERSION;
}

const char* sparsertc_result_name(sparsertc_result result) {
  switch (result) {
  case SPARSERTC_OK:
    return "SPARSERTC_OK";
  case SPARSERTC_ERROR_INVALID_ARGUMENT:
    return "SPARSERTC_ERROR_INVALID_ARGUMENT";
  case SPARSERTC_ERROR_INVALID_BUNDLE:
    return "SPARSERTC_ERROR_INVALID_BUNDLE";
  case SPARSERTC_ERROR_NO_GPU:
    return "SPARSERTC_ERROR_NO_GPU";
  case SPARSERTC_ERROR_UNSUPPORTED_DEVICE:
    return "SPARSERTC_ERROR_UNSUPPORTED_DEVICE";
  case SPARSERTC_ERROR_MACHINE:
    return "SPARSERTC_ERROR_MACHINE";
  case SPARSERTC_ERROR_INTERNAL:
    return "SPARSERTC_ERROR_INTERNAL";
  case SPARSERTC_ERROR_NOT_BINDABLE:
    return "SPARSERTC_ERROR_NOT_BINDABLE";
  }
  return "SPARSERTC_ERROR_UNKNOWN";
}

const char* sparsertc_last_error(void) {
  return last_error();
}

// ---- context ----

sparsertc_result sparsertc_context_create(int32_t device, sparsertc_context** context) {
  return create_context(device, cuda::Driver::open, context);
}

sparsertc_result sparsertc_context_make_current(const sparsertc_context* context) {
  return guarded([&] { current_gpu(context, "making a context current"); });
}

sparsertc_result sparsertc_context_query(const sparsertc_context* context,
                                         sparsertc_context_info* info) {
  return guarded([&] {
    check_size(required(info, "info"), "sparsertc_context_info");
    const cuda::Context* const gpu = required(context, "context").context->gpu();
    clear_keeping_size(*info);
    info->name = gpu ? gpu->properties().name.c_str() : "";
    if (gpu) {
      info->compute_capability = gpu->properties().compute_capability;
      info->multiprocessors = gpu->properties().multiprocessors;
    }
  });
}

void sparsertc_context_destroy(sparsertc_context* context) {
  delete context;
}

// ---- device memory ----

sparsertc_result sparsertc_memory_allocate(const sparsertc_context* context, uint64_t bytes,
                                           void** address) {
  return guarded([&] {
    required(address, "address") = nullptr;
    const cuda::Context& gpu = current_gpu(context, "allocating device memory");
    cuda::DeviceAddress made = 0;
    if (bytes != 0)
      cuda::check(gpu.api().cuMemAlloc(&made, bytes), "cuMemAlloc",
                  [&] { return fmt::format("allocating {} bytes of device memory", bytes); });
    *address = reinterpret_cast<void*>(static_cast<uintptr_t>(made));
  });
}

sparsertc_result sparsertc_memory_free(const sparsertc_context* context, void* address) {
  return guarded([&] {
    if (!address)
      return;
    const cuda::Context& gpu = current_gpu(context, "freeing device memory");
    cuda::check(gpu.api().cuMemFree(address_of(address)), "cuMemFree", "freeing device memory");
  });
}

sparsertc_result sparsertc_memory_write(const sparsertc_context* context, void* device_address,
                                        const void* host, uint64_t bytes, void* stream) {
  return guarded([&] {
    const cuda::Context& gpu = current_gpu(context, "copying to the GPU");
    if (bytes == 0)
      return;
    check_not_null(device_address, "device_address");
    check_not_null(host, "host");
    cuda::check(
        gpu.api().cuMemcpyHtoDAsync(address_of(device_address), host, bytes, stream_of(stream)),
        "cuMemcpyHtoDAsync", "copying to the GPU");
    cuda::check(gpu.api().cuStreamSynchronize(stream_of(stream)), "cuStreamSynchronize",
                "copying to the GPU");
  });
}

sparsertc_result sparsertc_memory_read(const sparsertc_context* context, void* host,
                                       const void* device_address, uint64_t bytes, void* stream) {
  return guarded([&] {
    const cuda::Context& gpu = current_gpu(context, "copying from the GPU");
    if (bytes == 0)
      return;
    check_not_null(host, "host");
    check_not_null(device_address, "device_address");
    cuda::check(
        gpu.api().cuMemcpyDtoHAsync(host, address_of(device_address), bytes, stream_of(stream)),
        "cuMemcpyDtoHAsync", "copying from the GPU");
    cuda::check(gpu.api().cuStreamSynchronize(stream_of(stream)), "cuStreamSynchronize",
                "copying from the GPU");
  });
}

// ---- plan ----

sparsertc_result sparsertc_plan_load(const sparsertc_context* context, const char* path,
                                     sparsertc_plan** plan) {
  return guarded([&] {
    required(plan, "plan") = nullptr;
    required(context, "context");
    const std::string name = &required(path, "path");
    create_plan(context, read_bundle(name), name, plan);
  });
}

sparsertc_result sparsertc_plan_create(const sparsertc_context* context, const void* bundle,
                                       uint64_t bytes, sparsertc_plan** plan) {
  return guarded([&] {
    required(plan, "plan") = nullptr;
    required(context, "context");
    const std::string name = "bundle in memory";
    const auto* first = &required(static_cast<const uint8_t*>(bundle), "bundle");
    create_plan(context, parse_bundle({first, bytes}, name), name, plan);
  });
}

sparsertc_result sparsertc_plan_save(const sparsertc_plan* plan, const char* path) {
  return guarded(
      [&] { write_bundle(&required(path, "path"), required(plan, "plan").plan->bundle()); });
}

void sparsertc_plan_destroy(sparsertc_plan* plan) {
  delete plan;
}

sparsertc_result sparsertc_plan_query(const sparsertc_plan* plan, sparsertc_plan_info* info) {
  return guarded([&] {
    check_size(required(info, "info"), "sparsertc_plan_info");
    fill_in(*required(plan, "plan").plan, *info);
  });
}

// ---- new weights ----

sparsertc_result sparsertc_plan_bind_values(sparsertc_plan* plan, const sparsertc_values* values) {
  return guarded([&] {
    Plan& bound = *required(plan, "plan").plan;
    const sparsertc_values& given = required_struct(values, "values", "sparsertc_values");
    if (given.count != 0)
      check_not_null(given.values, "values->values");
    if (given.reserved != 0)
      throw UsageError("sparsertc_values: reserved is not 0");
    switch (given.type) {
    case SPARSERTC_VALUE_F32:
      return bound.bind_values({static_cast<const float*>(given.values), given.count});
    case SPARSERTC_VALUE_F64:
      return bound.bind_values({static_cast<const double*>(given.values), given.count});
    default:
      throw UsageError(fmt::format("sparsertc_values: type {} is not one of weights", given.type),
                       "SPARSERTC_VALUE_F32 or SPARSERTC_VALUE_F64");
    }
  });
}

// ---- execution ----

sparsertc_result sparsertc_workspace_initialize(const sparsertc_plan* plan, void* workspace,
                                                void* stream) {
  return guarded([&] {
    required(plan, "plan").plan->initialize_workspace(address_of(workspace), stream_of(stream));
  });
}

sparsertc_result sparsertc_plan_execute(const sparsertc_plan* plan,
                                        const sparsertc_arguments* arguments, void* workspace,
                                        void* stream) {
  return guarded([&] {
    const sparsertc_arguments& given =
        required_struct(arguments, "arguments", "sparsertc_arguments");
    required(plan, "plan")
        .plan->execute({address_of(given.b), address_of(given.c), address_of(given.bias),
                        address_of(given.residual), given.n, given.ldb, given.ldc},
                       address_of(workspace), stream_of(stream));
  });
}

sparsertc_result sparsertc_plan_status(const sparsertc_plan* plan, const void* workspace,
                                       void* stream, sparsertc_execution_status* status) {
  return guarded([&] {
    check_size(required(status, "status"), "sparsertc_execution_status");
    const StatusRecord record =
        required(plan, "plan").plan->status(address_of(workspace), stream_of(stream));
    clear_keeping_size(*status);
    status->outcome = record.outcome;
    status->index = record.index;
  });
}
