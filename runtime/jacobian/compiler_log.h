// What a C++ compiler says about a residual's program, in terms of the user's file.
#pragma once

#include "runtime/jacobian/source.h"

#include <string>

namespace sparsertc::jacobian {

/// Throws the UserError that the log of NVRTC, GCC or Clang amounts to: each error once, at the
/// line of the user's file where it is or which led to it, types under short names. InternalError
/// with the whole log where no error has to do with that file.
[[noreturn]] void throw_compile_error(const std::string& log, const ResidualSource& source);

} // namespace sparsertc::jacobian
