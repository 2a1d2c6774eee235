// The weights that belong to a compiled layer, read from a file.
#pragma once

#include "compiler/input/matrix.h"
#include "runtime/plan/plan_manifest.h"

#include <string>

namespace sparsertc {

/// Reads the matrix (or the filters of a convolution, laid out as the layer has them) whose pattern
/// is that of the bundle `bundle` with this manifest. `tensor`: which one of the file; may be
/// empty. Throws UserError where the file cannot be read, has no values, has entries elsewhere than
/// the bundle, or has a value that is too large for the bundle's type.
Matrix read_bundle_weights(const std::string& path, const std::string& tensor,
                           const PlanManifest& manifest, const std::string& bundle);

/// Throws the last three of these for weights that have been read already, laid out as the layer
/// has them; `path` is their name.
void check_bundle_weights(const Matrix& weights, const std::string& path,
                          const PlanManifest& manifest, const std::string& bundle);

} // namespace sparsertc
