// Small valid inputs of each format, from which mutations start.
#pragma once

#include "compiler/input/read.h"
#include "tests/support/input_files.h"

#include <optional>
#include <vector>

namespace sparsertc::testing {

/// Without a format: inputs whose content decides, gzipped ones among them.
std::vector<Bytes> seed_inputs(std::optional<Format> format);

/// MATPOWER cases.
std::vector<Bytes> power_case_seeds();

} // namespace sparsertc::testing
