// The walk of a tile's code through B in shared memory: a ring of `prefetch` chunks, filled ahead
// by asynchronous copies. All threads of the block copy, so every tile walks through all chunks.
#pragma once

#include "ir/builder.h"

#include <cstdint>
#include <functional>
#include <utility>

namespace sparsertc {

class StagedChunks {
public:
  /// `copy` writes the copies of a chunk; its group is closed here. At least two are in flight.
  StagedChunks(ir::Builder& builder, uint32_t chunks, uint32_t prefetch,
               std::function<void(uint32_t)> copy)
      : builder_(builder), chunks_(chunks), prefetch_(prefetch), copy_(std::move(copy)) {
    for (uint32_t chunk = 0; chunk + 1 < prefetch_; ++chunk)
      start(chunk);
  }

  /// Waits for chunk `chunk`; those before it may be overwritten then.
  void enter(uint32_t chunk) {
    while (next_ <= chunk) {
      builder_.clear_origin();
      builder_.copy_wait(prefetch_ - 2);
      builder_.barrier();
      start(next_ + prefetch_ - 1);
      ++next_;
    }
  }
  /// The rest of the chunks: the other tiles of the block wait for this one's copies.
  void finish() {
    if (chunks_ != 0)
      enter(chunks_ - 1);
  }
  uint32_t slot(uint32_t chunk) const { return chunk % prefetch_; }

private:
  void start(uint32_t chunk) {
    if (chunk < chunks_)
      copy_(chunk);
    builder_.copy_commit();
  }

  ir::Builder& builder_;
  uint32_t chunks_, prefetch_;
  std::function<void(uint32_t)> copy_;
  uint32_t next_ = 0; ///< chunk to enter next
};

} // namespace sparsertc
