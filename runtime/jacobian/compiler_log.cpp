#include "runtime/jacobian/compiler_log.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace sparsertc::jacobian {
namespace {

constexpr size_t kMostErrors = 10;

struct Located {
  uint64_t line = 0;
  uint64_t column = 1;
  std::string message;
};

std::optional<uint64_t> take_number(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc())
    return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view what) {
  if (text.substr(0, what.size()) != what)
    return false;
  text.remove_prefix(what.size());
  return true;
}

/// "FILE(12): error: no" or "FILE:12:3: error: no": place and the rest, of this file.
std::optional<Located> located(std::string_view text, const std::string& file) {
  Located found;
  if (!take(text, file))
    return std::nullopt;
  if (take(text, "(")) {
    const std::optional<uint64_t> line = take_number(text);
    if (!line || !take(text, "): "))
      return std::nullopt;
    found.line = *line;
  } else {
    if (!take(text, ":"))
      return std::nullopt;
    const std::optional<uint64_t> line = take_number(text);
    if (!line || !take(text, ":"))
      return std::nullopt;
    found.line = *line;
    if (const std::optional<uint64_t> column = take_number(text)) {
      found.column = *column;
      if (!take(text, ":"))
        return std::nullopt;
    }
    take(text, " ");
  }
  found.message = std::string(text);
  return found;
}

/// The text of an error line, wherever it is, or nothing.
std::optional<std::string> error_text(const std::string& line) {
  for (const std::string_view word : {": fatal error: ", ": error: ", ": catastrophic error: "}) {
    const size_t at = line.find(word);
    if (at != std::string::npos)
      return line.substr(at + word.size());
  }
  return std::nullopt;
}

/// "... at line 12 of FILE".
std::optional<uint64_t> led_from(const std::string& line, const std::string& file) {
  const std::string_view words = "at line ";
  const size_t at = line.rfind(words);
  if (at == std::string::npos)
    return std::nullopt;
  std::string_view rest = std::string_view(line).substr(at + words.size());
  const std::optional<uint64_t> number = take_number(rest);
  return number && rest == " of " + file ? number : std::nullopt;
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

/// Our types under the names that the README uses: Dual<...> is Dual.
std::string shortened(std::string text) {
  replace_all(text, "sparsertc::", "");
  for (size_t at = text.find("Dual<"); at != std::string::npos; at = text.find("Dual<", at + 4)) {
    size_t end = at + 5, depth = 1;
    while (end < text.size() && depth > 0) {
      depth += text[end] == '<' ? 1 : 0;
      depth -= text[end] == '>' ? 1 : 0;
      ++end;
    }
    text.replace(at, end - at, "Dual");
  }
  replace_all(text, "Dual >", "Dual>");
  return text;
}

std::vector<std::string> lines_of(const std::string& log) {
  std::vector<std::string> lines;
  size_t at = 0;
  while (at < log.size()) {
    const size_t end = std::min(log.find('\n', at), log.size());
    lines.push_back(log.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// The errors in terms of the user's file, in the log's order.
std::vector<Located> user_errors(const std::string& log, const std::string& file) {
  std::vector<Located> errors;
  const std::vector<std::string> lines = lines_of(log);
  std::optional<Located> led; // GCC: "FILE:12:3:   required from here" stands before its error
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::optional<Located> here = located(lines[i], file);
    if (here && here->message.find("required from") != std::string::npos)
      led = here;
    const std::optional<std::string> text = error_text(lines[i]);
    if (!text)
      continue;
    Located error;
    error.message = *text;
    bool found = here.has_value();
    if (found) {
      error.line = here->line;
      error.column = here->column;
    } else if (led) {
      error.line = led->line;
      error.column = led->column;
      found = true;
    }
    led.reset();
    // NVRTC: what belongs to the error is indented below it.
    for (size_t k = i + 1; k < lines.size() && !error_text(lines[k]); ++k) {
      if (lines[k].find(" types are: ") != std::string::npos) {
        const size_t first = lines[k].find_first_not_of(' ');
        error.message += "; " + lines[k].substr(first);
      }
      const std::optional<uint64_t> from = led_from(lines[k], file);
      if (!found && from) {
        error.line = *from;
        found = true;
      }
    }
    error.message = shortened(error.message);
    const bool known = std::any_of(errors.begin(), errors.end(), [&](const Located& other) {
      return other.line == error.line && other.message == error.message;
    });
    if (found && !known)
      errors.push_back(std::move(error));
  }
  return errors;
}

} // namespace

void throw_compile_error(const std::string& log, const ResidualSource& source) {
  if (log.find("SPARSERTC_NO_SIGNATURE") != std::string::npos)
    throw UserError(
        Place::text(source.name, line_of_residual(source), 1),
        "`residual` cannot be called as it should be",
        "write `template <class T> __device__ void residual(Row i, Unknowns<T> x, const "
        "Parameters& p, T& f)` or `template <class T> __device__ void residual(Unknowns<T> x, "
        "const Parameters& p, Residuals<T> f)`");
  const std::vector<Located> errors = user_errors(log, source.name);
  if (errors.empty()) {
    // The compiler complains about the text behind the file.
    if (const std::optional<Place> place = unclosed_bracket(source))
      throw UserError(*place, "nothing closes what is opened here");
    throw InternalError(
        fmt::format("the program around {} does not compile:\n{}", source.name, log));
  }
  std::string message = errors[0].message;
  for (size_t i = 1; i < std::min(errors.size(), kMostErrors); ++i)
    message += fmt::format("\n{}: error: {}",
                           Place::text(source.name, errors[i].line, errors[i].column).describe(),
                           errors[i].message);
  const bool unknown_function = message.find("Dual") != std::string::npos;
  throw UserError(Place::text(source.name, errors[0].line, errors[0].column), message,
                  unknown_function
                      ? "Dual is a number with derivatives: the operators and the functions of "
                        "runtime/jacobian/README.md take it, called without std::; value_of(a) is "
                        "its value alone"
                      : "");
}

} // namespace sparsertc::jacobian
