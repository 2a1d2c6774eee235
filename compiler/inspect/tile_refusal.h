// What is said of a tile that cannot be.
#pragma once

#include "ir/error.h"

#include <string>
#include <utility>

namespace sparsertc {

/// The words of --tile, or what the compiler would choose, do not fit the problem.
class TileRefusal : public UsageError {
public:
  TileRefusal(std::string reason, const std::string& way_out)
      : UsageError("--tile: " + reason, way_out), reason_(std::move(reason)) {}
  /// The message alone: "strategy=panels needs a fixed number of columns".
  const std::string& reason() const { return reason_; }

private:
  std::string reason_;
};

[[noreturn]] inline void refuse_tile(const std::string& reason, const std::string& way_out) {
  throw TileRefusal(reason, way_out);
}

} // namespace sparsertc
