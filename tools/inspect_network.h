// sparsertc inspect of a network, or of a bundle: its layers in a table.
#pragma once

#include "tools/options.h"

#include <string>

namespace sparsertc {

/// The layers that a network's file describes, as they would be compiled for `target` (empty: the
/// file's). Prints the report.
int inspect_network_file(const std::string& path, const std::string& target, unsigned jobs,
                         bool json);

/// What a bundle holds, of one layer or of several. Prints the report.
int inspect_bundle(const std::string& path, bool json);

} // namespace sparsertc
