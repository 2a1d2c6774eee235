// ptxas and nvlink of a CUDA toolkit as subprocesses.
#pragma once

#include "compiler/assemble/assembler.h"

#include <memory>

namespace sparsertc {

class Ptxas : public Assembler {
public:
  /// Looks for ptxas: SPARSERTC_PTXAS (a file), then CUDA_PATH/bin, PATH, /usr/local/cuda/bin;
  /// nvlink is expected beside it. Null where there is none or it does not run; the reason is then
  /// added to `refused`.
  static std::unique_ptr<Ptxas> find(std::vector<std::string>& refused);

  std::string identity() const override { return "ptxas " + version_; }
  Assembled assemble(const AssembleRequest& request) const override;

  const std::string& path() const { return ptxas_; }

private:
  Ptxas() = default;
  std::string ptxas_;
  std::string nvlink_;
  std::string version_;
};

} // namespace sparsertc
