#include "compiler/emit/ptx_text.h"

#include <algorithm>
#include <utility>

namespace sparsertc {

void PtxBuffer::grow(size_t bytes) {
  const size_t used = size();
  storage_.resize(std::max<size_t>({used + bytes, 2 * storage_.size(), 4096}));
  end_ = storage_.data() + used;
  limit_ = storage_.data() + storage_.size();
}

std::string PtxBuffer::take() {
  storage_.resize(size());
  std::string text = std::exchange(storage_, {});
  end_ = limit_ = storage_.data();
  return text;
}

} // namespace sparsertc
