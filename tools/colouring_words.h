// The words in which a user says how to colour, for `colour` and `jacobian`.
#pragma once

#include "compiler/pattern/colouring.h"

#include <string>

namespace sparsertc {

inline constexpr char kColouringOrderHelp[] =
    "Of colouring: natural, largest-first, smallest-last, incidence-degree";

/// What --order says.
ColouringOrder choose_colouring_order(const std::string& word);
/// What --side says.
ColouringSide choose_colouring_side(const std::string& word);

} // namespace sparsertc
