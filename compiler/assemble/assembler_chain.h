// Several assemblers as one: the first that can, does.
#pragma once

#include "compiler/assemble/assembler.h"

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sparsertc {

/// One that may be there.
struct AssemblerCandidate {
  std::string name; ///< "ptxas"
  /// Looks for it. Null where it is not there; the reason, with the name, is then added to
  /// `refused`.
  std::function<std::unique_ptr<Assembler>(std::vector<std::string>& refused)> open;
};

/// Tries its candidates in their order. One that is not there, or refuses a request (RuntimeError:
/// it does not know the target or the PTX version, it cannot start), is passed over; why is kept
/// for the message, should none be left. An InternalError is reported at once: an assembler that
/// could judge our PTX has found fault with it.
///
/// Candidates are looked for when their turn comes first: opening the GPU's driver, say, takes a
/// quarter of a second, and most often nobody needs it.
class AssemblerChain : public Assembler {
public:
  /// Null where none of the candidates is there; the reasons are then added to `refused`.
  static std::unique_ptr<AssemblerChain> find(std::vector<AssemblerCandidate> candidates,
                                              std::vector<std::string>& refused);

  /// Of the first that is there. What another one assembles says so itself (Assembled::assembler),
  /// so a cache belongs behind a chain, around each of its members, and not in front of it.
  std::string identity() const override;
  Assembled assemble(const AssembleRequest& request) const override;

private:
  struct Link {
    AssemblerCandidate candidate;
    bool opened = false;
    std::unique_ptr<Assembler> assembler; ///< null where it is not there
    std::vector<std::string> refused;     ///< why
  };
  AssemblerChain() = default;
  /// The link's assembler, looked for on the first call.
  const Assembler* open(Link& link) const;

  mutable std::mutex mutex_; ///< opening
  mutable std::vector<Link> links_;
};

} // namespace sparsertc
