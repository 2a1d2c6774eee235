#include "compiler/input/text_cursor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace sparsertc {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// The decimal exponent of the leading non-zero digit of a decimal number, clamped to +-10^9: says
/// whether a number out of float64's range is too large or too small.
int64_t decimal_magnitude(std::string_view token) {
  constexpr int64_t kClamp = 1'000'000'000;
  const size_t exponent_at = std::min(token.find_first_of("eE"), token.size());
  int64_t exponent = 0;
  if (exponent_at < token.size()) {
    size_t i = exponent_at + 1;
    const bool negative = i < token.size() && token[i] == '-';
    if (i < token.size() && (token[i] == '-' || token[i] == '+'))
      ++i;
    for (; i < token.size() && is_digit(token[i]); ++i)
      exponent = std::min(exponent * 10 + (token[i] - '0'), kClamp);
    if (negative)
      exponent = -exponent;
  }
  int64_t before_point = 0;
  int64_t zeros_after_point = 0;
  bool significant = false;
  bool point = false;
  for (const char c : token.substr(0, exponent_at)) {
    if (c == '.') {
      point = true;
    } else if (is_digit(c)) {
      significant = significant || c != '0';
      before_point += significant && !point;
      zeros_after_point += !significant && point;
    }
  }
  return exponent + (before_point > 0 ? before_point - 1 : -zeros_after_point - 1);
}

} // namespace

std::string printable(std::string_view text) {
  constexpr size_t kShown = 64;
  std::string shown;
  for (const char c : text.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7f)
      shown += c;
    else
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  if (text.size() > kShown)
    shown += "...";
  return shown;
}

void TextCursor::skip_line() {
  const void* newline = at_end() ? nullptr : std::memchr(here_, '\n', bytes_left());
  here_ = newline == nullptr ? end_ : static_cast<const char*>(newline) + 1;
}

void TextCursor::skip_empty_lines(char comment) {
  for (;;) {
    skip_blanks();
    if (at_end())
      return;
    if (*here_ == '\n')
      ++here_;
    else if (comment != '\0' && *here_ == comment)
      skip_line();
    else
      return;
  }
}

bool TextCursor::take(char character) {
  skip_blanks();
  if (at_end() || *here_ != character)
    return false;
  ++here_;
  return true;
}

std::string_view TextCursor::peek_token() const {
  const char* stop = here_;
  while (!token_ended(stop))
    ++stop;
  return {here_, static_cast<size_t>(stop - here_)};
}

std::string_view TextCursor::take_token() {
  skip_blanks();
  const std::string_view token = peek_token();
  here_ += token.size();
  return token;
}

uint64_t TextCursor::take_unsigned(const char* what, uint64_t maximum) {
  skip_blanks();
  const char* const start = here_;
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(here_, end_, value);
  if (error == std::errc::result_out_of_range)
    fail(start, fmt::format("expected {}, found {}, which does not fit in 64 bits", what,
                            found_at(start)));
  if (error != std::errc() || !token_ended(stop)) {
    if (start != end_ && *start == '-' && start + 1 != end_ && is_digit(start[1]))
      fail(start, fmt::format("expected {}, found {}, which is negative", what, found_at(start)));
    fail(start, fmt::format("expected {} (a whole number), found {}", what, found_at(start)));
  }
  if (value > maximum)
    fail(start, fmt::format("expected {}, found {}, but at most {} is possible{}", what, value,
                            maximum, maximum == (uint64_t{1} << 31) - 1 ? " (31 bits)" : ""));
  here_ = stop;
  return value;
}

double TextCursor::take_integer(const char* what) {
  skip_blanks();
  const char* const start = here_;
  const char* digits = here_;
  if (digits != end_ && *digits == '+' && digits + 1 != end_ && is_digit(digits[1]))
    ++digits;
  int64_t value = 0;
  auto [stop, error] = std::from_chars(digits, end_, value);
  double result = static_cast<double>(value);
  if (error == std::errc::result_out_of_range) {
    uint64_t large = 0;
    const auto second = std::from_chars(digits, end_, large);
    if (second.ec != std::errc())
      fail(start, fmt::format("expected {}, found {}, which does not fit in 64 bits", what,
                              found_at(start)));
    stop = second.ptr;
    result = static_cast<double>(large);
  } else if (error != std::errc()) {
    stop = start;
  }
  if (stop == start || !token_ended(stop))
    fail(start, fmt::format("expected {} (a whole number), found {}", what, found_at(start)));
  here_ = stop;
  return result;
}

double TextCursor::take_real(const char* what) {
  skip_blanks();
  const char* const start = here_;
  const char* digits = here_;
  if (digits != end_ && *digits == '+' && digits + 1 != end_ && digits[1] != '-')
    ++digits;
  double value = 0;
  const auto [stop, error] = std::from_chars(digits, end_, value);
  if (error == std::errc::invalid_argument || !token_ended(stop)) {
    const bool fortran = error == std::errc() && (*stop == 'D' || *stop == 'd');
    fail(start, fmt::format("expected {} (a number), found {}", what, found_at(start)),
         fortran ? "write the exponent with 'e', not 'd'" : "");
  }
  if (error == std::errc::result_out_of_range || (std::isinf(value) && is_digit(stop[-1]))) {
    if (decimal_magnitude({digits, static_cast<size_t>(stop - digits)}) > 0)
      fail(start, fmt::format("expected {}, found {}, which is too large for float64", what,
                              found_at(start)));
    value = *digits == '-' ? -0.0 : 0.0;
  }
  here_ = stop;
  return value;
}

void TextCursor::expect_line_end(const char* what) {
  skip_blanks();
  if (!at_line_end())
    fail(here_,
         fmt::format("expected the end of the line after {}, found {}", what, found_at(here_)));
  if (!at_end())
    ++here_;
}

void TextCursor::expect_end(const char* what, char comment) {
  skip_empty_lines(comment);
  if (!at_end())
    fail(here_,
         fmt::format("expected the end of the file after {}, found {}", what, found_at(here_)));
}

void TextCursor::fail(const char* where, const std::string& message,
                      const std::string& way_out) const {
  throw UserError(place_of(where), message, way_out);
}

std::string TextCursor::found_at(const char* where) const {
  if (where == end_)
    return "the end of the file";
  if (*where == '\n')
    return "the end of the line";
  const char* stop = where;
  // A separator is a token of its own.
  do
    ++stop;
  while (!token_ended(stop) && !separates(*where));
  return fmt::format("'{}'", printable({where, static_cast<size_t>(stop - where)}));
}

Place TextCursor::place_of(const char* where) const {
  const auto line = std::count(begin_, where, '\n') + 1;
  const char* line_start = where;
  while (line_start != begin_ && line_start[-1] != '\n')
    --line_start;
  return Place::text(name_, static_cast<uint64_t>(line),
                     static_cast<uint64_t>(where - line_start) + 1);
}

} // namespace sparsertc
