#include "runtime/lu/gpu_rounds.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace sparsertc::lu {
namespace {

/// LuRoundsCall of runtime/kernels/lu_rounds.cu.
struct Call {
  uint64_t values, b, x, status, instances;
  double threshold;
  uint64_t words, begin, input, input_begin, input_scale, zero, row, row_scale, column,
      column_scale;
  uint32_t zeros, size, slots, factor_rounds, solve_rounds, unused;
};
static_assert(sizeof(Call) == 16 * 8 + 6 * 4, "the kernel has the same layout");

/// What the driver keeps of a multiprocessor's shared memory for each block.
constexpr uint32_t kReservedBytes = 1024;
/// The kernel's own, beside the numbers.
constexpr uint32_t kStaticBytes = 256;
constexpr uint32_t kThreads = 512;

uint64_t checked(uint64_t instances) {
  if (instances == 0 || instances >= uint64_t{1} << 31)
    throw UserError(fmt::format("a batch of {} matrices", instances),
                    "give a number from 1 to 2^31 - 1");
  return instances;
}

template <class T>
uint64_t bytes_of(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}
template <class T>
void upload(const cuda::DeviceBuffer& buffer, const std::vector<T>& values,
            const cuda::Stream& stream) {
  buffer.upload({reinterpret_cast<const uint8_t*>(values.data()), bytes_of(values)}, stream);
}

/// scale[order[i]], or ones.
std::vector<double> ordered(const std::vector<double>& scale, const std::vector<uint32_t>& order) {
  std::vector<double> result(order.size(), 1.0);
  if (!scale.empty())
    std::transform(order.begin(), order.end(), result.begin(),
                   [&](uint32_t place) { return scale[place]; });
  return result;
}

} // namespace

GpuRoundsShape choose_rounds_shape(const cuda::Context& context, uint64_t numbers) {
  const uint64_t room = context.properties().max_shared_bytes_per_block;
  for (const uint32_t group : {16u, 8u, 4u})
    if (numbers * group * sizeof(double) + kStaticBytes <= room)
      return {group, kThreads};
  return {};
}

GpuRounds::GpuRounds(const cuda::Context& context, std::span<const uint8_t> image,
                     const LuRounds& rounds, const LuTables& tables, const GpuRoundsShape& shape,
                     uint64_t instances)
    : context_(context), shape_(shape), size_(tables.size),
      slots_(static_cast<uint32_t>(tables.nnz())),
      zeros_(static_cast<uint32_t>(rounds.zero.size())), instances_(checked(instances)),
      shared_bytes_(uint64_t{rounds.numbers} * shape.group * sizeof(double)),
      module_(context, image), kernel_(module_.kernel(kLuRoundsKernel)),
      status_(context, instances * sizeof(uint32_t)), words_(context, bytes_of(rounds.words)),
      begin_(context, bytes_of(rounds.begin)), input_(context, bytes_of(rounds.input)),
      input_begin_(context, bytes_of(rounds.input_begin)),
      input_scale_(context, rounds.input.size() * sizeof(double)),
      zero_(context, bytes_of(rounds.zero)), row_(context, bytes_of(tables.row_order)),
      row_scale_(context, tables.size * sizeof(double)),
      column_(context, bytes_of(tables.column_order)),
      column_scale_(context, tables.size * sizeof(double)) {
  if (rounds.workers != shape.workers())
    throw InternalError(
        fmt::format("rounds for {} workers in a block of {}", rounds.workers, shape.workers()));
  rounds_.factor_rounds = rounds.factor_rounds;
  rounds_.solve_rounds = rounds.solve_rounds;
  const cuda::Stream stream(context);
  upload(words_, rounds.words, stream);
  upload(begin_, rounds.begin, stream);
  upload(input_, rounds.input, stream);
  upload(input_begin_, rounds.input_begin, stream);
  const std::vector<double> input_scale = tables.input_scale.empty()
                                              ? std::vector<double>(rounds.input.size(), 1.0)
                                              : tables.input_scale;
  upload(input_scale_, input_scale, stream);
  upload(zero_, rounds.zero, stream);
  upload(row_, tables.row_order, stream);
  const std::vector<double> row_scale = ordered(tables.row_scale, tables.row_order);
  upload(row_scale_, row_scale, stream);
  upload(column_, tables.column_order, stream);
  const std::vector<double> column_scale = ordered(tables.column_scale, tables.column_order);
  upload(column_scale_, column_scale, stream);
  stream.synchronize("copying the tables of a batch to the GPU");
  cuda::check(context.api().cuFuncSetAttribute(kernel_.handle,
                                               cuda::FunctionAttribute::max_dynamic_shared_bytes,
                                               static_cast<int32_t>(shared_bytes_)),
              "cuFuncSetAttribute", [&] {
                return fmt::format("giving {} {} bytes of shared memory", kernel_.name,
                                   shared_bytes_);
              });
  // As many blocks as run at once: each goes on to its next group while others wait for memory.
  const cuda::DeviceProperties& properties = context.properties();
  const uint64_t a_block = shared_bytes_ + kStaticBytes + kReservedBytes;
  const uint64_t at_once = std::max<uint64_t>(
      1, (uint64_t{properties.max_shared_bytes_per_block} + kReservedBytes) / a_block);
  const uint64_t groups = (instances_ + shape.group - 1) / shape.group;
  blocks_ = static_cast<uint32_t>(
      std::min<uint64_t>(groups, at_once * std::max(properties.multiprocessors, 1u)));
}

void GpuRounds::solve(cuda::DeviceAddress values, cuda::DeviceAddress b, cuda::DeviceAddress x,
                      const cuda::Stream& stream, const FactorOptions& options) const {
  if (std::max(b, x) - std::min(b, x) < instances_ * size_ * sizeof(double))
    throw UserError("the right-hand sides and the solutions of a batch overlap",
                    "give them memory of their own");
  Call call{};
  call.values = values;
  call.b = b;
  call.x = x;
  call.status = status_.address();
  call.instances = instances_;
  call.threshold =
      options.pivot_threshold > 0 ? options.pivot_threshold : std::sqrt(unit_roundoff<double>());
  call.words = words_.address();
  call.begin = begin_.address();
  call.input = input_.address();
  call.input_begin = input_begin_.address();
  call.input_scale = input_scale_.address();
  call.zero = zero_.address();
  call.row = row_.address();
  call.row_scale = row_scale_.address();
  call.column = column_.address();
  call.column_scale = column_scale_.address();
  call.zeros = zeros_;
  call.size = size_;
  call.slots = slots_;
  call.factor_rounds = rounds_.factor_rounds;
  call.solve_rounds = rounds_.solve_rounds;
  void* argument = &call;
  cuda::check(context_.api().cuLaunchKernel(kernel_.handle, blocks_, 1, 1, shape_.threads, 1, 1,
                                            static_cast<uint32_t>(shared_bytes_), stream.handle(),
                                            &argument, nullptr),
              "cuLaunchKernel",
              [&] { return fmt::format("launching the kernel {}", kernel_.name); });
}

std::vector<BatchStatus> GpuRounds::status(const cuda::Stream& stream) const {
  std::vector<uint32_t> words(instances_);
  status_.download({reinterpret_cast<uint8_t*>(words.data()), words.size() * sizeof(uint32_t)},
                   stream);
  std::vector<BatchStatus> status(instances_);
  for (uint64_t s = 0; s < instances_; ++s)
    status[s] = {words[s] & ~kNotFiniteBit, (words[s] & kNotFiniteBit) == 0};
  return status;
}

} // namespace sparsertc::lu
