#include "runtime/plan/plan.h"

#include "ir/error.h"
#include "runtime/plan/device_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsertc {
namespace {

constexpr uint64_t kMost32 = std::numeric_limits<int32_t>::max();
const StatusRecord kInitialRecord;
/// Of a library's part of the workspace.
constexpr uint64_t kLibraryAlignment = 256;

void check_workspace(cuda::DeviceAddress workspace) {
  if (workspace == 0)
    throw UsageError("the workspace is a null pointer",
                     "give as much device memory as the plan's query says");
  if (workspace % Plan::kWorkspaceAlignment != 0)
    throw UsageError(
        fmt::format("the workspace is not aligned to {} bytes", Plan::kWorkspaceAlignment));
}

/// `elements`: 0 allows null.
void check_pointer(const char* operand, cuda::DeviceAddress address, uint64_t alignment,
                   uint64_t elements) {
  if (address == 0 && elements != 0)
    throw UsageError(fmt::format("{} is a null pointer", operand));
  if (address % alignment != 0)
    throw UsageError(fmt::format("{} is not aligned to {} bytes", operand, alignment));
}

/// The leading dimension that the kernel will use.
uint64_t leading_dimension(const char* name, int64_t given, const std::optional<uint64_t>& fixed,
                           uint64_t columns, uint32_t element_bytes) {
  if (fixed) {
    if (given != 0 && given != static_cast<int64_t>(*fixed))
      throw UsageError(fmt::format("{} is {}, the plan was compiled for {}", name, given, *fixed));
    return *fixed;
  }
  const uint64_t leading = given == 0 ? columns : static_cast<uint64_t>(given);
  if (given < 0 || leading < columns || leading > kMost32 / element_bytes)
    throw UsageError(fmt::format("{} is {}, possible are {} (the columns) to {} (2 GiB a row)",
                                 name, given == 0 ? static_cast<int64_t>(columns) : given, columns,
                                 kMost32 / element_bytes));
  return leading;
}

} // namespace

Plan::Plan(std::shared_ptr<const ExecutionContext> context, Bundle bundle, const std::string& name,
           uint64_t most_library_workspace)
    : context_(std::move(context)), name_(name), bundle_(std::move(bundle)),
      manifest_(parse_plan_manifest(bundle_.manifest, name)),
      most_library_workspace_(most_library_workspace) {
  alignment_ = manifest_.element_bytes;
  most_columns_ = kMost32;
  for (const PlanEntry& entry : manifest_.entries) {
    alignment_ = std::max<uint64_t>(alignment_, entry.pointer_alignment);
    // Column numbers of the last block are computed in 32 bits.
    for (const PlanEntry::Range& range : entry.ranges)
      most_columns_ = std::min(most_columns_, (kMost32 - range.items_per_block) / range.items);
  }
  if (context_->gpu() && !manifest_.entries.empty())
    load();
}

/// The product of a plan that would have a library; null where its kernels have to do, and why.
std::unique_ptr<cuda::DenseProduct> Plan::open_library(const cuda::Module& module) {
  library_refusal_.clear();
  if (!manifest_.dense || !manifest_.dense->library)
    return nullptr;
  const cuda::Context& gpu = *context_->gpu();
  cuda::DenseShape shape;
  shape.m = manifest_.m;
  shape.n = manifest_.n.value_or(0);
  shape.k = manifest_.k;
  shape.type = manifest_.dtype == "f16"    ? cuda::DenseShape::Type::f16
               : manifest_.dtype == "bf16" ? cuda::DenseShape::Type::bf16
               : manifest_.dtype == "f64"  ? cuda::DenseShape::Type::f64
                                           : cuda::DenseShape::Type::f32;
  shape.tf32 = manifest_.precision == "tf32";
  shape.lda = manifest_.dense->leading;
  shape.column_major = manifest_.column_major;
  shape.ldb = manifest_.ldb.value_or(0);
  shape.ldc = manifest_.ldc.value_or(0);
  shape.alignment = static_cast<uint32_t>(alignment_);
  shape.adds = manifest_.residual;
  shape.relu = manifest_.activation == "relu";
  const cuda::DeviceBuffer array = module.array(manifest_.dense->array);
  if (array.bytes() / manifest_.element_bytes / std::max<uint64_t>(shape.k, 1) < shape.lda)
    throw UserError(
        Place{name_, 0, 0, {}},
        fmt::format("the array {} is smaller than the manifest says", manifest_.dense->array));
  try {
    auto product = std::make_unique<cuda::DenseProduct>(cuda::CublasLt::open(), shape,
                                                        most_library_workspace_);
    // Once, so that nothing is loaded by the first execution; and what fails fails here.
    const cuda::Stream stream(gpu);
    const uint64_t bytes = manifest_.element_bytes;
    const cuda::DeviceBuffer b(gpu, shape.ldb * (shape.column_major ? shape.n : shape.k) * bytes),
        c(gpu, shape.ldc * (shape.column_major ? shape.n : shape.m) * bytes),
        workspace(gpu, product->workspace_bytes());
    b.fill(0, stream);
    c.fill(0, stream);
    product->enqueue(array.address(), b.address(), c.address(), c.address(), workspace.address(),
                     stream.handle());
    stream.synchronize("running a dense product once");
    dense_array_ = array.address();
    return product;
  } catch (const RuntimeError& error) {
    library_refusal_ = error.what();
    return nullptr;
  }
}

