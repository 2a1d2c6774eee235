// What every reader promises of any bytes: a consistent matrix, or a UserError.
#pragma once

#include "compiler/input/read.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace sparsertc::testing {

/// Reads the bytes as a matrix, a dense array and a list of tensors, with options drawn from
/// `variant`. Returns what is wrong ("internal error: ...", "row 3: columns do not ascend"), or
/// nothing. Without a format the content decides.
std::optional<std::string> try_readers(std::span<const uint8_t> bytes, std::optional<Format> format,
                                       uint8_t variant);

/// The same for MATPOWER cases: a grid whose generators and branches are at buses that are there.
std::optional<std::string> try_power_case(std::span<const uint8_t> bytes);

} // namespace sparsertc::testing
