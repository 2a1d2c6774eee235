// A user's residual as a system on the GPU.
#pragma once

#include "runtime/jacobian/evaluation.h"
#include "runtime/jacobian/gpu_program.h"
#include "runtime/jacobian/gpu_system.h"

#include <memory>
#include <vector>

namespace sparsertc::jacobian {

class CompiledGpuSystem : public GpuSystem {
public:
  /// `program` has the evaluation entries that the tables need (program.h), with options.batch
  /// where `instances` is more than 1 or a parameter varies. `by_row`: the residual's form;
  /// `f32_values`: the program's ProgramOptions::f32_values; `read_ahead`: what it was made for.
  CompiledGpuSystem(std::shared_ptr<const GpuProgram> program, JacobianTables tables,
                    ParameterSet parameters, uint64_t instances, bool by_row, bool f32,
                    bool f32_values = false, const std::optional<ReadAhead>& read_ahead = {});

  uint64_t instances() const override { return instances_; }
  uint32_t number_bytes() const override { return f32_ ? 4 : 8; }
  uint32_t value_bytes() const override { return f32_ || f32_values_ ? 4 : 8; }
  const JacobianPattern& pattern() const override { return tables_.pattern; }
  void residual(cuda::DeviceAddress x, cuda::DeviceAddress f,
                const cuda::Stream& stream) const override;
  void jacobian(cuda::DeviceAddress x, cuda::DeviceAddress values,
                const cuda::Stream& stream) const override;
  /// In a batch of a residual by row.
  bool evaluates_together() const override { return evaluates_together_; }
  void evaluate(cuda::DeviceAddress x, cuda::DeviceAddress f, cuda::DeviceAddress values,
                const cuda::Stream& stream) const override;
  void product(cuda::DeviceAddress x, cuda::DeviceAddress v, cuda::DeviceAddress y,
               const cuda::Stream& stream) const override;
  void check(const cuda::Stream& stream) const override;

  /// Enqueues a kernel that only writes numbers to the places of the values: what the time of
  /// jacobian() is compared with. The program must have the entry (kWriteEntry).
  void write_values(cuda::DeviceAddress values, const cuda::Stream& stream) const;

  /// The kernels of jacobian(), one for each width.
  std::vector<cuda::Kernel> jacobian_kernels() const;

private:
  struct Launch {
    Evaluation::Call call;
    cuda::Kernel kernel;
  };
  Launch prepared(Evaluation::Call call) const;
  /// `second`: the call's other vector, where it has one: second_word.
  void enqueue(const Launch& launch, cuda::DeviceAddress x, cuda::DeviceAddress result,
               cuda::DeviceAddress second, const cuda::Stream& stream) const;

  std::shared_ptr<const GpuProgram> program_;
  JacobianTables tables_;
  ParameterSet parameters_;
  uint64_t instances_;
  bool f32_, f32_values_;
  Evaluation evaluation_;
  cuda::DeviceBuffer product_work_, jacobian_work_;
  Launch residual_, product_;
  std::vector<Launch> jacobian_;
  bool evaluates_together_;
};

} // namespace sparsertc::jacobian
