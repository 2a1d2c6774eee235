// The check behind `sparsertc opt --verify-expected`, for tests of the parser and the verifier.
#pragma once

#include <string>
#include <string_view>

namespace sparsertc {

/// Every comment `// expected-error: TEXT` in the .sir text must be met by an error on its line
/// whose message contains TEXT, and every error by such a comment; several "expected-error:" may
/// share a comment. Returns one line for each that is missing or too many, empty if all agree. A
/// syntax error ends the parsing, so it is the only error of its file.
std::string check_expected_errors(std::string_view text, const std::string& file);

} // namespace sparsertc
