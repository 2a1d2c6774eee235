#include "tools/option_checks.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <system_error>

namespace sparsertc {

void refuse_given(const CLI::App& parser, std::initializer_list<const char*> names,
                  const char* message, const char* way_out) {
  for (const char* name : names)
    if (const CLI::Option* option = parser.get_option_no_throw(name);
        option != nullptr && option->count() != 0)
      throw UsageError(fmt::format("{}: {}", name, message), way_out);
}

std::string unsigned_fault(const std::string& text) {
  if (text.find('-') != std::string::npos)
    return fmt::format("expected a whole number from 0, found \"{}\"", text);
  uint64_t number = 0;
  const std::from_chars_result read =
      std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc::result_out_of_range ? text + " is too large" : std::string();
}

} // namespace sparsertc
