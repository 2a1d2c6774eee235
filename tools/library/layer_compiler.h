// A matrix in memory with all that is needed to compile it again and again, for different tiles.
#pragma once

#include "compiler/pipeline.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

class LayerCompiler {
public:
  /// `words`: those that sparsertc_compiler.h lists. Throws UsageError for one that is wrong.
  LayerCompiler(Matrix weights, std::string_view words);

  /// "" where bundles hold PTX only.
  std::string assembler() const { return assembler_ ? assembler_->identity() : std::string(); }

  /// The bytes of a bundle. `tile` with `registers=`; nothing: the words'. `jobs` of 0: the words'.
  /// Gives up, by a RuntimeError, when `stop` is set, which may be null. May be called by several
  /// threads at once. Throws UsageError for a tile that cannot be, UserError for a weight that
  /// becomes infinite, RuntimeError where the assembler refuses.
  std::vector<uint8_t> compile(const std::optional<std::string>& tile, unsigned jobs,
                               const std::atomic<bool>* stop) const;

private:
  Matrix weights_;
  std::string tile_;
  std::unique_ptr<Assembler> assembler_;
  PipelineOptions pipeline_;
};

} // namespace sparsertc
