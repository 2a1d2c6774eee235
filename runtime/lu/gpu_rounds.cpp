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
  uint64_t largest, words, begin, input, input_begin, input_scale, zero, empty_column, row,
      row_scale, column, column_scale;
  uint32_t word_count, zeros, empty_columns, size, numbers, first_lower, first_y, factor_rounds,
      solve_rounds, unused;
};
static_assert(sizeof(Call) == 18 * 8 + 10 * 4, "the kernel has the same layout");

/// What the driver keeps of a multiprocessor's shared memory for each block.
constexpr uint32_t kReservedBytes = 1024;
/// The kernel's own, beside the numbers.
constexpr uint32_t kStaticBytes = 256;

uint64_t checked(uint64_t instances) {
  if (instances == 0 || instances >= uint64_t{1} << 31)
    throw UserError(fmt::format("a batch of {} matrices", instances),
                    "give a number from 1 to 2^31 - 1");
  return instances;
}

/// As many as run at once: each goes on to its next group while others wait for memory.
uint32_t blocks_of(const cuda::DeviceProperties& properties, uint64_t shared_bytes, uint32_t group,
                   uint64_t instances) {
  const uint64_t a_block = shared_bytes + kStaticBytes + kReservedBytes;
  const uint64_t at_once = std::max<uint64_t>(
      1, (uint64_t{properties.max_shared_bytes_per_block} + kReservedBytes) / a_block);
  const uint64_t groups = (instances + group - 1) / group;
  return static_cast<uint32_t>(
      std::min<uint64_t>(groups, at_once * std::max(properties.multiprocessors, 1u)));
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

uint64_t shared_bytes_of(const LuRounds& rounds, const GpuRoundsShape& shape) {
  return uint64_t{rounds.numbers} * shape.group * sizeof(double) +
         rounds.words.size() * sizeof(uint32_t) + kStaticBytes;
}

GpuRounds::GpuRounds(const cuda::Context& context, std::span<const uint8_t> image,
                     const LuRounds& rounds, const LuTables& tables, const GpuRoundsShape& shape,
                     uint64_t instances)
    : context_(context), shape_(shape), size_(tables.size),
      word_count_(static_cast<uint32_t>(rounds.words.size())),
      zeros_(static_cast<uint32_t>(rounds.zero.size())),
      empty_columns_(static_cast<uint32_t>(rounds.empty_columns.size())),
      instances_(checked(instances)), shared_bytes_(shared_bytes_of(rounds, shape) - kStaticBytes),
      blocks_(blocks_of(context.properties(), shared_bytes_, shape.group, instances)),
      module_(context, image), kernel_(module_.kernel(kLuRoundsKernel)),
      status_(context, instances * sizeof(uint32_t)),
      largest_(context, uint64_t{blocks_} * tables.size * shape.group * sizeof(double)),
      words_(context, bytes_of(rounds.words)), begin_(context, bytes_of(rounds.begin)),
      input_(context, bytes_of(rounds.input)), input_begin_(context, bytes_of(rounds.input_begin)),
      input_scale_(context, rounds.input.size() * sizeof(double)),
      zero_(context, bytes_of(rounds.zero)), empty_column_(context, bytes_of(rounds.empty_columns)),
      row_(context, bytes_of(tables.row_order)), row_scale_(context, tables.size * sizeof(double)),
      column_(context, bytes_of(tables.column_order)),
      column_scale_(context, tables.size * sizeof(double)) {
  if (rounds.workers != shape.workers())
    throw InternalError(
        fmt::format("rounds for {} workers in a block of {}", rounds.workers, shape.workers()));
  rounds_.numbers = rounds.numbers;
  rounds_.first_lower = rounds.first_lower;
  rounds_.first_y = rounds.first_y;
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
  upload(empty_column_, rounds.empty_columns, stream);
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
  call.largest = largest_.address();
  call.words = words_.address();
  call.begin = begin_.address();
  call.input = input_.address();
  call.input_begin = input_begin_.address();
  call.input_scale = input_scale_.address();
  call.zero = zero_.address();
  call.empty_column = empty_column_.address();
  call.row = row_.address();
  call.row_scale = row_scale_.address();
  call.column = column_.address();
  call.column_scale = column_scale_.address();
  call.word_count = word_count_;
  call.zeros = zeros_;
  call.empty_columns = empty_columns_;
  call.size = size_;
  call.numbers = rounds_.numbers;
  call.first_lower = rounds_.first_lower;
  call.first_y = rounds_.first_y;
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
