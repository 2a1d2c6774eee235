#include "runtime/jacobian/compiled_gpu_system.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sparsertc::jacobian {
namespace {

/// Of a call: its own, what every call ends in, and two for each of 200 parameters.
constexpr size_t kMostWords = 32 + 2 * 200;

CallInstances all(uint64_t instances) {
  return {instances, 0, instances, 0, instances};
}

} // namespace

CompiledGpuSystem::CompiledGpuSystem(std::shared_ptr<const GpuProgram> program,
                                     JacobianTables tables, ParameterSet parameters,
                                     uint64_t instances, bool by_row, bool f32, bool f32_values,
                                     const std::optional<ReadAhead>& read_ahead)
    : program_(std::move(program)), tables_(std::move(tables)), parameters_(std::move(parameters)),
      instances_(instances), f32_(f32), f32_values_(f32_values),
      evaluation_(*program_, tables_, parameters_, by_row, f32, read_ahead),
      product_work_(program_->context(), evaluation_.product_work_bytes(instances)),
      jacobian_work_(program_->context(), evaluation_.jacobian_work_bytes(instances)),
      residual_(prepared(evaluation_.residual(0, 0, all(instances)))),
      product_(prepared(evaluation_.product(0, 0, 0, product_work_.address(), all(instances)))),
      evaluates_together_(program_->is_batch() && evaluation_.has_values_of_all_rows()) {
  if (instances >= uint64_t{1} << 29) // residual_numbers.cuh: Vector
    throw UserError(fmt::format("a batch of {} instances", instances),
                    "2^29 - 1 at once are the most");
  if (parameters_.any_varies() && parameters_.instances != instances)
    throw UserError(fmt::format("a batch of {} instances has parameters for {}", instances,
                                parameters_.instances));
  for (Evaluation::Call& call :
       evaluation_.jacobian(0, 0, jacobian_work_.address(), all(instances)))
    jacobian_.push_back(prepared(std::move(call)));
}

CompiledGpuSystem::Launch CompiledGpuSystem::prepared(Evaluation::Call call) const {
  const cuda::Kernel kernel = program_->kernel(call.entry);
  return {std::move(call), kernel};
}

void CompiledGpuSystem::enqueue(const Launch& launch, cuda::DeviceAddress x,
                                cuda::DeviceAddress result, cuda::DeviceAddress second,
                                const cuda::Stream& stream) const {
  const ProgramCall& call = launch.call.call;
  std::array<uint64_t, kMostWords> words;
  std::copy(call.words.begin(), call.words.end(), words.begin());
  words[launch.call.x_word] = x;
  words[launch.call.result_word] = result;
  if (launch.call.second_word)
    words[*launch.call.second_word] = second;
  program_->enqueue(launch.kernel, call, {words.data(), call.words.size()}, stream);
}

void CompiledGpuSystem::residual(cuda::DeviceAddress x, cuda::DeviceAddress f,
                                 const cuda::Stream& stream) const {
  enqueue(residual_, x, f, 0, stream);
}

void CompiledGpuSystem::jacobian(cuda::DeviceAddress x, cuda::DeviceAddress values,
                                 const cuda::Stream& stream) const {
  for (const Launch& launch : jacobian_)
    enqueue(launch, x, values, 0, stream);
}

void CompiledGpuSystem::evaluate(cuda::DeviceAddress x, cuda::DeviceAddress f,
                                 cuda::DeviceAddress values, const cuda::Stream& stream) const {
  if (!evaluates_together_)
    residual(x, f, stream);
  for (const Launch& launch : jacobian_)
    enqueue(launch, x, values, f, stream);
}

void CompiledGpuSystem::product(cuda::DeviceAddress x, cuda::DeviceAddress v, cuda::DeviceAddress y,
                                const cuda::Stream& stream) const {
  enqueue(product_, x, y, v, stream);
}

void CompiledGpuSystem::check(const cuda::Stream& stream) const {
  program_->check(stream);
}

void CompiledGpuSystem::write_values(cuda::DeviceAddress values, const cuda::Stream& stream) const {
  enqueue(prepared(evaluation_.write(0, all(instances_))), 0, values, 0, stream);
}

std::vector<cuda::Kernel> CompiledGpuSystem::jacobian_kernels() const {
  std::vector<cuda::Kernel> kernels;
  for (const Launch& launch : jacobian_)
    kernels.push_back(launch.kernel);
  return kernels;
}

} // namespace sparsertc::jacobian
