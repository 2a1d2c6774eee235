// A residual's program compiled by NVRTC and loaded into the GPU.
#pragma once

#include "runtime/bundle/cache.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/jacobian/residual_program.h"

#include <memory>
#include <string>
#include <vector>

namespace sparsertc::jacobian {

/// Machine code of `program` (program.h) for "sm_90", say; from the cache where that is not null
/// and has it. UserError for mistakes in the user's text.
std::vector<uint8_t> compile_for_gpu(const cuda::Nvrtc& nvrtc, const std::string& target,
                                     const std::string& program, const ResidualSource& source,
                                     Cache* cache);

/// "sm_90": the machine code that this GPU runs.
std::string gpu_target(const cuda::Context& context);

class GpuProgram : public ResidualProgram {
public:
  /// `context` must outlive it.
  GpuProgram(const cuda::Context& context, std::span<const uint8_t> image,
             const ResidualSource& source, const ParameterSet& parameters, bool batch,
             bool f32 = false);

  std::unique_ptr<ProgramMemory> allocate(uint64_t bytes) const override;
  void run(const std::string& entry, const ProgramCall& call) const override;

  cuda::Kernel kernel(const std::string& entry) const { return module_.kernel(entry); }
  /// One launch of the call, with these words in the place of its own.
  void enqueue(const cuda::Kernel& kernel, const ProgramCall& call, std::span<const uint64_t> words,
               const cuda::Stream& stream) const;
  /// Waits, and throws where the user's code went wrong since the last time.
  void check(const cuda::Stream& stream) const;
  const cuda::Context& context() const { return context_; }
  bool is_batch() const { return batch_; }

private:
  const cuda::Context& context_;
  ResidualSource source_;
  ParameterSet names_; ///< without values
  bool batch_;
  uint32_t number_bytes_;
  cuda::Module module_;
  cuda::Kernel take_status_;
  cuda::Stream stream_;
  cuda::DeviceBuffer status_;
};

} // namespace sparsertc::jacobian
