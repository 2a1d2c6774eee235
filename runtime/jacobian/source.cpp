#include "runtime/jacobian/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <vector>

namespace sparsertc::jacobian {
namespace {

struct Token {
  std::string_view text; ///< a word, or one character of punctuation
  size_t begin = 0;
  uint64_t line = 1;
  uint64_t column = 1;
  bool in_directive = false;
  size_t end() const { return begin + text.size(); }
};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Words and punctuation of C++ text, without comments, literals and white space. What is no C++ is
/// left to the compiler.
class Lexer {
public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        advance();
        in_directive_ = false;
        at_line_start_ = true;
      } else if (c == '\\' && rest().substr(0, 2) == "\\\n") {
        advance(2); // the line goes on
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        advance();
      } else if (rest().substr(0, 2) == "//") {
        while (at_ < text_.size() && text_[at_] != '\n')
          advance();
      } else if (rest().substr(0, 2) == "/*") {
        skip_past("*/", 2);
      } else if (c == '#' && at_line_start_) {
        in_directive_ = true;
        token(1);
      } else if (c == '"' || c == '\'') {
        quoted(c);
      } else if (is_word(c)) {
        word();
      } else {
        token(1);
      }
    }
    return std::move(tokens_);
  }

private:
  std::string_view rest() const { return text_.substr(at_); }
  void advance(size_t count = 1) {
    for (size_t i = 0; i < count && at_ < text_.size(); ++i, ++at_)
      if (text_[at_] == '\n') {
        ++line_;
        line_begin_ = at_ + 1;
      }
  }
  void skip_past(std::string_view what, size_t from) {
    const size_t found = text_.find(what, at_ + from);
    advance((found == std::string_view::npos ? text_.size() : found + what.size()) - at_);
  }
  void token(size_t length) {
    tokens_.push_back(
        {text_.substr(at_, length), at_, line_, at_ - line_begin_ + 1, in_directive_});
    at_line_start_ = false;
    advance(length);
  }
  void quoted(char quote) {
    at_line_start_ = false;
    for (advance(); at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; advance())
      if (text_[at_] == '\\')
        advance();
    if (at_ < text_.size() && text_[at_] == quote)
      advance();
  }
  void word() {
    size_t length = 0;
    const bool number = std::isdigit(static_cast<unsigned char>(text_[at_])) != 0;
    while (at_ + length < text_.size() &&
           (is_word(text_[at_ + length]) || (number && text_[at_ + length] == '\'')))
      ++length;
    const std::string_view spelt = text_.substr(at_, length);
    const bool raw =
        spelt == "R" || spelt == "LR" || spelt == "u8R" || spelt == "uR" || spelt == "UR";
    if (raw && at_ + length < text_.size() && text_[at_ + length] == '"') {
      const size_t open = text_.find('(', at_);
      const size_t from = at_ + length + 1;
      if (open != std::string_view::npos && open - from <= 16) {
        const std::string close = fmt::format("){}\"", text_.substr(from, open - from));
        skip_past(close, open - at_ + 1);
        return;
      }
    }
    token(length);
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint64_t line_ = 1;
  size_t line_begin_ = 0;
  bool in_directive_ = false;
  bool at_line_start_ = true;
};

Place place_of(const ResidualSource& source, const Token& token) {
  return Place::text(source.name, token.line, token.column);
}

struct Insertion {
  size_t at;
  std::string text;
};

/// Finds the loops and what is to be written around them.
class LoopLimiter {
public:
  explicit LoopLimiter(const ResidualSource& source)
      : source_(source), tokens_(Lexer(source.text).run()), ends_do_(tokens_.size(), false) {}

  std::string run() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view word = tokens_[i].text;
      if (word == "goto")
        throw UserError(place_of(source_, tokens_[i]), "goto: its loops cannot be limited",
                        "write for, while or do; or turn the limit off (--loop-limit=0)");
      if (word == "do")
        limit_do(i);
      else if ((word == "for" || word == "while") && !ends_do_[i])
        limit(i);
    }
    // Of insertions at one place the ones made first stand first.
    std::stable_sort(insertions_.begin(), insertions_.end(),
                     [](const Insertion& a, const Insertion& b) { return a.at < b.at; });
    std::string text;
    size_t done = 0;
    for (const Insertion& insertion : insertions_) {
      text.append(source_.text, done, insertion.at - done);
      text += insertion.text;
      done = insertion.at;
    }
    return text.append(source_.text, done);
  }

