// nvJitLink as an assembler: in this process, without files.
#pragma once

#include "compiler/assemble/assembler.h"
#include "runtime/driver/nvjitlink.h"

#include <memory>
#include <string>
#include <vector>

namespace sparsertc {

/// All units go into one link, one after the other; AssembleRequest::jobs has no effect. (README.md
/// says why not on several threads.)
class NvJitLinkAssembler : public Assembler {
public:
  /// Null where nvJitLink is not there or does not work; the reason is then added to `refused`.
  static std::unique_ptr<NvJitLinkAssembler> find(std::vector<std::string>& refused);

  /// Assembles an empty kernel to see which release the library is of. Throws RuntimeError where
  /// it cannot.
  explicit NvJitLinkAssembler(std::shared_ptr<const cuda::NvJitLink> library);

  std::string identity() const override { return "nvJitLink " + version_; }
  Assembled assemble(const AssembleRequest& request) const override;

private:
  Assembled link(const AssembleRequest& request) const;

  std::shared_ptr<const cuda::NvJitLink> library_;
  std::string version_;
};

} // namespace sparsertc
