#include "runtime/jacobian/host_system.h"

#include "ir/error.h"

#include <algorithm>
#include <vector>

namespace sparsertc::jacobian {
namespace {

/// Float64 numbers as the program takes them: themselves, or a copy in float32.
class Argument {
public:
  Argument(std::span<const double> values, bool f32) : values_(values) {
    if (f32)
      narrow_.assign(values.begin(), values.end());
  }
  uint64_t address() const {
    return narrow_.empty() ? reinterpret_cast<uint64_t>(values_.data())
                           : reinterpret_cast<uint64_t>(narrow_.data());
  }

private:
  std::span<const double> values_;
  std::vector<float> narrow_;
};

class Result {
public:
  Result(std::span<double> values, bool f32) : values_(values), narrow_(f32 ? values.size() : 0) {}
  uint64_t address() {
    return narrow_.empty() ? reinterpret_cast<uint64_t>(values_.data())
                           : reinterpret_cast<uint64_t>(narrow_.data());
  }
  void finish() { std::copy(narrow_.begin(), narrow_.end(), values_.begin()); }

private:
  std::span<double> values_;
  std::vector<float> narrow_;
};

void check_length(size_t given, uint64_t expected) {
  if (given != expected)
    throw InternalError("a vector of another length than the system's");
}

} // namespace

HostSystem::HostSystem(std::shared_ptr<const HostProgram> program, JacobianTables tables,
                       ParameterSet parameters, bool by_row, bool f32, TaskPool* pool)
    : program_(std::move(program)), tables_(std::move(tables)), parameters_(std::move(parameters)),
      f32_(f32), pool_(pool), evaluation_(*program_, tables_, parameters_, by_row, f32) {}

CallInstances HostSystem::only(uint64_t instance) const {
  CallInstances instances;
  instances.parameter_stride = parameters_.instances;
  instances.parameter_first = instance;
  return instances;
}

void HostSystem::run(const Evaluation::Call& call) const {
  program_->run(program_->function(call.entry), call.call, pool_);
}

void HostSystem::residual(std::span<const double> x, std::span<double> f, uint64_t instance) const {
  check_length(x.size(), unknowns());
  check_length(f.size(), pattern().rows);
  const Argument point(x, f32_);
  Result result(f, f32_);
  run(evaluation_.residual(point.address(), result.address(), only(instance)));
  result.finish();
}

void HostSystem::jacobian(std::span<const double> x, std::span<double> values,
                          uint64_t instance) const {
  check_length(x.size(), unknowns());
  const Argument point(x, f32_);
  Result result(values, f32_);
  std::vector<double> work((evaluation_.jacobian_work_bytes(1) + 7) / 8);
  for (const Evaluation::Call& call :
       evaluation_.jacobian(point.address(), result.address(),
                            reinterpret_cast<uint64_t>(work.data()), only(instance)))
    run(call);
  result.finish();
}

void HostSystem::product(std::span<const double> x, std::span<const double> v, std::span<double> y,
                         uint64_t instance) const {
  check_length(x.size(), unknowns());
  check_length(v.size(), unknowns());
  check_length(y.size(), pattern().rows);
  const Argument point(x, f32_), direction(v, f32_);
  Result result(y, f32_);
  std::vector<double> work((evaluation_.product_work_bytes(1) + 7) / 8);
  run(evaluation_.product(point.address(), direction.address(), result.address(),
                          reinterpret_cast<uint64_t>(work.data()), only(instance)));
  result.finish();
}

} // namespace sparsertc::jacobian
