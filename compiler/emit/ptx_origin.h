// From a line of PTX back to what it was emitted for.
#pragma once

#include "compiler/emit/ptx.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace sparsertc {

/// "row 3, column 5": the origin of the operation behind a line (from 1) of a unit of
/// emit_ptx_units(module, target, options); empty where the line has none. All units are emitted
/// anew, with the origins as comments, which change no line's number: the way back costs nothing
/// until it is asked for.
std::string ptx_origin(const ir::Module& module, const Target& target, PtxOptions options,
                       size_t unit, uint64_t line);

} // namespace sparsertc
