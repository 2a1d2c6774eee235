#include "compiler/assemble/assembler_chain.h"

#include "compiler/assemble/outcome.h"
#include "ir/error.h"

namespace sparsertc {

std::unique_ptr<AssemblerChain> AssemblerChain::find(std::vector<AssemblerCandidate> candidates,
                                                     std::vector<std::string>& refused) {
  std::unique_ptr<AssemblerChain> chain(new AssemblerChain);
  for (AssemblerCandidate& candidate : candidates)
    chain->links_.emplace_back().candidate = std::move(candidate);
  for (Link& link : chain->links_)
    if (chain->open(link) != nullptr)
      return chain;
  for (const Link& link : chain->links_)
    refused.insert(refused.end(), link.refused.begin(), link.refused.end());
  return nullptr;
}

const Assembler* AssemblerChain::open(Link& link) const {
  const std::lock_guard lock(mutex_);
  if (!link.opened) {
    link.assembler = link.candidate.open(link.refused);
    link.opened = true;
  }
  return link.assembler.get();
}

std::string AssemblerChain::identity() const {
  for (Link& link : links_)
    if (const Assembler* assembler = open(link))
      return assembler->identity();
  throw InternalError("a chain of assemblers without any");
}

Assembled AssemblerChain::assemble(const AssembleRequest& request) const {
  std::vector<std::string> reasons;
  for (Link& link : links_) {
    const Assembler* assembler = open(link);
    if (assembler == nullptr) {
      reasons.insert(reasons.end(), link.refused.begin(), link.refused.end());
      continue;
    }
    try {
      return assembler->assemble(request);
    } catch (const RuntimeError& error) {
      throw_if_stopped(request);
      // With one candidate alone its own message is all there is to say.
      if (links_.size() == 1)
        throw;
      reasons.push_back(as_reason(link.candidate.name, error, true));
    }
  }
  std::string text = "no assembler takes it";
  for (const std::string& reason : reasons)
    text += "\n  " + reason;
  throw RuntimeError("assembling PTX for " + request.target, text);
}

} // namespace sparsertc
