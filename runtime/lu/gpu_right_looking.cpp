#include "runtime/lu/gpu_right_looking.h"

#include "ir/lu_dataflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace sparsertc::lu {
namespace {

using kernels::ColumnSource;
using kernels::ColumnUpdate;
using kernels::FactorRecord;
using kernels::RightLookingArguments;

// Kernels include no header of the IR.
static_assert(sizeof(ColumnUpdate) == sizeof(LuUpdate) &&
              offsetof(ColumnUpdate, sources) == offsetof(LuUpdate, sources) &&
              offsetof(ColumnUpdate, column) == offsetof(LuUpdate, column) &&
              offsetof(ColumnUpdate, first_slot) == offsetof(LuUpdate, first_slot) &&
              offsetof(ColumnUpdate, end_slot) == offsetof(LuUpdate, end_slot) &&
              offsetof(ColumnUpdate, reached_slot) == offsetof(LuUpdate, reached_slot) &&
              offsetof(ColumnUpdate, flags) == offsetof(LuUpdate, flags));
static_assert(sizeof(ColumnSource) == sizeof(LuSource) &&
              offsetof(ColumnSource, begin) == offsetof(LuSource, begin) &&
              offsetof(ColumnSource, length) == offsetof(LuSource, length));
static_assert(kernels::kUpdateLast == kLuUpdateLast && kernels::kUpdateDense == kLuUpdateDense &&
              kernels::kUpdateRows == kLuUpdateRows && kernels::kUpdateShared == kLuUpdateShared);
static_assert(sizeof(FactorRecord) == sizeof(LuStatusRecord) &&
              offsetof(FactorRecord, largest_input) == offsetof(LuStatusRecord, largest_input) &&
              offsetof(FactorRecord, perturbed) == offsetof(LuStatusRecord, perturbed) &&
              offsetof(FactorRecord, perturbed_column) ==
                  offsetof(LuStatusRecord, perturbed_column) &&
              offsetof(FactorRecord, zero_column) == offsetof(LuStatusRecord, zero_column) &&
              offsetof(FactorRecord, nonfinite_column) ==
                  offsetof(LuStatusRecord, nonfinite_column));

constexpr uint32_t kBeginThreads = 256;
constexpr uint32_t kLanes = 32;
using kernels::kTailDiagonalThreads;
using kernels::kTailThreads;
/// In front of the dense vectors: the barrier's counter.
constexpr uint64_t kBarrierBytes = 256;

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// Columns of the square of a dense tail.
template <class T>
uint64_t tail_stride(uint32_t columns) {
  constexpr uint64_t block = kernels::kTailBlock<T>;
  return (columns + block - 1) / block * block;
}

/// Bytes of the square and of what is beside it.
template <class T>
uint64_t tail_bytes(uint32_t columns) {
  const uint64_t stride = tail_stride<T>(columns);
  return stride * (stride + kernels::kTailBlock<T>)*sizeof(T);
}

/// Calls work.operator()<T>() with the type of the factors.
template <class Work>
auto with_type(bool single, bool complex, const Work& work) {
  using kernels::Complex;
  if (complex)
    return single ? work.template operator()<Complex<float>>()
                  : work.template operator()<Complex<double>>();
  return single ? work.template operator()<float>() : work.template operator()<double>();
}

/// Numbers that the inspector has bounded.
std::vector<uint32_t> narrowed(const std::vector<uint64_t>& values) {
  return {values.begin(), values.end()};
}

template <class T>
T* at(cuda::DeviceAddress address) {
  return reinterpret_cast<T*>(address);
}

} // namespace

const char* GpuRightLooking::number(bool single, bool complex) {
  if (complex)
    return single ? "c64" : "c128";
  return single ? "f32" : "f64";
}

GpuRightLooking::GpuRightLooking(const cuda::Context& context, std::span<const uint8_t> image,
                                 const LuTables& tables, const LuRightLooking& plan, bool single,
                                 bool complex)
    : context_(context), module_(context, image), single_(single), complex_(complex),
      size_(tables.size), slots_(static_cast<uint32_t>(tables.nnz())),
      dense_columns_(plan.dense_columns), tail_columns_(plan.tail_columns), runs_(plan.runs) {
  const auto kernel = [&](const char* part) {
    return module_.kernel(fmt::format("sparsertc_lu_{}_{}", part, number(single, complex)));
  };
  begin_ = kernel("right_begin");
  stages_ = kernel("right_stages");
  if (tail_columns_ > 0) {
    tail_load_ = kernel("tail_load");
    tail_diagonal_ = kernel("tail_diagonal");
    tail_panels_ = kernel("tail_panels");
    tail_update_ = kernel("tail_update");
    tail_store_ = kernel("tail_store");
  }
  const cuda::Stream stream(context);
  const std::vector<uint32_t> column_offset = narrowed(tables.column_offset);
  const std::vector<uint32_t> diagonal = narrowed(tables.diagonal);
  row_index_ = upload(bytes_of(tables.row_index), stream);
  column_offset_ = upload(bytes_of(column_offset), stream);
  diagonal_ = upload(bytes_of(diagonal), stream);
  update_ = upload(bytes_of(plan.update), stream);
  source_ = upload(bytes_of(plan.source), stream);
  stage_offset_ = upload(bytes_of(plan.stage_offset), stream);
  stream.synchronize("copying the stages of a factorization to the GPU");
}

GpuRightLooking::Table GpuRightLooking::upload(std::span<const uint8_t> bytes,
                                               const cuda::Stream& stream) {
  auto table = std::make_unique<cuda::DeviceBuffer>(context_, bytes.size());
  table->upload(bytes, stream);
  table_bytes_ += bytes.size();
  return table;
}

