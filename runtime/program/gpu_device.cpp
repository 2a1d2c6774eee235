#include "runtime/program/gpu_device.h"

#include "ir/error.h"
#include "runtime/driver/graph.h"

#include <fmt/format.h>

#include <bit>

namespace sparsertc::program {
namespace {

class GraphRecording : public Recording {
public:
  explicit GraphRecording(std::unique_ptr<cuda::Graph> graph) : graph_(std::move(graph)) {}
  void launch() override { graph_->launch(); }

private:
  std::unique_ptr<cuda::Graph> graph_;
};

cuda::ElementTest element_test(const Test& test) {
  using Type = cuda::ElementTest::Type;
  cuda::ElementTest result;
  switch (test.type) {
  case ir::Scalar::i32:
    result.type = Type::i32;
    break;
  case ir::Scalar::i64:
    result.type = Type::i64;
    break;
  case ir::Scalar::f32:
    result.type = Type::f32;
    break;
  case ir::Scalar::f64:
    result.type = Type::f64;
    break;
  default:
    throw InternalError("a condition on " + ir::to_string(test.type));
  }
  const bool is_f32 = test.type == ir::Scalar::f32;
  result.number = is_f32 ? std::bit_cast<uint64_t>(static_cast<double>(
                               std::bit_cast<float>(static_cast<uint32_t>(test.number))))
                         : test.number;
  switch (test.comparison) {
  case ir::Comparison::eq:
    result.equal = true;
    break;
  case ir::Comparison::ne:
    result.less = result.greater = result.unordered = true;
    break;
  case ir::Comparison::ltu:
    result.unsigned_order = true;
    [[fallthrough]];
  case ir::Comparison::lt:
    result.less = true;
    break;
  case ir::Comparison::leu:
    result.unsigned_order = true;
    [[fallthrough]];
  case ir::Comparison::le:
    result.less = result.equal = true;
    break;
  case ir::Comparison::gtu:
    result.unsigned_order = true;
    [[fallthrough]];
  case ir::Comparison::gt:
    result.greater = true;
    break;
  case ir::Comparison::geu:
    result.unsigned_order = true;
    [[fallthrough]];
  case ir::Comparison::ge:
    result.greater = result.equal = true;
    break;
  }
  return result;
}

cuda::ElementTest opposite(cuda::ElementTest test) {
  test.less = !test.less;
  test.equal = !test.equal;
  test.greater = !test.greater;
  test.unordered = !test.unordered;
  return test;
}

} // namespace

/// Records on a stream that is recording a graph: the whole one, or a conditional node's.
class GpuDevice::GraphRecorder : public Recorder {
public:
  GraphRecorder(const GpuDevice& device, const cuda::Stream& stream, bool inside)
      : device_(device), stream_(stream), inside_(inside) {}

  void launch(uint32_t kernel, const uint32_t (&grid)[3], std::span<const Bits> list) override {
    device_.launch_on(stream_, kernel, grid, list);
  }
  void call(uint32_t function, std::span<const Bits> list) override {
    device_.call_on(stream_, function, list);
  }
  void copy(uint64_t to, uint64_t from, uint64_t bytes) override {
    device_.copy_on(stream_, to, from, bytes);
  }

  void repeat(const Work& body, const std::function<Test()>& again) override {
    // A condition begins anew with the whole graph only, so inside of another node the first round
    // stands before the loop's own.
    if (inside_)
      body(*this);
    const cuda::ConditionHandle condition =
        cuda::make_condition(device_.context_, stream_, !inside_);
    if (inside_)
      set(stream_, condition, element_test(again()), again().element);
    cuda::record_conditional(device_.context_, stream_, condition, cuda::ConditionalType::repeat,
                             [&](const cuda::Stream& stream) {
                               GraphRecorder inner(device_, stream, true);
                               body(inner);
                               set(stream, condition, element_test(again()), again().element);
                             });
  }

  void choose(const Test& test, const Work& body, const Work& otherwise) override {
    const cuda::ConditionHandle yes = cuda::make_condition(device_.context_, stream_, false);
    set(stream_, yes, element_test(test), test.element);
    cuda::ConditionHandle no = 0;
    if (otherwise) { // decided before `body` may change what the test reads
      no = cuda::make_condition(device_.context_, stream_, false);
      set(stream_, no, opposite(element_test(test)), test.element);
    }
    const auto node = [&](cuda::ConditionHandle condition, const Work& work) {
      cuda::record_conditional(device_.context_, stream_, condition, cuda::ConditionalType::once,
                               [&](const cuda::Stream& stream) {
                                 GraphRecorder inner(device_, stream, true);
                                 work(inner);
                               });
    };
    node(yes, body);
    if (otherwise)
      node(no, otherwise);
  }

private:
  void set(const cuda::Stream& stream, cuda::ConditionHandle condition,
           const cuda::ElementTest& test, uint64_t element) const {
    device_.setter_->enqueue(stream, condition, element, test);
  }

