// What CLI11 does not check of an option: words that have no effect, numbers that it misreads.
#pragma once

#include <CLI/CLI.hpp>

#include <initializer_list>
#include <string>

namespace sparsertc {

/// UsageError "NAME: MESSAGE" for the first of these options that was given.
void refuse_given(const CLI::App& parser, std::initializer_list<const char*> names,
                  const char* message, const char* way_out);

/// What is wrong with a number that begins `text`, on its way to CLI11, which reads "-1" and what
/// is too large as the largest number; else empty.
std::string unsigned_fault(const std::string& text);

} // namespace sparsertc