uint64_t GpuRightLooking::scratch_bytes() const {
  // The tail comes when there are no dense vectors any more.
  return kBarrierBytes + with_type(single_, complex_, [&]<class T>() {
           return std::max(uint64_t{dense_columns_} * size_ * sizeof(T),
                           tail_bytes<T>(tail_columns_));
         });
}

void GpuRightLooking::launch(const cuda::Kernel& kernel, uint32_t blocks, uint32_t threads,
                             void* arguments, bool together, const cuda::Stream& stream) const {
  const cuda::DriverTable& api = context_.api();
  void* parameters[] = {arguments};
  const auto doing = [&] { return fmt::format("launching the kernel {}", kernel.name); };
  // The driver refuses a cooperative launch whose blocks are not all resident at once.
  if (together)
    cuda::check(api.cuLaunchCooperativeKernel(kernel.handle, blocks, 1, 1, threads, 1, 1, 0,
                                              stream.handle(), parameters),
                "cuLaunchCooperativeKernel", doing);
  else
    cuda::check(api.cuLaunchKernel(kernel.handle, blocks, 1, 1, threads, 1, 1, 0, stream.handle(),
                                   parameters, nullptr),
                "cuLaunchKernel", doing);
}

void GpuRightLooking::enqueue(const GpuFactorArrays& arrays, double threshold,
                              const cuda::Stream& stream) const {
  with_type(single_, complex_, [&]<class T>() { enqueue_as<T>(arrays, threshold, stream); });
}

template <class T>
void GpuRightLooking::enqueue_as(const GpuFactorArrays& arrays, double threshold,
                                 const cuda::Stream& stream) const {
  if (size_ == 0)
    return;
  RightLookingArguments<T> arguments{};
  arguments.size = size_;
  arguments.slots = slots_;
  arguments.row_index = at<uint32_t>(row_index_->address());
  arguments.column_offset = at<uint32_t>(column_offset_->address());
  arguments.diagonal = at<uint32_t>(diagonal_->address());
  arguments.update = at<ColumnUpdate>(update_->address());
  arguments.source = at<ColumnSource>(source_->address());
  arguments.stage_offset = at<uint32_t>(stage_offset_->address());
  arguments.initial = at<T>(arrays.initial);
  arguments.values = at<T>(arrays.values);
  arguments.dense = dense_columns_ > 0 ? at<T>(arrays.scratch + kBarrierBytes) : nullptr;
  arguments.column_max = at<int64_t>(arrays.column_max);
  arguments.quotient = at<double>(arrays.quotient);
  arguments.status = at<FactorRecord>(arrays.status);
  arguments.threshold = static_cast<kernels::RealOf<T>>(threshold);
  arguments.arrived = at<uint64_t>(arrays.scratch);

  const uint64_t begin_blocks = (uint64_t{slots_} + kBeginThreads - 1) / kBeginThreads;
  const uint64_t most_blocks = 8 * uint64_t{std::max(context_.properties().multiprocessors, 1u)};
  launch(begin_, static_cast<uint32_t>(std::min(begin_blocks, most_blocks)), kBeginThreads,
         &arguments, false, stream);
  for (const LuStageRun& run : runs_) {
    arguments.first_stage = run.first_stage;
    arguments.end_stage = run.end_stage;
    const uint32_t barriers = run.end_stage - run.first_stage - 1;
    launch(stages_, run.blocks, run.warps * kLanes, &arguments, run.blocks > 1 && barriers > 0,
           stream);
    if (run.blocks > 1)
      arguments.expected += uint64_t{run.blocks} * barriers;
  }
  if (tail_columns_ > 0)
    enqueue_tail(arrays, arguments, stream);
}

template <class T>
void GpuRightLooking::enqueue_tail(const GpuFactorArrays& arrays,
                                   kernels::RightLookingArguments<T> arguments,
                                   const cuda::Stream& stream) const {
  constexpr uint32_t kBlock = kernels::kTailBlock<T>;
  kernels::DenseTailArguments<T> tail{};
  tail.sparse = arguments;
  tail.columns = tail_columns_;
  tail.first = size_ - tail_columns_;
  tail.stride = static_cast<uint32_t>(tail_stride<T>(tail_columns_));
  tail.square = at<T>(arrays.scratch + kBarrierBytes);
  tail.scaled = tail.square + uint64_t{tail.stride} * tail.stride;
  constexpr uint32_t kColumnsOfBlock = kTailThreads / kLanes;
  launch(tail_load_, (tail.stride + kColumnsOfBlock - 1) / kColumnsOfBlock, kTailThreads, &tail,
         false, stream);
  const uint32_t steps = tail.stride / kBlock;
  for (tail.step = 0; tail.step < steps; ++tail.step) {
    launch(tail_diagonal_, 1, kTailDiagonalThreads, &tail, false, stream);
    const uint32_t tiles = steps - tail.step - 1;
    if (tiles == 0)
      continue;
    const uint32_t groups = (tiles * kBlock + kTailThreads - 1) / kTailThreads;
    launch(tail_panels_, 2 * groups, kTailThreads, &tail, false, stream);
    launch(tail_update_, tiles * tiles, kTailThreads, &tail, false, stream);
  }
  launch(tail_store_, (tail.columns + kColumnsOfBlock - 1) / kColumnsOfBlock, kTailThreads, &tail,
         false, stream);
}

} // namespace sparsertc::lu
