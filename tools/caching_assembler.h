// An assembler that asks the disk cache first.
#pragma once

#include "compiler/assemble/assembler.h"
#include "runtime/bundle/cache.h"

#include <functional>
#include <mutex>

namespace sparsertc {

/// What the cache's entries are called by: the version of this program, the assembler, its flags,
/// the request's provenance and the digest of its units. (The digest alone would do; the facts let
/// entries be listed.)
CacheKey cache_key(const AssembleRequest& request, const std::string& assembler);

/// The container of a result, without its key: the cubin and, in the manifest, what the assembler
/// said. `from_bundle` is nothing where the bundle is not of this form.
Bundle to_bundle(const Assembled& assembled, const AssembleRequest& request);
std::optional<Assembled> from_bundle(const Bundle& bundle);

class CachingAssembler : public Assembler {
public:
  /// All must outlive this. `tell` gets one line for each request, hit or miss, and `remark` at
  /// most one, when nothing can be kept; either may be empty.
  CachingAssembler(const Assembler& assembler, Cache& cache,
                   std::function<void(const std::string&)> tell,
                   std::function<void(const std::string&)> remark);

  std::string identity() const override { return assembler_.identity(); }
  /// As the assembler's. May be called by several threads at once.
  Assembled assemble(const AssembleRequest& request) const override;

private:
  const Assembler& assembler_;
  Cache& cache_;
  std::function<void(const std::string&)> tell_, remark_;
  mutable std::mutex mutex_; ///< storing and telling
  mutable bool remarked_ = false;
};

} // namespace sparsertc
