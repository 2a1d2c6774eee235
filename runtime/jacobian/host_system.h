// A user's residual as a system on the CPU.
#pragma once

#include "runtime/jacobian/evaluation.h"
#include "runtime/jacobian/host_program.h"
#include "runtime/jacobian/system.h"

#include <memory>
#include <span>

namespace sparsertc::jacobian {

class HostSystem : public NonlinearSystem {
public:
  /// `program` has the evaluation entries that the tables need (program.h), with options.batch
  /// where a parameter varies. `by_row`: the residual's form. `pool`: works on each evaluation, of
  /// which there must not be two at once then; null: the calling thread does alone.
  HostSystem(std::shared_ptr<const HostProgram> program, JacobianTables tables,
             ParameterSet parameters, bool by_row, bool f32, TaskPool* pool = nullptr);

  uint64_t instances() const override { return parameters_.instances; }
  const JacobianPattern& pattern() const override { return tables_.pattern; }
  void residual(std::span<const double> x, std::span<double> f,
                uint64_t instance = 0) const override;
  void jacobian(std::span<const double> x, std::span<double> values,
                uint64_t instance = 0) const override;
  /// y = J(x) v, without making J.
  void product(std::span<const double> x, std::span<const double> v, std::span<double> y,
               uint64_t instance = 0) const;

private:
  CallInstances only(uint64_t instance) const;
  void run(const Evaluation::Call& call) const;

  std::shared_ptr<const HostProgram> program_;
  JacobianTables tables_;
  ParameterSet parameters_;
  bool f32_;
  TaskPool* pool_;
  Evaluation evaluation_;
};

} // namespace sparsertc::jacobian