uint64_t Plan::workspace_bytes() const {
  const uint64_t of_library = library_workspace_bytes();
  return kWorkspaceBytes + (of_library == 0 ? 0 : kLibraryAlignment + of_library);
}

Plan::~Plan() {
  unload(module_);
}

void Plan::unload(std::unique_ptr<cuda::Module>& module) const {
  if (!module)
    return;
  // Unloading needs the context; where it cannot be had, nothing can be unloaded either.
  try {
    context_->gpu()->make_current();
  } catch (const Error&) {
  }
  module.reset();
}

/// Loads the bundle's code; what was loaded before is given up when that has succeeded.
void Plan::load() {
  const cuda::Context& gpu = *context_->gpu();
  const cuda::DeviceProperties& device = gpu.properties();
  const Bundle::Section& code = choose_code(bundle_, manifest_.target, device, name_);
  const bool is_ptx = code.name == "ptx";
  for (PlanEntry entry : manifest_.entries) {
    if (is_ptx)
      entry.registers = entry.static_shared_bytes = 0; // the manifest's are the cubin's
    check_limits(entry, device);
  }
  gpu.make_current();
  auto module = std::make_unique<cuda::Module>(gpu, code.bytes);
  std::vector<cuda::Kernel> kernels;
  for (const PlanEntry& entry : manifest_.entries) {
    // Asking for its attributes also loads the kernel where the driver loads lazily, so that the
    // first execution can be captured.
    const cuda::Kernel kernel = module->kernel(entry.name);
    check_loaded(entry, kernel, device);
    if (uint64_t{entry.dynamic_shared_bytes} + kernel.static_shared_bytes >
        cuda::kSharedBytesWithoutOptin)
      cuda::check(gpu.api().cuFuncSetAttribute(kernel.handle,
                                               cuda::FunctionAttribute::max_dynamic_shared_bytes,
                                               static_cast<int32_t>(entry.dynamic_shared_bytes)),
                  "cuFuncSetAttribute", [&] {
                    return fmt::format("asking for {} bytes of dynamic shared memory for {}",
                                       entry.dynamic_shared_bytes, entry.name);
                  });
    kernels.push_back(kernel);
  }
  product_ = open_library(*module);
  module_.swap(module);
  kernels_ = std::move(kernels);
  code_ = is_ptx ? Code::ptx : Code::cubin;
  unload(module);
}

const Bundle& Plan::bundle() const {
  const std::lock_guard lock(digest_mutex_);
  if (digest_is_stale_) {
    set_values_digest(bundle_, bound_);
    digest_is_stale_ = false;
  }
  return bundle_;
}

template <typename Value>
void Plan::bind(std::span<const Value> values) {
  if (code_ == Code::ptx)
    throw NotBindableError(
        fmt::format("{} runs from PTX on this device, and only machine code can be bound to new "
                    "weights",
                    name_),
        "compile for this device's target: sparsertc compile IN --bindable --target=native");
  if (values.size() != manifest_.nnz)
    throw UsageError(
        fmt::format("{} values for a pattern with {} entries", values.size(), manifest_.nnz),
        "one value for each entry, row by row, columns ascending");
  if (!places_) {
    ValuePlaces places = read_binding(bundle_, name_);
    if (places.values != manifest_.nnz)
      throw UserError(fmt::format("{}: section {} is for {} values, the manifest says {}", name_,
                                  kBindingSection, places.values, manifest_.nnz));
    elements_ = read_elements(places, bundle_.find("cubin")->bytes);
    places_ = std::move(places);
  }
  if (const auto bad = encode_values(places_->type, places_->stored, values, next_elements_))
    throw UsageError(fmt::format("value {} of entry {} is {} {}", values[*bad], *bad,
                                 std::isfinite(values[*bad]) ? "too large for" : "no weight in",
                                 manifest_.dtype),
                     "weights are finite numbers; scale them, or compile with a wider --dtype");
  bound_.reserve(values.size());
  std::vector<uint8_t>& cubin = bundle_.find("cubin")->bytes;
  write_elements(*places_, next_elements_, cubin);
  if (module_) {
    try {
      load();
    } catch (...) {
      write_elements(*places_, elements_, cubin);
      throw;
    }
  }
  // From here on nothing fails.
  elements_.swap(next_elements_);
  drop_ptx(bundle_);
  const std::lock_guard lock(digest_mutex_);
  bound_.assign(values.begin(), values.end());
  digest_is_stale_ = true;
}

