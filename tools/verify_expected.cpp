#include "tools/verify_expected.h"

#include "ir/parser.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

namespace sparsertc {
namespace {

struct Remark {
  uint64_t line;
  std::string text;
  bool met = false;
};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos)
    return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<Remark> expected_errors(std::string_view text) {
  constexpr std::string_view kMark = "expected-error:";
  std::vector<Remark> expected;
  uint64_t line = 1;
  while (!text.empty()) {
    const std::string_view present = text.substr(0, text.find('\n'));
    size_t at = present.find("//");
    at = at == std::string_view::npos ? at : present.find(kMark, at);
    while (at != std::string_view::npos) {
      const size_t begin = at + kMark.size();
      at = present.find(kMark, begin);
      expected.push_back({line, std::string(trim(present.substr(begin, at - begin)))});
    }
    text.remove_prefix(std::min(text.size(), present.size() + 1));
    ++line;
  }
  return expected;
}

/// The line in a message that begins with FILE:LINE:COLUMN.
uint64_t line_of(std::string_view message, const std::string& file) {
  uint64_t line = 0;
  if (message.starts_with(file + ":")) {
    message.remove_prefix(file.size() + 1);
    std::from_chars(message.data(), message.data() + message.size(), line);
  }
  return line;
}

} // namespace

std::string check_expected_errors(std::string_view text, const std::string& file) {
  std::vector<Remark> found;
  try {
    ir::SourceMap map;
    const ir::Module module = ir::parse(text, file, &map);
    for (const ir::Violation& violation : ir::verify(module, &map))
      found.push_back({violation.place.line, violation.message});
  } catch (const UserError& error) {
    found.push_back({line_of(error.what(), file), error.what()});
  }
  std::vector<Remark> expected = expected_errors(text);
  for (Remark& wanted : expected) {
    for (Remark& error : found) {
      if (!error.met && error.line == wanted.line &&
          error.text.find(wanted.text) != std::string::npos) {
        error.met = wanted.met = true;
        break;
      }
    }
  }
  std::string report;
  for (const Remark& wanted : expected)
    if (!wanted.met)
      report += fmt::format("{}:{}: expected an error with '{}', found none\n", file, wanted.line,
                            wanted.text);
  for (const Remark& error : found)
    if (!error.met)
      report += fmt::format("{}:{}: unexpected error: {}\n", file, error.line, error.text);
  return report;
}

} // namespace sparsertc
