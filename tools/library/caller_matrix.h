// What comes from the caller of the C API, checked and copied, and what goes back to him.
#pragma once

#include "compiler/input/matrix.h"
#include "tools/library/sparsertc_compiler.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparsertc {

/// A copy. UsageError where the arrays are none of a matrix in compressed rows. `numbers`: which
/// types of values may be.
enum class MatrixNumbers : uint8_t {
  real,
  real_or_complex_or_none ///< a null pointer gives the pattern alone
};
Matrix to_matrix(const sparsertc_matrix& given, MatrixNumbers numbers);

/// "name=value flag ..." in pieces. UsageError for a name that comes twice.
std::vector<std::pair<std::string, std::optional<std::string>>> split_words(std::string_view text);

/// Memory of the caller's, to be given back by sparsertc_compiler_release.
void hand_out(const std::vector<uint8_t>& bundle, sparsertc_compiled& compiled);

} // namespace sparsertc