void Plan::bind_values(std::span<const double> values) {
  bind(values);
}

void Plan::bind_values(std::span<const float> values) {
  bind(values);
}

void Plan::initialize_workspace(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const {
  const cuda::Context& gpu = context_->require_gpu("initialising a workspace");
  check_workspace(workspace);
  gpu.make_current();
  cuda::check(
      gpu.api().cuMemcpyHtoDAsync(workspace, &kInitialRecord, sizeof kInitialRecord, stream),
      "cuMemcpyHtoDAsync", "initialising a workspace");
}

void Plan::execute(const SpmmArguments& arguments, cuda::DeviceAddress workspace,
                   cuda::StreamHandle stream) const {
  const cuda::Context& gpu = context_->require_gpu("executing a plan");
  check_workspace(workspace);
  const uint64_t most = manifest_.n.value_or(most_columns_);
  if (arguments.n < static_cast<int64_t>(manifest_.n.value_or(0)) ||
      arguments.n > static_cast<int64_t>(most))
    throw UsageError(manifest_.n ? fmt::format("n is {}, the plan was compiled for {}", arguments.n,
                                               *manifest_.n)
                                 : fmt::format("n is {}, possible are 0 to {}", arguments.n, most));
  const uint64_t n = static_cast<uint64_t>(arguments.n);
  const uint64_t ldb =
      leading_dimension("ldb", arguments.ldb, manifest_.ldb, n, manifest_.element_bytes);
  const uint64_t ldc =
      leading_dimension("ldc", arguments.ldc, manifest_.ldc, n, manifest_.element_bytes);
  const uint64_t outputs = manifest_.m * n;
  if (outputs == 0)
    return;
  check_pointer("b", arguments.b, alignment_, manifest_.k);
  check_pointer("c", arguments.c, alignment_, outputs);
  if (arguments.b == arguments.c)
    throw UsageError("b and c are the same memory");
  if (manifest_.bias)
    check_pointer("bias", arguments.bias, manifest_.element_bytes, outputs);
  if (manifest_.residual)
    check_pointer("residual", arguments.residual, alignment_, outputs);

  if (product_) {
    const uint64_t end = workspace + kWorkspaceBytes;
    product_->enqueue(dense_array_, arguments.b, arguments.residual, arguments.c,
                      (end + kLibraryAlignment - 1) / kLibraryAlignment * kLibraryAlignment,
                      stream);
    return;
  }
  // In the order of OperandRole. Little-endian: a 4-byte parameter is the low half.
  uint64_t values[] = {arguments.b, arguments.c, arguments.bias, arguments.residual, n, ldb, ldc};
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const PlanEntry& entry = manifest_.entries[i];
    if (entry.grid_rows == 0)
      continue;
    void* parameters[PlanEntry::kMostParameters];
    for (size_t p = 0; p < entry.parameters.size(); ++p)
      parameters[p] = &values[static_cast<size_t>(entry.parameters[p])];
    const uint64_t blocks = entry.grid_x(n);
    cuda::check(gpu.api().cuLaunchKernel(kernels_[i].handle, static_cast<uint32_t>(blocks),
                                         entry.grid_rows, 1, entry.block[0], entry.block[1],
                                         entry.block[2], entry.dynamic_shared_bytes, stream,
                                         parameters, nullptr),
                "cuLaunchKernel", [&] { return fmt::format("launching {}", entry.name); });
  }
}

StatusRecord Plan::status(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const {
  const cuda::Context& gpu = context_->require_gpu("asking for a status");
  check_workspace(workspace);
  gpu.make_current();
  // First alone, so that a failure of the kernel is not reported as one of the copy.
  constexpr const char* kWaiting = "waiting for an execution";
  cuda::check(gpu.api().cuStreamSynchronize(stream), "cuStreamSynchronize", kWaiting);
  StatusRecord record;
  cuda::check(gpu.api().cuMemcpyDtoHAsync(&record, workspace, sizeof record, stream),
              "cuMemcpyDtoHAsync", "reading a status record");
  cuda::check(gpu.api().cuStreamSynchronize(stream), "cuStreamSynchronize",
              "reading a status record");
  check_initialized(record);
  return record;
}

} // namespace sparsertc