  const GpuDevice& device_;
  const cuda::Stream& stream_;
  bool inside_;
};

GpuDevice::GpuDevice(const cuda::Context& context, const cuda::Stream& stream,
                     const ir::Module& module, GpuBindings bindings, bool conditional_nodes)
    : context_(context), stream_(stream), module_(module), bindings_(std::move(bindings)) {
  for (uint32_t f = 0; f < module.functions.size(); ++f) {
    const ir::Function& function = module.functions[f];
    if (function.kind == ir::FunctionKind::kernel) {
      for (size_t i = 0; i < bindings_.modules.size() && !kernels_.contains(f); ++i)
        if (std::optional<cuda::Kernel> kernel = bindings_.modules[i]->find_kernel(function.name))
          kernels_[f] = std::move(*kernel);
      if (!kernels_.contains(f))
        throw UserError(
            fmt::format("the program's kernel @{} is in no code that was loaded", function.name));
    } else if (function.external && !bindings_.work.contains(function.name)) {
      throw UserError(
          fmt::format("the program's @{} is external, and nothing is bound to it", function.name),
          "execute the program by what knows the function");
    }
  }
  if (conditional_nodes && context.driver().has_conditional_nodes())
    setter_.emplace(context);
}

void GpuDevice::launch_on(const cuda::Stream& stream, uint32_t index, const uint32_t (&grid)[3],
                          std::span<const Bits> arguments) const {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
    return;
  const ir::Function& function = module_.functions[index];
  std::vector<void*> pointers;
  for (const Bits& argument : arguments)
    pointers.push_back(const_cast<Bits*>(&argument)); // the driver only reads
  cuda::check(context_.api().cuLaunchKernel(kernels_.at(index).handle, grid[0], grid[1], grid[2],
                                            function.block[0], function.block[1], function.block[2],
                                            0, stream.handle(), pointers.data(), nullptr),
              "cuLaunchKernel",
              [&] { return fmt::format("launching the kernel {}", function.name); });
}

void GpuDevice::call_on(const cuda::Stream& stream, uint32_t function,
                        std::span<const Bits> arguments) const {
  bindings_.work.at(module_.functions[function].name)(arguments, stream);
}

void GpuDevice::copy_on(const cuda::Stream& stream, uint64_t to, uint64_t from,
                        uint64_t bytes) const {
  cuda::check(context_.api().cuMemcpyDtoDAsync(to, from, bytes, stream.handle()),
              "cuMemcpyDtoDAsync",
              [&] { return fmt::format("copying {} bytes on the GPU", bytes); });
}

void GpuDevice::launch(uint32_t kernel, const uint32_t (&grid)[3],
                       std::span<const Bits> arguments) {
  launch_on(stream_, kernel, grid, arguments);
}

void GpuDevice::call(uint32_t function, std::span<const Bits> arguments) {
  call_on(stream_, function, arguments);
}

void GpuDevice::copy(uint64_t to, uint64_t from, uint64_t bytes) {
  copy_on(stream_, to, from, bytes);
}

uint64_t GpuDevice::allocate(uint64_t bytes) {
  if (bytes == 0)
    return 0;
  if (std::set<uint64_t>& fitting = unused_[bytes]; !fitting.empty())
    return fitting.extract(fitting.begin()).value();
  auto buffer = std::make_unique<cuda::DeviceBuffer>(context_, bytes);
  const uint64_t address = buffer->address();
  memory_[address] = std::move(buffer);
  return address;
}

/// All work is on one stream, so what takes the memory next comes behind what uses it now.
void GpuDevice::free(uint64_t address, uint64_t bytes) {
  if (address != 0)
    unused_[bytes].insert(address);
}

void GpuDevice::upload(uint64_t to, const void* from, uint64_t bytes) {
  cuda::check(context_.api().cuMemcpyHtoDAsync(to, from, bytes, stream_.handle()),
              "cuMemcpyHtoDAsync",
              [&] { return fmt::format("copying {} bytes to the GPU", bytes); });
  stream_.synchronize("copying to the GPU");
}

void GpuDevice::download(void* to, uint64_t from, uint64_t bytes) {
  cuda::check(context_.api().cuMemcpyDtoHAsync(to, from, bytes, stream_.handle()),
              "cuMemcpyDtoHAsync",
              [&] { return fmt::format("copying {} bytes from the GPU", bytes); });
  stream_.synchronize("running a program on the GPU");
}

void GpuDevice::synchronize() {
  stream_.synchronize("running a program on the GPU");
}

Records GpuDevice::records() const {
  return setter_ ? Records::control : Records::sequences;
}

std::unique_ptr<Recording> GpuDevice::record(const std::function<void(Recorder&)>& work) {
  auto graph = std::make_unique<cuda::Graph>(context_, stream_, [&] {
    GraphRecorder recorder(*this, stream_, false);
    work(recorder);
  });
  return std::make_unique<GraphRecording>(std::move(graph));
}

} // namespace sparsertc::program
