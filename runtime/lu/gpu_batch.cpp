#include "runtime/lu/gpu_batch.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace sparsertc::lu {
namespace {

uint64_t checked(uint64_t instances) {
  if (instances == 0 || instances >= uint64_t{1} << 31)
    throw UserError(fmt::format("a batch of {} matrices", instances),
                    "give a number from 1 to 2^31 - 1");
  return instances;
}

} // namespace

GpuBatchKernels::GpuBatchKernels(const cuda::Context& context, const GpuBatchCode& code,
                                 const LuTables& tables, const LuBatchLoop* loop)
    : context_(context), code_(code), tables_(tables), module_(context, code.image),
      factor_(module_.kernel(code.factor)), solve_(module_.kernel(code.solve)) {
  code_.image = {};
  if (loop != nullptr)
    upload(*loop);
}

uint64_t GpuBatchKernels::factor_bytes(uint64_t instances) const {
  return groups(instances) * code_.lanes * code_.numbers * code_.number_bytes;
}

void GpuBatchKernels::upload(const LuBatchLoop& loop) {
  const cuda::Stream stream(context_);
  const auto upload_one = [&](const auto& numbers) {
    const std::span<const uint8_t> bytes = {reinterpret_cast<const uint8_t*>(numbers.data()),
                                            numbers.size() * sizeof(numbers[0])};
    tables_on_gpu_.push_back(std::make_unique<cuda::DeviceBuffer>(context_, bytes.size()));
    tables_on_gpu_.back()->upload(bytes, stream);
    table_bytes_ += bytes.size();
    return tables_on_gpu_.back()->address();
  };
  // A packet may be read behind the last one.
  std::vector<uint32_t> factor = loop.factor, forward = loop.forward, backward = loop.backward;
  for (std::vector<uint32_t>* packets : {&factor, &forward, &backward})
    packets->resize(packets->size() + LuBatchLoop::kWords, 0);
  const auto packets = [](const std::vector<uint32_t>& words) {
    return words.size() / LuBatchLoop::kWords;
  };
  factor_tables_ = {loop.numbers,
                    upload_one(loop.entry_source),
                    upload_one(loop.entry_slot),
                    upload_one(loop.entry_end),
                    upload_one(loop.entry_scale),
                    loop.entry_source.size(),
                    upload_one(factor),
                    packets(loop.factor)};
  solve_tables_ = {loop.numbers,
                   upload_one(loop.row),
                   upload_one(loop.row_scale),
                   upload_one(loop.column),
                   upload_one(loop.column_scale),
                   loop.row.size(),
                   upload_one(forward),
                   packets(loop.forward),
                   upload_one(backward),
                   packets(loop.backward)};
  stream.synchronize("copying the tables of a batch to the GPU");
}

void GpuBatchKernels::launch(const cuda::Kernel& kernel, uint32_t threads, uint64_t instances,
                             std::span<const uint64_t> arguments, std::span<const uint64_t> tables,
                             const cuda::Stream& stream) const {
  std::array<void*, 14> pointers{};
  size_t count = 0;
  for (const std::span<const uint64_t> part : {arguments, tables})
    for (const uint64_t& argument : part)
      pointers[count++] = const_cast<uint64_t*>(&argument); // the driver only reads
  cuda::check(
      context_.api().cuLaunchKernel(kernel.handle, static_cast<uint32_t>(groups(instances)), 1, 1,
                                    threads, 1, 1, 0, stream.handle(), pointers.data(), nullptr),
      "cuLaunchKernel", [&] { return fmt::format("launching the kernel {}", kernel.name); });
}

void GpuBatchKernels::factor(cuda::DeviceAddress values, const GpuBatchMemory& memory,
                             const cuda::Stream& stream, const FactorOptions& options) const {
  const bool wide = code_.number_bytes == sizeof(double) * (code_.complex ? 2 : 1);
  const double threshold =
      options.pivot_threshold > 0
          ? options.pivot_threshold
          : std::sqrt(wide ? unit_roundoff<double>() : double{unit_roundoff<float>()});
  const uint64_t bits = wide ? std::bit_cast<uint64_t>(threshold)
                             : std::bit_cast<uint32_t>(static_cast<float>(threshold));
  const uint64_t arguments[] = {values, memory.factors, memory.status, memory.instances, bits};
  launch(factor_, code_.factor_threads, memory.instances, arguments, factor_tables_, stream);
}

void GpuBatchKernels::solve(cuda::DeviceAddress b, cuda::DeviceAddress x,
                            const GpuBatchMemory& memory, const cuda::Stream& stream) const {
  const uint64_t bytes = memory.instances * tables_.size * code_.vector_bytes;
  if (std::max(b, x) - std::min(b, x) < bytes)
    throw UserError("the right-hand sides and the solutions of a batch overlap",
                    "give them memory of their own");
  const uint64_t arguments[] = {b, x, memory.factors, memory.instances};
  launch(solve_, code_.solve_threads, memory.instances, arguments, solve_tables_, stream);
}

GpuBatch::GpuBatch(const cuda::Context& context, const GpuBatchCode& code, const LuTables& tables,
                   uint64_t instances, const LuBatchLoop* loop)
    : instances_(checked(instances)), kernels_(context, code, tables, loop),
      factors_(context, kernels_.factor_bytes(instances)),
      status_(context, instances * sizeof(uint32_t)) {}

std::vector<BatchStatus> GpuBatch::status(const cuda::Stream& stream) const {
  std::vector<uint32_t> words(instances_);
  status_.download({reinterpret_cast<uint8_t*>(words.data()), words.size() * sizeof(uint32_t)},
                   stream);
  std::vector<BatchStatus> status(instances_);
  for (uint64_t s = 0; s < instances_; ++s)
    status[s] = {words[s] & ~not_finite_bit(), (words[s] & not_finite_bit()) == 0};
  return status;
}

} // namespace sparsertc::lu
