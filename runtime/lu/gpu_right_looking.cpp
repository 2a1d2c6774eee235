#include "runtime/lu/gpu_right_looking.h"

#include "ir/lu_dataflow.h"
#include "runtime/kernels/lu_right_looking.cuh"

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
/// In front of the dense vectors: the barrier's counter.
constexpr uint64_t kBarrierBytes = 256;

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
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

GpuRightLooking::GpuRightLooking(const cuda::Context& context, std::span<const uint8_t> image,
                                 const LuTables& tables, const LuRightLooking& plan, bool single)
    : context_(context), module_(context, image),
      begin_(
          module_.kernel(single ? "sparsertc_lu_right_begin_f32" : "sparsertc_lu_right_begin_f64")),
      stages_(module_.kernel(single ? "sparsertc_lu_right_stages_f32"
                                    : "sparsertc_lu_right_stages_f64")),
      single_(single), size_(tables.size), slots_(static_cast<uint32_t>(tables.nnz())),
      dense_columns_(plan.dense_columns), runs_(plan.runs) {
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
  return kBarrierBytes +
         uint64_t{dense_columns_} * size_ * (single_ ? sizeof(float) : sizeof(double));
}

void GpuRightLooking::enqueue(const GpuFactorArrays& arrays, double threshold,
                              const cuda::Stream& stream) const {
  if (single_)
    enqueue_as<float>(arrays, threshold, stream);
  else
    enqueue_as<double>(arrays, threshold, stream);
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
  arguments.threshold = static_cast<T>(threshold);
  arguments.arrived = at<uint64_t>(arrays.scratch);

  const cuda::DriverTable& api = context_.api();
  void* parameters[] = {&arguments};
  const auto doing = [](const cuda::Kernel& kernel) {
    return [&kernel] { return fmt::format("launching the kernel {}", kernel.name); };
  };
  const uint64_t begin_blocks = (uint64_t{slots_} + kBeginThreads - 1) / kBeginThreads;
  const uint64_t most_blocks = 8 * uint64_t{std::max(context_.properties().multiprocessors, 1u)};
  cuda::check(api.cuLaunchKernel(begin_.handle,
                                 static_cast<uint32_t>(std::min(begin_blocks, most_blocks)), 1, 1,
                                 kBeginThreads, 1, 1, 0, stream.handle(), parameters, nullptr),
              "cuLaunchKernel", doing(begin_));
  for (const LuStageRun& run : runs_) {
    arguments.first_stage = run.first_stage;
    arguments.end_stage = run.end_stage;
    const uint32_t barriers = run.end_stage - run.first_stage - 1;
    // The driver refuses a cooperative launch whose blocks are not all resident at once.
    if (run.blocks > 1 && barriers > 0)
      cuda::check(api.cuLaunchCooperativeKernel(stages_.handle, run.blocks, 1, 1,
                                                run.warps * kLanes, 1, 1, 0, stream.handle(),
                                                parameters),
                  "cuLaunchCooperativeKernel", doing(stages_));
    else
      cuda::check(api.cuLaunchKernel(stages_.handle, run.blocks, 1, 1, run.warps * kLanes, 1, 1, 0,
                                     stream.handle(), parameters, nullptr),
                  "cuLaunchKernel", doing(stages_));
    if (run.blocks > 1)
      arguments.expected += uint64_t{run.blocks} * barriers;
  }
}

} // namespace sparsertc::lu
