// JSON that a user wrote: parsed with the place of what is wrong.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace sparsertc {

/// The text as JSON, objects in the order of the text. UserError with its place where it is none,
/// where a number is too large for float64, where a key is given twice, which a plain parser would
/// not notice, and where it is nested so deeply that walking over it could take the whole stack.
nlohmann::ordered_json parse_json_text(std::span<const uint8_t> text, const std::string& path);

} // namespace sparsertc
