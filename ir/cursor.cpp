#include "ir/cursor.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc::ir {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

} // namespace

void Cursor::skip_blanks() {
  while (!at_end()) {
    const char c = text_[offset_];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++offset_;
    } else if (c == '/' && offset_ + 1 < text_.size() && text_[offset_ + 1] == '/') {
      const size_t end = text_.find('\n', offset_);
      offset_ = end == std::string_view::npos ? text_.size() : end;
    } else {
      return;
    }
  }
}

void Cursor::skip_lines() {
  for (;;) {
    skip_blanks();
    if (at_end() || text_[offset_] != '\n')
      return;
    ++offset_;
    ++line_;
    line_start_ = offset_;
  }
}

void Cursor::expect(char c, std::string_view where) {
  if (!accept(c))
    fail_expected(fmt::format("'{}' {}", c, where));
}

bool Cursor::accept_word(std::string_view word) {
  skip_blanks();
  const std::string_view rest = text_.substr(offset_);
  if (!rest.starts_with(word) ||
      (rest.size() > word.size() && is_word_character(rest[word.size()])))
    return false;
  offset_ += word.size();
  return true;
}

void Cursor::expect_word(std::string_view word) {
  if (!accept_word(word))
    fail_expected(fmt::format("'{}'", word));
}

void Cursor::expect_line_end() {
  skip_blanks();
  if (!at_line_end())
    fail_expected("the end of the line");
}

void Cursor::expect_dot(std::string_view next) {
  if (peek() != '.')
    fail_expected(fmt::format("'.' and {}", next));
  ++offset_;
}

std::string_view Cursor::take_word() {
  const size_t begin = offset_;
  while (!at_end() && is_word_character(text_[offset_]))
    ++offset_;
  return text_.substr(begin, offset_ - begin);
}

std::string_view Cursor::take_name() {
  const size_t begin = offset_;
  while (!at_end() &&
         (is_word_character(text_[offset_]) || text_[offset_] == '.' || text_[offset_] == '$'))
    ++offset_;
  return text_.substr(begin, offset_ - begin);
}

std::string_view Cursor::take_number() {
  skip_blanks();
  const size_t begin = offset_;
  if (peek() == '-')
    ++offset_;
  while (!at_end() && (is_word_character(text_[offset_]) || text_[offset_] == '.'))
    ++offset_;
  return text_.substr(begin, offset_ - begin);
}

std::string Cursor::take_string() {
  skip_blanks();
  if (peek() != '"')
    fail_expected("a quoted string");
  const TextPosition begin = position();
  ++offset_;
  std::string value;
  for (;;) {
    if (at_line_end())
      fail(begin, "this string is not closed on its line");
    const char c = text_[offset_++];
    if (c == '"')
      return value;
    if (c != '\\') {
      value += c;
      continue;
    }
    const char escape = peek();
    const std::string_view digits = text_.substr(std::min(offset_ + 1, text_.size()), 2);
    const auto hexadecimal = [](char d) {
      return is_digit(d) ? d - '0' : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
    };
    if (escape == '"' || escape == '\\') {
      value += escape;
      ++offset_;
    } else if (escape == 'x' && digits.size() == 2 && hexadecimal(digits[0]) >= 0 &&
               hexadecimal(digits[1]) >= 0) {
      value += static_cast<char>(hexadecimal(digits[0]) * 16 + hexadecimal(digits[1]));
      offset_ += 3;
    } else {
      --offset_;
      fail(position(), "unknown escape in a string", "known ones are \\\", \\\\ and \\xHH");
    }
  }
}

uint64_t Cursor::take_unsigned(std::string_view what, uint64_t limit) {
  skip_blanks();
  if (!is_digit(peek()))
    fail_expected(what);
  const TextPosition begin = position();
  uint64_t value = 0;
  while (is_digit(peek())) {
    const uint64_t digit = static_cast<uint64_t>(text_[offset_] - '0');
    if (value > (limit - digit) / 10 || digit > limit)
      fail(begin, fmt::format("{} is at most {}", what, limit));
    value = value * 10 + digit;
    ++offset_;
  }
  return value;
}

void Cursor::fail(TextPosition position, const std::string& message,
                  const std::string& way_out) const {
  throw UserError(Place::text(file_, position.line, position.column), message, way_out);
}

void Cursor::fail_expected(std::string_view what) const {
  std::string_view rest = text_.substr(offset_);
  if (rest.empty())
    fail_expected(position(), what, {});
  size_t length = 0;
  while (length < rest.size() && (is_word_character(rest[length]) || rest[length] == '.'))
    ++length;
  fail_expected(position(), what, rest.substr(0, length == 0 ? 1 : length));
}

void Cursor::fail_expected(TextPosition position, std::string_view what,
                           std::string_view found) const {
  constexpr size_t kLongest = 40;
  std::string description;
  if (found.empty())
    description = "the end of the text";
  else if (found == "\n")
    description = "the end of the line";
  else if (static_cast<unsigned char>(found.front()) < 0x20 ||
           static_cast<unsigned char>(found.front()) >= 0x7F)
    description = fmt::format("the byte 0x{:02X}", static_cast<unsigned char>(found.front()));
  else if (found.size() > kLongest)
    description = fmt::format("'{}...'", found.substr(0, kLongest));
  else
    description = fmt::format("'{}'", found);
  fail(position, fmt::format("expected {}, found {}", what, description));
}

} // namespace sparsertc::ir
