#include "tests/support/fake_cuda_driver.h"

#include "tests/support/fake_cubin.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <tuple>

namespace sparsertc::cuda {
namespace {

FakeCudaDriver* current_driver = nullptr;

/// Leaves the enclosing function when the call is to fail.
#define ENTER(name)                                                                                \
  FakeCudaDriver& fake = FakeCudaDriver::current();                                                \
  const std::lock_guard<std::recursive_mutex> lock(fake.mutex);                                    \
  if (const Result injected = fake.enter(#name); injected != Result::CUDA_SUCCESS)                 \
  return injected

/// The same for calls that work on the context current on the calling thread.
#define ENTER_CONTEXT(name)                                                                        \
  ENTER(name);                                                                                     \
  if (!fake.has_current_context())                                                                 \
  return Result::CUDA_ERROR_INVALID_CONTEXT

/// Whether [address, address + bytes) lies in one allocation; its first byte.
uint8_t* find_memory(FakeCudaDriver& fake, DeviceAddress address, size_t bytes) {
  for (auto& [start, block] : fake.memory)
    if (address >= start && address - start <= block.size() &&
        bytes <= block.size() - (address - start))
      return block.data() + (address - start);
  return nullptr;
}

/// What a stream that records a conditional node's graph does not take.
bool is_in_body(const FakeCudaDriver& fake, StreamHandle stream) {
  const auto found = fake.capture_graphs.find(stream);
  return found != fake.capture_graphs.end() && fake.bodies.contains(found->second);
}

Result init(uint32_t) {
  ENTER(cuInit);
  return Result::CUDA_SUCCESS;
}
Result driver_get_version(int32_t* version) {
  ENTER(cuDriverGetVersion);
  *version = 13000;
  return Result::CUDA_SUCCESS;
}
Result device_get_count(int32_t* count) {
  ENTER(cuDeviceGetCount);
  *count = fake.devices;
  return Result::CUDA_SUCCESS;
}
Result device_get(DeviceOrdinal* device, int32_t ordinal) {
  ENTER(cuDeviceGet);
  *device = ordinal;
  return Result::CUDA_SUCCESS;
}
Result device_get_name(char* name, int32_t bytes, DeviceOrdinal) {
  ENTER(cuDeviceGetName);
  std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
  return Result::CUDA_SUCCESS;
}
Result device_get_attribute(int32_t* value, DeviceAttribute attribute, DeviceOrdinal) {
  ENTER(cuDeviceGetAttribute);
  *value = fake.attributes[attribute];
  return Result::CUDA_SUCCESS;
}
Result device_total_mem(size_t* bytes, DeviceOrdinal) {
  ENTER(cuDeviceTotalMem);
  *bytes = size_t{1} << 30;
  return Result::CUDA_SUCCESS;
}
Result primary_context_retain(ContextHandle* context, DeviceOrdinal) {
  ENTER(cuDevicePrimaryCtxRetain);
  *context = fake.make<ContextHandle>("context");
  return Result::CUDA_SUCCESS;
}
Result primary_context_release(DeviceOrdinal) {
  ENTER(cuDevicePrimaryCtxRelease);
  return fake.remove_any("context");
}
Result context_set_current(ContextHandle context) {
  ENTER(cuCtxSetCurrent);
  if (!fake.is_alive("context", context))
    return Result::CUDA_ERROR_INVALID_CONTEXT;
  fake.current_contexts[std::this_thread::get_id()] = context;
  return Result::CUDA_SUCCESS;
}
Result memory_get_info(size_t* free_bytes, size_t* total) {
  ENTER_CONTEXT(cuMemGetInfo);
  *total = size_t{1} << 30;
  *free_bytes = *total / 2;
  return Result::CUDA_SUCCESS;
}
Result memory_allocate(DeviceAddress* address, size_t bytes) {
  ENTER_CONTEXT(cuMemAlloc);
  if (bytes == 0)
    return Result::CUDA_ERROR_INVALID_VALUE;
  FakeCudaDriver::Memory block(bytes, 0xcd);
  *address = reinterpret_cast<DeviceAddress>(block.data());
  fake.memory[*address] = std::move(block);
  return Result::CUDA_SUCCESS;
}
Result memory_free(DeviceAddress address) {
  ENTER_CONTEXT(cuMemFree);
  return fake.memory.erase(address) == 1 ? Result::CUDA_SUCCESS : Result::CUDA_ERROR_INVALID_VALUE;
}
Result copy_to_device(DeviceAddress destination, const void* source, size_t bytes,
                      StreamHandle stream) {
  ENTER_CONTEXT(cuMemcpyHtoDAsync);
  if (is_in_body(fake, stream)) // pageable memory
    return Result::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  uint8_t* memory = find_memory(fake, destination, bytes);
  if (!memory)
    return Result::CUDA_ERROR_INVALID_VALUE;
  std::memcpy(memory, source, bytes);
  return Result::CUDA_SUCCESS;
}
Result copy_from_device(void* destination, DeviceAddress source, size_t bytes,
                        StreamHandle stream) {
  ENTER_CONTEXT(cuMemcpyDtoHAsync);
  if (is_in_body(fake, stream)) // pageable memory
    return Result::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const uint8_t* memory = find_memory(fake, source, bytes);
  if (!memory)
    return Result::CUDA_ERROR_INVALID_VALUE;
  std::memcpy(destination, memory, bytes);
  return Result::CUDA_SUCCESS;
}
Result copy_on_device(DeviceAddress destination, DeviceAddress source, size_t bytes,
                      StreamHandle stream) {
  ENTER_CONTEXT(cuMemcpyDtoDAsync);
  uint8_t* to = find_memory(fake, destination, bytes);
  const uint8_t* from = find_memory(fake, source, bytes);
  if (!to || !from)
    return Result::CUDA_ERROR_INVALID_VALUE;
  if (const auto found = fake.capture_graphs.find(stream); found != fake.capture_graphs.end()) {
    FakeCudaDriver::Node node;
    node.to = destination;
    node.from = source;
    node.bytes = bytes;
    fake.nodes[found->second].push_back(node);
    return Result::CUDA_SUCCESS;
  }
  std::memmove(to, from, bytes);
  return Result::CUDA_SUCCESS;
}
Result memory_set(DeviceAddress address, uint8_t byte, size_t count, StreamHandle) {
  ENTER_CONTEXT(cuMemsetD8Async);
  uint8_t* memory = find_memory(fake, address, count);
  if (!memory)
    return Result::CUDA_ERROR_INVALID_VALUE;
  std::memset(memory, byte, count);
  return Result::CUDA_SUCCESS;
}
Result module_load(ModuleHandle* module, const void* image, uint32_t option_count,
                   JitOption* options, void** values) {
  ENTER_CONTEXT(cuModuleLoadDataEx);
  if (!fake.jit_error.empty()) {
    for (uint32_t i = 0; i < option_count; ++i)
      if (options[i] == JitOption::error_log_buffer)
        std::strcpy(static_cast<char*>(values[i]), fake.jit_error.c_str());
    return Result::CUDA_ERROR_INVALID_PTX;
  }
  const char* text = static_cast<const char*>(image);
  fake.last_image.clear();
  if (text[0] != 0x7f)
    fake.last_image.assign(text, text + std::strlen(text) + 1);
  *module = fake.make<ModuleHandle>("module");
  if (!fake.last_image.empty())
    fake.images[*module] = std::make_shared<const std::vector<uint8_t>>(fake.last_image);
  return Result::CUDA_SUCCESS;
}
Result module_unload(ModuleHandle module) {
  ENTER_CONTEXT(cuModuleUnload);
  fake.images.erase(module);
  return fake.remove("module", module);
}
Result module_get_function(FunctionHandle* function, ModuleHandle module, const char* name) {
  ENTER_CONTEXT(cuModuleGetFunction);
  if (!fake.is_alive("module", module))
    return Result::CUDA_ERROR_INVALID_HANDLE;
  const auto image = fake.images.find(module);
  const auto has_entry = [&] {
    const std::vector<std::string> entries = testing::entries_in(
        image == fake.images.end() ? "" : reinterpret_cast<const char*>(image->second->data()));
    return std::find(entries.begin(), entries.end(), name) != entries.end();
  };
  if (fake.kernels.count(name) == 0 && !has_entry())
    return Result::CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<FunctionHandle>(fake.functions.size() + 1);
  fake.functions[*function] = {name, image == fake.images.end() ? nullptr : image->second};
  return Result::CUDA_SUCCESS;
}

Result module_get_global(DeviceAddress* address, size_t* bytes, ModuleHandle module,
                         const char* name) {
  ENTER_CONTEXT(cuModuleGetGlobal);
  if (!fake.is_alive("module", module))
    return Result::CUDA_ERROR_INVALID_HANDLE;
  const auto found = fake.arrays.find(name);
  if (found == fake.arrays.end())
    return Result::CUDA_ERROR_NOT_FOUND;
  std::tie(*address, *bytes) = found->second;
  return Result::CUDA_SUCCESS;
}
/// Copies a text into the buffer that the options name, as much as fits.
void put_log(const FakeCudaDriver::Link& link, JitOption buffer, JitOption bytes,
             const std::string& text) {
  char* to = nullptr;
  size_t room = 0;
  for (size_t i = 0; i < link.options.size(); ++i) {
    if (link.options[i] == buffer)
      to = static_cast<char*>(link.values[i]);
    else if (link.options[i] == bytes)
      room = reinterpret_cast<size_t>(link.values[i]);
  }
  if (to)
    text.copy(to, room);
}
Result link_create(uint32_t count, JitOption* options, void** values, LinkHandle* handle) {
  ENTER_CONTEXT(cuLinkCreate);
  FakeCudaDriver::Link link;
  link.options.assign(options, options + count);
  link.values.assign(values, values + count);
  *handle = fake.make<LinkHandle>("link");
  fake.last_link = fake.links[*handle] = link;
  return Result::CUDA_SUCCESS;
}
Result link_add_data(LinkHandle handle, JitInput type, void* data, size_t bytes, const char*,
                     uint32_t, JitOption*, void**) {
  ENTER_CONTEXT(cuLinkAddData);
  const char* text = static_cast<const char*>(data);
  if (!fake.is_alive("link", handle) || type != JitInput::ptx || bytes == 0 ||
      std::strlen(text) != bytes - 1)
    return Result::CUDA_ERROR_INVALID_VALUE;
  FakeCudaDriver::Link& link = fake.links[handle];
  const std::string complaint = testing::complaint_about("addd", text);
  put_log(link, JitOption::error_log_buffer, JitOption::error_log_buffer_bytes, complaint);
  if (!complaint.empty())
    return Result::CUDA_ERROR_INVALID_PTX;
  for (const std::string& kernel : testing::entries_in(text)) {
    link.kernels.push_back(kernel);
    link.log += "ptxas info    : Function properties for " + kernel +
                "\nptxas info    : Used 24 registers, used 1 barriers\n";
  }
  return Result::CUDA_SUCCESS;
}
Result link_complete(LinkHandle handle, void** cubin, size_t* bytes) {
  ENTER_CONTEXT(cuLinkComplete);
  if (!fake.is_alive("link", handle))
    return Result::CUDA_ERROR_INVALID_HANDLE;
  FakeCudaDriver::Link& link = fake.links[handle];
  put_log(link, JitOption::info_log_buffer, JitOption::info_log_buffer_bytes, link.log);
  link.cubin = testing::fake_cubin(link.kernels);
  *cubin = link.cubin.data();
  *bytes = link.cubin.size();
  return Result::CUDA_SUCCESS;
}
/// Destroys in any case, as a driver would that says something went wrong on the way.
Result link_destroy(LinkHandle handle) {
  FakeCudaDriver& fake = FakeCudaDriver::current();
  const std::lock_guard<std::recursive_mutex> lock(fake.mutex);
  const Result injected = fake.enter("cuLinkDestroy");
  fake.links.erase(handle);
  const Result removed = fake.remove("link", handle);
  return injected != Result::CUDA_SUCCESS ? injected : removed;
}
Result function_get_attribute(int32_t* value, FunctionAttribute attribute, FunctionHandle) {
  ENTER(cuFuncGetAttribute);
  *value = fake.function_attributes[attribute];
  return Result::CUDA_SUCCESS;
}
Result function_set_attribute(FunctionHandle, FunctionAttribute attribute, int32_t value) {
  ENTER(cuFuncSetAttribute);
  fake.function_attributes[attribute] = value;
  return Result::CUDA_SUCCESS;
}
Result stream_create(StreamHandle* stream, uint32_t) {
  ENTER_CONTEXT(cuStreamCreate);
  *stream = fake.make<StreamHandle>("stream");
  return Result::CUDA_SUCCESS;
}
Result stream_destroy(StreamHandle stream) {
  ENTER(cuStreamDestroy);
  return fake.remove("stream", stream);
}
Result stream_synchronize(StreamHandle stream) {
  ENTER_CONTEXT(cuStreamSynchronize);
  if (fake.capturing.count(stream) == 1)
    return Result::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return Result::CUDA_SUCCESS;
}
Result stream_begin_capture(StreamHandle stream, uint32_t) {
  ENTER(cuStreamBeginCapture);
  fake.capturing.insert(stream);
  fake.capture_graphs[stream] = fake.next<GraphHandle>();
  return Result::CUDA_SUCCESS;
}
Result stream_end_capture(StreamHandle stream, GraphHandle* graph) {
  ENTER(cuStreamEndCapture);
  if (fake.capturing.erase(stream) == 0)
    return Result::CUDA_ERROR_ILLEGAL_STATE;
  *graph = fake.capture_graphs[stream];
  fake.capture_graphs.erase(stream);
  if (fake.bodies.contains(*graph)) // its node's
    return Result::CUDA_SUCCESS;
  fake.adopt("graph", *graph);
  fake.graphs[*graph] = fake.last_captured;
  return Result::CUDA_SUCCESS;
}
Result stream_get_capture_info(StreamHandle stream, uint32_t* status, uint64_t* id,
                               GraphHandle* graph, const GraphNodeHandle** dependencies,
                               const void**, size_t* count) {
  ENTER(cuStreamGetCaptureInfo);
  const auto found = fake.capture_graphs.find(stream);
  *status = found != fake.capture_graphs.end() ? 1 : 0;
  *id = 1;
  *graph = found != fake.capture_graphs.end() ? found->second : nullptr;
  *dependencies = nullptr;
  *count = 0;
  return Result::CUDA_SUCCESS;
}
Result stream_update_capture_dependencies(StreamHandle stream, GraphNodeHandle*, const void*,
                                          size_t count, uint32_t flags) {
  ENTER(cuStreamUpdateCaptureDependencies);
  return fake.capture_graphs.contains(stream) && count == 1 && flags == kSetCaptureDependencies
             ? Result::CUDA_SUCCESS
             : Result::CUDA_ERROR_INVALID_VALUE;
}
Result stream_begin_capture_to_graph(StreamHandle stream, GraphHandle graph, const GraphNodeHandle*,
                                     const void*, size_t, uint32_t) {
  ENTER(cuStreamBeginCaptureToGraph);
  fake.capturing.insert(stream);
  fake.capture_graphs[stream] = graph;
  return Result::CUDA_SUCCESS;
}
Result graph_conditional_handle_create(ConditionHandle* handle, GraphHandle graph,
                                       ContextHandle context, uint32_t initial, uint32_t) {
  ENTER(cuGraphConditionalHandleCreate);
  if (graph == nullptr || !fake.is_alive("context", context))
    return Result::CUDA_ERROR_INVALID_VALUE;
  *handle = fake.conditions.size() + 1;
  fake.conditions[*handle] = {initial, initial};
  return Result::CUDA_SUCCESS;
}
Result graph_add_node(GraphNodeHandle*, GraphHandle graph, const GraphNodeHandle*, const void*,
                      size_t, ConditionalNodeParams* parameters) {
  ENTER(cuGraphAddNode);
  if (graph == nullptr || !fake.conditions.contains(parameters->handle) || parameters->size != 1)
    return Result::CUDA_ERROR_INVALID_VALUE;
  FakeCudaDriver::Node node;
  node.condition = parameters->handle;
  node.repeats = parameters->type == ConditionalType::repeat;
  node.body = fake.next<GraphHandle>();
  fake.bodies.insert(node.body);
  fake.nodes[graph].push_back(node);
  static thread_local GraphHandle body; // the driver's own place
  body = node.body;
  parameters->bodies = &body;
  return Result::CUDA_SUCCESS;
}
Result event_create(EventHandle* event, uint32_t) {
  ENTER_CONTEXT(cuEventCreate);
  *event = fake.make<EventHandle>("event");
  return Result::CUDA_SUCCESS;
}
Result event_destroy(EventHandle event) {
  ENTER(cuEventDestroy);
  return fake.remove("event", event);
}
Result event_record(EventHandle, StreamHandle) {
  ENTER(cuEventRecord);
  return Result::CUDA_SUCCESS;
}
Result event_synchronize(EventHandle) {
  ENTER(cuEventSynchronize);
  return Result::CUDA_SUCCESS;
}
Result event_elapsed_time(float* milliseconds, EventHandle, EventHandle) {
  ENTER(cuEventElapsedTime);
  *milliseconds = fake.time_of ? fake.time_of(fake.last_executed) : 0.5f;
  return Result::CUDA_SUCCESS;
}
Result graph_instantiate(GraphExecHandle* executable, GraphHandle graph, unsigned long long) {
  ENTER(cuGraphInstantiateWithFlags);
  *executable = fake.make<GraphExecHandle>("graph executable");
  fake.executables[*executable] = fake.graphs[graph];
  fake.executable_graphs[*executable] = graph;
  return Result::CUDA_SUCCESS;
}
Result graph_launch(GraphExecHandle executable, StreamHandle) {
  ENTER(cuGraphLaunch);
  fake.last_executed = fake.executables[executable];
  if (fake.argument_words) {
    for (auto& [handle, values] : fake.conditions)
      values.second = values.first;
    fake.run_graph(fake.executable_graphs[executable]);
  }
  return Result::CUDA_SUCCESS;
}
Result graph_exec_destroy(GraphExecHandle executable) {
  ENTER(cuGraphExecDestroy);
  fake.executables.erase(executable);
  return fake.remove("graph executable", executable);
}
Result graph_destroy(GraphHandle graph) {
  ENTER(cuGraphDestroy);
  fake.graphs.erase(graph);
  return fake.remove("graph", graph);
}
void record_launch(FakeCudaDriver& fake, FunctionHandle function, std::array<uint32_t, 3> grid,
                   std::array<uint32_t, 3> block, uint32_t shared_bytes, StreamHandle stream,
                   void** parameters) {
  const FakeCudaDriver::Function& called = fake.functions[function];
  FakeCudaDriver::Launch launch{
      called.name, grid,       block,       shared_bytes, fake.capturing.count(stream) == 1,
      stream,      parameters, called.image};
  if (launch.captured && fake.argument_words) {
    FakeCudaDriver::Node node;
    node.launch = launch;
    node.arguments.resize(fake.argument_words(launch));
    for (size_t i = 0; i < node.arguments.size(); ++i)
      std::memcpy(&node.arguments[i], parameters[i], sizeof(uint64_t));
    fake.nodes[fake.capture_graphs[stream]].push_back(std::move(node));
  }
  if (fake.on_launch)
    fake.on_launch(launch);
  launch.parameters = nullptr;
  (launch.captured ? fake.last_captured : fake.last_executed) = launch;
  fake.launches.push_back(launch);
}
Result launch_kernel(FunctionHandle function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z,
                     uint32_t block_x, uint32_t block_y, uint32_t block_z, uint32_t shared_bytes,
                     StreamHandle stream, void** parameters, void**) {
  ENTER_CONTEXT(cuLaunchKernel);
  record_launch(fake, function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                stream, parameters);
  return Result::CUDA_SUCCESS;
}
Result launch_cooperative_kernel(FunctionHandle function, uint32_t grid_x, uint32_t grid_y,
                                 uint32_t grid_z, uint32_t block_x, uint32_t block_y,
                                 uint32_t block_z, uint32_t shared_bytes, StreamHandle stream,
                                 void** parameters) {
  ENTER_CONTEXT(cuLaunchCooperativeKernel);
  if (uint64_t{grid_x} * grid_y * grid_z > fake.resident_blocks)
    return Result::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  record_launch(fake, function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                stream, parameters);
  return Result::CUDA_SUCCESS;
}

} // namespace

FakeCudaDriver::FakeCudaDriver() {
  if (current_driver)
    throw std::logic_error("a second FakeCudaDriver");
  current_driver = this;
  attributes = {
      {DeviceAttribute::max_threads_per_block, 1024},
      {DeviceAttribute::max_grid_x, 2147483647},
      {DeviceAttribute::max_grid_y, 65535},
      {DeviceAttribute::max_grid_z, 65535},
      {DeviceAttribute::max_shared_bytes_per_block, 49152},
      {DeviceAttribute::max_registers_per_block, 65536},
      {DeviceAttribute::multiprocessor_count, 132},
      {DeviceAttribute::l2_cache_bytes, 60 << 20},
      {DeviceAttribute::compute_capability_major, 9},
      {DeviceAttribute::compute_capability_minor, 0},
      {DeviceAttribute::max_shared_bytes_per_block_optin, 232448},
  };
  function_attributes = {{FunctionAttribute::max_threads_per_block, 1024},
                         {FunctionAttribute::registers, 32}};
}

FakeCudaDriver::~FakeCudaDriver() {
  current_driver = nullptr;
}

FakeCudaDriver& FakeCudaDriver::current() {
  if (!current_driver)
    throw std::logic_error("a call after the FakeCudaDriver went");
  return *current_driver;
}

Result FakeCudaDriver::enter(const char* name) {
  calls_.push_back(name);
  if (const auto found = always_.find(name); found != always_.end())
    return found->second;
  if (countdown_ != 0 && --countdown_ == 0) {
    failed_ = name;
    return countdown_result_;
  }
  return Result::CUDA_SUCCESS;
}

void FakeCudaDriver::fail_call(uint64_t number, Result result) {
  countdown_ = number;
  countdown_result_ = result;
  failed_.clear();
}

void FakeCudaDriver::fail_every(const std::string& name, Result result) {
  always_[name] = result;
}

uint64_t FakeCudaDriver::count(const std::string& name) const {
  return static_cast<uint64_t>(std::count(calls_.begin(), calls_.end(), name));
}

bool FakeCudaDriver::has_current_context() const {
  const auto found = current_contexts.find(std::this_thread::get_id());
  return found != current_contexts.end() && is_alive("context", found->second);
}

Result FakeCudaDriver::remove_any(const std::string& kind) {
  auto& set = alive_[kind];
  if (set.empty())
    return Result::CUDA_ERROR_INVALID_HANDLE;
  set.erase(set.begin());
  return Result::CUDA_SUCCESS;
}

void FakeCudaDriver::run_graph(GraphHandle graph) {
  for (Node& node : nodes[graph]) {
    if (node.launch) {
      Launch again = *node.launch;
      again.captured = false;
      std::vector<void*> pointers;
      for (uint64_t& argument : node.arguments)
        pointers.push_back(&argument);
      again.parameters = pointers.data();
      if (on_launch)
        on_launch(again);
      again.parameters = nullptr;
      launches.push_back(again);
    } else if (node.body != nullptr) {
      const uint32_t& condition = conditions[node.condition].second;
      while (condition != 0) {
        run_graph(node.body);
        if (!node.repeats)
          break;
      }
    } else {
      std::memmove(find_memory(*this, node.to, node.bytes),
                   find_memory(*this, node.from, node.bytes), node.bytes);
    }
  }
}

std::map<std::string, uint64_t> FakeCudaDriver::alive() const {
  std::map<std::string, uint64_t> result;
  for (const auto& [kind, handles] : alive_)
    if (!handles.empty())
      result[kind] = handles.size();
  if (!memory.empty())
    result["memory"] = memory.size();
  if (!capturing.empty())
    result["capture"] = capturing.size();
  return result;
}

DriverTable FakeCudaDriver::table() const {
  DriverTable table;
  table.cuInit = init;
  table.cuDriverGetVersion = driver_get_version;
  table.cuDeviceGetCount = device_get_count;
  table.cuDeviceGet = device_get;
  table.cuDeviceGetName = device_get_name;
  table.cuDeviceGetAttribute = device_get_attribute;
  table.cuDeviceTotalMem = device_total_mem;
  table.cuDevicePrimaryCtxRetain = primary_context_retain;
  table.cuDevicePrimaryCtxRelease = primary_context_release;
  table.cuCtxSetCurrent = context_set_current;
  table.cuMemGetInfo = memory_get_info;
  table.cuMemAlloc = memory_allocate;
  table.cuMemFree = memory_free;
  table.cuMemcpyHtoDAsync = copy_to_device;
  table.cuMemcpyDtoHAsync = copy_from_device;
  table.cuMemcpyDtoDAsync = copy_on_device;
  table.cuMemsetD8Async = memory_set;
  table.cuModuleLoadDataEx = module_load;
  table.cuModuleUnload = module_unload;
  table.cuModuleGetFunction = module_get_function;
  table.cuModuleGetGlobal = module_get_global;
  table.cuLinkCreate = link_create;
  table.cuLinkAddData = link_add_data;
  table.cuLinkComplete = link_complete;
  table.cuLinkDestroy = link_destroy;
  table.cuFuncGetAttribute = function_get_attribute;
  table.cuFuncSetAttribute = function_set_attribute;
  table.cuStreamCreate = stream_create;
  table.cuStreamDestroy = stream_destroy;
  table.cuStreamSynchronize = stream_synchronize;
  table.cuStreamBeginCapture = stream_begin_capture;
  table.cuStreamEndCapture = stream_end_capture;
  table.cuEventCreate = event_create;
  table.cuEventDestroy = event_destroy;
  table.cuEventRecord = event_record;
  table.cuEventSynchronize = event_synchronize;
  table.cuEventElapsedTime = event_elapsed_time;
  table.cuGraphInstantiateWithFlags = graph_instantiate;
  table.cuGraphLaunch = graph_launch;
  table.cuGraphExecDestroy = graph_exec_destroy;
  table.cuGraphDestroy = graph_destroy;
  table.cuLaunchKernel = launch_kernel;
  table.cuLaunchCooperativeKernel = launch_cooperative_kernel;
  if (conditional_nodes) {
    table.cuStreamGetCaptureInfo = stream_get_capture_info;
    table.cuStreamUpdateCaptureDependencies = stream_update_capture_dependencies;
    table.cuStreamBeginCaptureToGraph = stream_begin_capture_to_graph;
    table.cuGraphAddNode = graph_add_node;
    table.cuGraphConditionalHandleCreate = graph_conditional_handle_create;
  }
  return table;
}

} // namespace sparsertc::cuda
