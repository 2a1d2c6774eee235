// The name of a list of values in manifests and cache keys.
#pragma once

#include <span>
#include <string>

namespace sparsertc {

/// SHA-256 of "sparsertc values 1\n" and the little-endian bytes of the float64 values.
std::string values_digest(std::span<const double> values);

} // namespace sparsertc
