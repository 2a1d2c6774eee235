// A user's residual as text: what is found in it before it is compiled, and the limit on its loops.
#pragma once

#include "ir/error.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sparsertc::jacobian {

/// CUDA C++ with a function template `residual` (README.md).
struct ResidualSource {
  std::string name; ///< of the file, as messages call it
  std::string text;
};

/// Iterations that one execution of a loop may take, unless the user says otherwise.
inline constexpr uint32_t kDefaultLoopLimit = 1u << 24;

/// The line (from 1) where the name `residual` is first followed by a parenthesis. UserError where
/// it never is: the file has no residual.
uint64_t line_of_residual(const ResidualSource& source);

/// The place of the last brace, bracket or parenthesis that nothing closes. For text that did not
/// compile: what #if and #else choose between is counted as if all of it stood there.
std::optional<Place> unclosed_bracket(const ResidualSource& source);

/// Whether the name `sum_over` stands in the text: tasks can be shared by threads then.
bool has_sums(const ResidualSource& source);

/// The text with every for, while and do made to count its iterations (LoopLimit of
/// runtime/kernels/residual_numbers.cuh); lines stay where they were. A loop without a limit cannot
/// be ended on a GPU. UserError for loops made by goto, and for a `do` whose body has no braces.
std::string limit_loops(const ResidualSource& source);

} // namespace sparsertc::jacobian
