// Reading numbers from a text in memory, with the place of everything that is not as expected.
#pragma once

#include "ir/error.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsertc {

/// Text of a hostile file for a message: at most 64 characters, those that a terminal might obey
/// written as "\x1b", "..." where something was left out.
std::string printable(std::string_view text);

/// A position in a text. Blanks are spaces, tabs and carriage returns; tokens end at blanks, line
/// ends and the separators, a `,` unless the caller says others. Line and column are counted only
/// when an error asks for them, so reading costs no bookkeeping. Text and separators must outlive
/// the cursor.
class TextCursor {
public:
  TextCursor(std::string_view text, std::string name, std::string_view separators = ",")
      : begin_(text.data()), here_(text.data()), end_(text.data() + text.size()),
        name_(std::move(name)), separators_(separators) {}

  const char* here() const { return here_; }
  void go_to(const char* where) { here_ = where; }
  bool at_end() const { return here_ == end_; }
  bool at_line_end() const { return here_ == end_ || *here_ == '\n'; }
  uint64_t bytes_left() const { return static_cast<uint64_t>(end_ - here_); }
  const std::string& name() const { return name_; }

  void skip_blanks() {
    while (here_ != end_ && is_blank(*here_))
      ++here_;
  }
  /// To the beginning of the next line, or the end.
  void skip_line();
  /// Over blanks and empty lines; and over lines that begin with `comment`, unless that is '\0'.
  void skip_empty_lines(char comment = '\0');
  /// Past `character`, after blanks; true if it was there.
  bool take(char character);

  /// The token at the place (it may be empty). Does not move.
  std::string_view peek_token() const;
  /// The token after blanks; moves past it.
  std::string_view take_token();

  /// A whole number from 0 to `maximum`, after blanks. `what` names it in errors ("a row index").
  uint64_t take_unsigned(const char* what, uint64_t maximum);
  /// A whole number, signed, to the nearest float64; must fit 64 bits (signed or unsigned).
  double take_integer(const char* what);
  /// A decimal number to the nearest float64; "nan" and "inf" are read as such. A number too large
  /// for float64 is an error, one too small becomes a zero.
  double take_real(const char* what);

  /// Only blanks may be left in this line; moves to the next. `what` says what is complete.
  void expect_line_end(const char* what);
  /// Only blanks and empty lines (and comments) may be left in the text.
  void expect_end(const char* what, char comment = '\0');

  [[noreturn]] void fail(const char* where, const std::string& message,
                         const std::string& way_out = {}) const;
  /// What stands at `where`, for messages: a quoted token, "the end of the line", "... file".
  std::string found_at(const char* where) const;
  /// Line and column (1-based, in bytes) of `where`.
  Place place_of(const char* where) const;

private:
  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  bool separates(char c) const { return separators_.find(c) != std::string_view::npos; }
  bool ends_token(char c) const { return is_blank(c) || c == '\n' || separates(c); }
  bool token_ended(const char* where) const { return where == end_ || ends_token(*where); }

  const char* begin_;
  const char* here_;
  const char* end_;
  std::string name_;
  std::string_view separators_;
};

} // namespace sparsertc
