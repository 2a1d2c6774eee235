// What a function does to the arrays that it is given: which pointer parameters it reads through
// and which it writes through, with all that it calls.
#pragma once

#include "ir/module.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace sparsertc {

struct MemoryEffect {
  bool reads = false;
  bool writes = false;
  bool frees = false;
  /// It writes at least the first so many elements, whatever happens. Seen of host functions that
  /// store to each element in turn, in a loop of constant length that always runs.
  int64_t fills = 0;
};

class MemoryEffects {
public:
  /// The module must outlive this object and keep its functions.
  explicit MemoryEffects(const ir::Module& module)
      : module_(module), known_(module.functions.size()) {}

  /// One for each parameter; nothing for scalars.
  const std::vector<MemoryEffect>& of(uint32_t function);

private:
  MemoryEffect of_parameter(const ir::Function& function, uint32_t parameter);

  const ir::Module& module_;
  std::vector<std::optional<std::vector<MemoryEffect>>> known_;
};

} // namespace sparsertc
