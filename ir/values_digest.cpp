#include "ir/values_digest.h"

#include "ir/sha256.h"

namespace sparsertc {

std::string values_digest(std::span<const double> values) {
  Sha256 hash;
  hash.add(std::string_view("sparsertc values 1\n"));
  hash.add(values.data(), values.size_bytes());
  return hash.hex();
}

} // namespace sparsertc
