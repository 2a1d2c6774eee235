// A place in .sir text that moves forward. Internal to the parser.
#pragma once

#include "ir/source_map.h"

#include <string>
#include <string_view>

namespace sparsertc::ir {

class Cursor {
public:
  Cursor(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  /// Blanks and comments up to the end of the line.
  void skip_blanks();
  /// Blanks, comments and line ends.
  void skip_lines();

  bool at_end() const { return offset_ == text_.size(); }
  bool at_line_end() const { return at_end() || text_[offset_] == '\n'; }
  /// '\0' at the end of the text.
  char peek() const { return at_end() ? '\0' : text_[offset_]; }
  /// The character after the next one.
  char next() const { return offset_ + 1 < text_.size() ? text_[offset_ + 1] : '\0'; }
  TextPosition position() const {
    return {line_, static_cast<uint32_t>(offset_ - line_start_ + 1)};
  }

  /// Skips blanks, then takes `c` if it comes next.
  bool accept(char c) {
    skip_blanks();
    if (peek() != c || at_end())
      return false;
    ++offset_;
    return true;
  }
  void expect(char c, std::string_view where);
  /// Skips blanks, then takes the word if it comes next as a whole.
  bool accept_word(std::string_view word);
  void expect_word(std::string_view word);
  void expect_line_end();
  /// The dot that must follow at once.
  void expect_dot(std::string_view next);

  /// Letters, digits and '_' from here on; may be empty.
  std::string_view take_word();
  /// Characters of names: those of words, '.' and '$'.
  std::string_view take_name();
  /// Characters of numbers, with the sign: [-0-9A-Za-z.].
  std::string_view take_number();
  /// A quoted string with its escapes resolved.
  std::string take_string();
  /// A decimal number up to `limit`; `what` names it in messages.
  uint64_t take_unsigned(std::string_view what, uint64_t limit);

  [[noreturn]] void fail(TextPosition position, const std::string& message,
                         const std::string& way_out = {}) const;
  /// "expected WHAT, found ...", at the present place.
  [[noreturn]] void fail_expected(std::string_view what) const;
  /// The same at an earlier place of this line, where `found` stood.
  [[noreturn]] void fail_expected(TextPosition position, std::string_view what,
                                  std::string_view found) const;

private:
  std::string_view text_;
  const std::string& file_;
  size_t offset_ = 0;
  size_t line_start_ = 0;
  uint32_t line_ = 1;
};

} // namespace sparsertc::ir
