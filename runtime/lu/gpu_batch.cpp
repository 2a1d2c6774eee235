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

GpuBatch::GpuBatch(const cuda::Context& context, const GpuBatchCode& code, const LuTables& tables,
                   uint64_t instances)
    : context_(context), code_(code), tables_(tables), instances_(checked(instances)),
      module_(context, code.image), factor_(module_.kernel(code.factor)),
      solve_(module_.kernel(code.solve)),
      factors_(context, groups() * code.lanes * code.numbers * sizeof(double)),
      status_(context, instances * sizeof(uint32_t)) {}

void GpuBatch::launch(const cuda::Kernel& kernel, std::span<const uint64_t> arguments,
                      const cuda::Stream& stream) const {
  std::array<void*, 5> pointers{};
  for (size_t i = 0; i < arguments.size(); ++i)
    pointers[i] = const_cast<uint64_t*>(&arguments[i]); // the driver only reads
  cuda::check(context_.api().cuLaunchKernel(kernel.handle, static_cast<uint32_t>(groups()), 1, 1,
                                            code_.lanes, 1, 1, 0, stream.handle(), pointers.data(),
                                            nullptr),
              "cuLaunchKernel",
              [&] { return fmt::format("launching the kernel {}", kernel.name); });
}

void GpuBatch::factor(cuda::DeviceAddress values, const cuda::Stream& stream,
                      const FactorOptions& options) const {
  const double threshold =
      options.pivot_threshold > 0 ? options.pivot_threshold : std::sqrt(unit_roundoff<double>());
  const uint64_t arguments[] = {values, factors_.address(), status_.address(), instances_,
                                std::bit_cast<uint64_t>(threshold)};
  launch(factor_, arguments, stream);
}

void GpuBatch::solve(cuda::DeviceAddress b, cuda::DeviceAddress x,
                     const cuda::Stream& stream) const {
  const uint64_t bytes = instances_ * tables_.size * sizeof(double);
  if (std::max(b, x) - std::min(b, x) < bytes)
    throw UserError("the right-hand sides and the solutions of a batch overlap",
                    "give them memory of their own");
  const uint64_t arguments[] = {b, x, factors_.address(), instances_};
  launch(solve_, arguments, stream);
}

std::vector<BatchStatus> GpuBatch::status(const cuda::Stream& stream) const {
  std::vector<uint32_t> words(instances_);
  status_.download({reinterpret_cast<uint8_t*>(words.data()), words.size() * sizeof(uint32_t)},
                   stream);
  std::vector<BatchStatus> status(instances_);
  for (uint64_t s = 0; s < instances_; ++s)
    status[s] = {words[s] & ~code_.not_finite_bit, (words[s] & code_.not_finite_bit) == 0};
  return status;
}

} // namespace sparsertc::lu
