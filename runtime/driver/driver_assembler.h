// The assembler in the GPU's driver: there wherever a GPU is, and no newer than the driver.
#pragma once

#include "compiler/assemble/assembler.h"
#include "runtime/driver/cuda_objects.h"

#include <memory>
#include <string>
#include <vector>

namespace sparsertc {

/// All units go into one link, one after the other; AssembleRequest::jobs has no effect.
class DriverAssembler : public Assembler {
public:
  /// Opens the first GPU. Null where there is none; the reason is then added to `refused`.
  static std::unique_ptr<DriverAssembler> find(std::vector<std::string>& refused);

  explicit DriverAssembler(std::unique_ptr<const cuda::Context> context);

  /// "driver 13.0, 580.82.07": the CUDA version, and the driver's own where the system tells it.
  std::string identity() const override { return identity_; }
  Assembled assemble(const AssembleRequest& request) const override;

private:
  std::unique_ptr<const cuda::Context> context_;
  std::string identity_;
};

} // namespace sparsertc
