// `sparsertc inspect` of a bundle of sparse LU.
#pragma once

#include "runtime/bundle/bundle.h"

#include <string>

namespace sparsertc {

bool is_lu(const Bundle& bundle);

/// Checks all of its tables and prints what it holds; `path` is for the report and for errors.
int inspect_lu_bundle(const Bundle& bundle, const std::string& path, bool json);

} // namespace sparsertc
