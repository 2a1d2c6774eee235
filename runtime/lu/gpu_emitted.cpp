#include "runtime/lu/gpu_emitted.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <bit>

namespace sparsertc::lu {
namespace {

constexpr uint32_t kLanes = 32;

} // namespace

GpuEmitted::GpuEmitted(const cuda::Context& context, const GpuEmittedCode& code,
                       const LuTables& tables, const LuEmitted& plan)
    : context_(context), module_(context, code.image), launches_(plan.launches),
      notes_(module_.kernel(code.notes)), size_(tables.size),
      slots_(static_cast<uint32_t>(tables.nnz())), factor_bytes_(code.factor_bytes),
      notes_threads_(code.notes_threads), notes_slots_(code.notes_slots), wide_(code.wide) {
  if (code.kernels.size() != launches_.size())
    throw InternalError(fmt::format("{} kernels for {} launches of a factorization",
                                    code.kernels.size(), launches_.size()));
  for (const std::string& name : code.kernels)
    levels_.push_back(module_.kernel(name.c_str()));
  const cuda::Stream stream(context);
  task_ = upload(plan.task, stream);
  left_ = upload(plan.left, stream);
  right_ = upload(plan.right, stream);
  pivot_ = upload(plan.pivot, stream);
  slot_column_ = upload(plan.slot_column, stream);
  stream.synchronize("copying the tables of a factorization by levels to the GPU");
}

template <class T>
GpuEmitted::Table GpuEmitted::upload(const std::vector<T>& values, const cuda::Stream& stream) {
  const uint64_t bytes = values.size() * sizeof(T);
  auto table = std::make_unique<cuda::DeviceBuffer>(context_, bytes);
  table->upload({reinterpret_cast<const uint8_t*>(values.data()), bytes}, stream);
  table_bytes_ += bytes;
  return table;
}

void GpuEmitted::launch(const cuda::Kernel& kernel, uint32_t blocks, uint32_t threads,
                        std::span<const uint64_t> arguments, const cuda::Stream& stream) const {
  constexpr size_t kMostArguments = 9;
  void* pointers[kMostArguments];
  for (size_t i = 0; i < arguments.size(); ++i)
    pointers[i] = const_cast<uint64_t*>(&arguments[i]); // the driver only reads
  cuda::check(context_.api().cuLaunchKernel(kernel.handle, blocks, 1, 1, threads, 1, 1, 0,
                                            stream.handle(), pointers, nullptr),
              "cuLaunchKernel",
              [&] { return fmt::format("launching the kernel {}", kernel.name); });
}

void GpuEmitted::enqueue(const GpuFactorArrays& arrays, double threshold,
                         const cuda::Stream& stream) const {
  if (slots_ == 0)
    return;
  const uint64_t threshold_bits = wide_ ? std::bit_cast<uint64_t>(threshold)
                                        : std::bit_cast<uint32_t>(static_cast<float>(threshold));
  const uint64_t level[] = {arrays.values,     arrays.initial,    arrays.column_max,
                            arrays.scratch,    task_->address(),  left_->address(),
                            right_->address(), pivot_->address(), threshold_bits};
  for (size_t number = 0; number < launches_.size(); ++number)
    launch(levels_[number], launches_[number].blocks, launches_[number].warps * kLanes, level,
           stream);
  const uint64_t notes[] = {arrays.values,     arrays.scratch,  slot_column_->address(),
                            arrays.column_max, arrays.quotient, arrays.status,
                            threshold_bits,    slots_};
  const uint32_t slots_of_block = notes_threads_ * notes_slots_;
  launch(notes_, (slots_ + slots_of_block - 1) / slots_of_block, notes_threads_, notes, stream);
}

} // namespace sparsertc::lu
