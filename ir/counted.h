// Numbers of things in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsertc {

/// "1 thread", "2 threads", "0 threads"; `plural` where it is not the noun with an s.
inline std::string counted(uint64_t count, std::string_view noun, std::string_view plural = {}) {
  std::string text = std::to_string(count) + " ";
  if (count == 1)
    return text.append(noun);
  return plural.empty() ? text.append(noun).append("s") : text.append(plural);
}

} // namespace sparsertc
