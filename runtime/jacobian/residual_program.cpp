#include "runtime/jacobian/residual_program.h"

#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc::jacobian {

void throw_status(const ResidualStatus& status, const ResidualSource& source,
                  const ParameterSet& parameters) {
  const Place file{source.name, 0, 0, {}};
  switch (status.code) {
  case 0:
    return;
  case 1:
    throw UserError(Place::text(source.name, status.where, 1),
                    fmt::format("the loop took more than {} iterations", status.index),
                    "--loop-limit allows more of them");
  case 2:
    throw UserError(file, fmt::format("unknown x[{}] was read, but there are {} unknowns",
                                      status.index, status.length));
  case 3:
    throw UserError(file, fmt::format("residual f[{}] was asked for, but there are {}",
                                      status.index, status.length));
  case 4:
    throw UserError(file,
                    fmt::format("entry {} of the parameter {} was read, which has {}", status.index,
                                parameters.arrays.at(status.where).name, status.length));
  case 5:
    throw UserError(Place::text(source.name, status.where, 1),
                    "sum_over stands inside of another one", "write the inner sum as a loop");
  default:
    throw InternalError(fmt::format("a residual's program said {}", status.code));
  }
}

std::unique_ptr<ProgramMemory> upload_reals(const ResidualProgram& program,
                                            std::span<const double> values, bool f32) {
  if (f32)
    return upload(program, std::vector<float>(values.begin(), values.end()));
  return upload(program, std::vector<double>(values.begin(), values.end()));
}

std::vector<double> download_reals(const ProgramMemory& memory, uint64_t count, bool f32) {
  if (!f32)
    return download<double>(memory, count);
  const std::vector<float> values = download<float>(memory, count);
  return {values.begin(), values.end()};
}

ParameterMemory::ParameterMemory(const ResidualProgram& program, const ParameterSet& parameters,
                                 bool f32) {
  for (size_t k = 0; k < parameters.arrays.size(); ++k) {
    arrays_.push_back(upload(program, stored_bytes(parameters.arrays[k], f32)));
    words_.push_back(arrays_.back()->address());
    words_.push_back(parameters.length(k));
  }
  if (words_.empty())
    words_ = {0, 0}; // C++ has no arrays of length 0
}

void ParameterMemory::finish(ProgramCall& call, uint64_t x, uint64_t n,
                             const CallInstances& instances) const {
  call.words.insert(call.words.end(),
                    {x, n, instances.stride, instances.first, instances.parameter_stride,
                     instances.parameter_first, instances.count});
  call.words.insert(call.words.end(), words_.begin(), words_.end());
  call.instances = instances.count;
}

} // namespace sparsertc::jacobian