private:
  /// The token that closes what token `i` opens.
  std::optional<size_t> closing(size_t i) const {
    const std::string_view open = tokens_[i].text, close = open == "(" ? ")" : "}";
    size_t depth = 0;
    for (; i < tokens_.size(); ++i) {
      if (tokens_[i].text == open)
        ++depth;
      else if (tokens_[i].text == close && --depth == 0)
        return i;
    }
    return std::nullopt;
  }

  /// Declares the counter before the statement of token `i`; before its #pragma, too, which must
  /// stand directly before the loop.
  void declare_counter(size_t i) {
    const std::string counter = fmt::format(
        " if (::sparsertc::LoopLimit sparsertc_loop({}); false) {{}} else ", tokens_[i].line);
    size_t at = tokens_[i].begin;
    if (!tokens_[i].in_directive && i > 0 && tokens_[i - 1].in_directive) {
      size_t before = i;
      while (before > 0 && tokens_[before - 1].in_directive)
        --before;
      if (before > 0)
        at = tokens_[before - 1].end();
    }
    insertions_.push_back({at, counter});
  }

  /// for (...) and while (...).
  void limit(size_t i) {
    if (i + 1 == tokens_.size() || tokens_[i + 1].text != "(")
      return; // no C++
    const std::optional<size_t> close = closing(i + 1);
    if (!close)
      return;
    declare_counter(i);
    insertions_.push_back({tokens_[*close].end(), " if (sparsertc_loop.step(); false) {} else "});
  }

  /// do { ... } while (...);
  void limit_do(size_t i) {
    if (i + 1 == tokens_.size())
      return;
    if (tokens_[i + 1].text != "{")
      throw UserError(place_of(source_, tokens_[i]), "a `do` whose body has no braces",
                      "write do { ... } while (...);");
    const std::optional<size_t> end = closing(i + 1);
    if (!end || *end + 2 >= tokens_.size() || tokens_[*end + 1].text != "while" ||
        tokens_[*end + 2].text != "(")
      return;
    const std::optional<size_t> close = closing(*end + 2);
    if (!close)
      return;
    ends_do_[*end + 1] = true;
    declare_counter(i);
    insertions_.push_back({tokens_[*end + 2].end(), "sparsertc_loop.step() && ("});
    insertions_.push_back({tokens_[*close].begin, ")"});
  }

  const ResidualSource& source_;
  std::vector<Token> tokens_;
  std::vector<bool> ends_do_; ///< by token: the `while` at the end of a `do`
  std::vector<Insertion> insertions_;
};

} // namespace

uint64_t line_of_residual(const ResidualSource& source) {
  const std::vector<Token> tokens = Lexer(source.text).run();
  for (size_t i = 0; i + 1 < tokens.size(); ++i)
    if (tokens[i].text == "residual" && tokens[i + 1].text == "(")
      return tokens[i].line;
  throw UserError(Place{source.name, 0, 0, {}}, "there is no residual",
                  "write `template <class T> __device__ void residual(Row i, Unknowns<T> x, const "
                  "Parameters& p, T& f)`, or with `Residuals<T> f` and without `Row i`");
}

std::optional<Place> unclosed_bracket(const ResidualSource& source) {
  std::vector<Token> open;
  for (const Token& token : Lexer(source.text).run()) {
    if (token.in_directive)
      continue;
    const std::string_view text = token.text;
    if (text == "{" || text == "(" || text == "[")
      open.push_back(token);
    else if ((text == "}" || text == ")" || text == "]") && !open.empty())
      open.pop_back();
  }
  if (open.empty())
    return std::nullopt;
  return place_of(source, open.back());
}

bool has_sums(const ResidualSource& source) {
  const std::vector<Token> tokens = Lexer(source.text).run();
  return std::any_of(tokens.begin(), tokens.end(),
                     [](const Token& token) { return token.text == "sum_over"; });
}

std::string limit_loops(const ResidualSource& source) {
  return LoopLimiter(source).run();
}

} // namespace sparsertc::jacobian
