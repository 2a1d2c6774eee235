#include "compiler/input/matpower_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace sparsertc {
namespace {

constexpr const char* kLiteralsOnly =
    "only literal numbers are read: load the case in MATPOWER and save it with savecase";

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Whether a token is one literal number, as far as its characters go.
bool looks_like_number(std::string_view token) {
  if (!token.empty() && (token.front() == '-' || token.front() == '+'))
    token.remove_prefix(1);
  std::string word(token);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (word == "inf" || word == "nan")
    return true;
  size_t i = 0;
  const auto skip_digits = [&] {
    const size_t first = i;
    while (i < word.size() && is_digit(word[i]))
      ++i;
    return i - first;
  };
  size_t digits = skip_digits();
  if (i < word.size() && word[i] == '.') {
    ++i;
    digits += skip_digits();
  }
  if (digits == 0)
    return false;
  if (i < word.size() && (word[i] == 'e' || word[i] == 'd')) {
    ++i;
    if (i < word.size() && (word[i] == '-' || word[i] == '+'))
      ++i;
    if (skip_digits() == 0)
      return false;
  }
  return i == word.size();
}

} // namespace

void CaseText::unexpected(const char* expected, const char* way_out) const {
  cursor_.fail(cursor_.here(),
               fmt::format("expected {}, found {}", expected, cursor_.found_at(cursor_.here())),
               way_out);
}

/// From a '%' to the end of its line; over a whole block where the line is "%{".
void CaseText::skip_comment() {
  const auto line_of = [this](const char* at) {
    const char* stop = at;
    while (stop != cursor_.here() + cursor_.bytes_left() && *stop != '\n')
      ++stop;
    std::string_view line(at, static_cast<size_t>(stop - at));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
      line.remove_suffix(1);
    return line;
  };
  const char* before = cursor_.here();
  while (before != begin_ && (before[-1] == ' ' || before[-1] == '\t'))
    --before;
  const bool first_of_line = before == begin_ || before[-1] == '\n';
  const auto skip_to_line_end = [this] {
    while (!cursor_.at_line_end())
      cursor_.go_to(cursor_.here() + 1);
  };
  if (!first_of_line || line_of(cursor_.here()) != "%{") {
    skip_to_line_end();
    return;
  }
  const char* const opened = cursor_.here();
  uint64_t depth = 0;
  for (;;) {
    cursor_.skip_blanks();
    const std::string_view line = line_of(cursor_.here());
    if (line == "%{")
      ++depth;
    else if (line == "%}")
      --depth;
    skip_to_line_end();
    if (depth == 0)
      return;
    if (cursor_.at_end())
      cursor_.fail(opened, "this block of comments has no end", "a line with '%}' ends it");
    cursor_.go_to(cursor_.here() + 1);
  }
}

/// Blanks, comments, and line ends behind "...".
void CaseText::skip_space() {
  for (;;) {
    cursor_.skip_blanks();
    if (next() == '%')
      skip_comment();
    else if (starts_with("..."))
      cursor_.skip_line();
    else
      return;
  }
}

bool CaseText::at_statement_end() const {
  return cursor_.at_line_end() || next() == ';' || next() == ',';
}

void CaseText::skip_between_statements() {
  for (skip_space(); !cursor_.at_end() && at_statement_end(); skip_space())
    cursor_.go_to(cursor_.here() + 1);
}

/// A name of MATLAB, empty where there is none.
std::string_view CaseText::take_word() {
  const char* const start = cursor_.here();
  while (is_letter(next()) || (cursor_.here() != start && is_digit(next())))
    cursor_.go_to(cursor_.here() + 1);
  return {start, static_cast<size_t>(cursor_.here() - start)};
}

/// Behind the word: "mpc = NAME".
void CaseText::take_function() {
  constexpr const char* kForm = "a case begins with 'function mpc = NAME'";
  skip_space();
  if (next() == '[')
    cursor_.fail(cursor_.here(), "a case with several results is of version 1 of the format",
                 "version 2 is read: MATPOWER's loadcase and savecase make one of the other");
  variable_ = std::string(take_word());
  if (variable_.empty())
    unexpected("the name of a struct", kForm);
  skip_space();
  if (next() != '=')
    unexpected("'='", kForm);
  cursor_.go_to(cursor_.here() + 1);
  skip_space();
  if (take_word().empty())
    unexpected("the name of the case", kForm);
  skip_space();
  if (!at_statement_end())
    unexpected("the end of the line", kForm);
}

double CaseText::take_number(const char* what) {
  if (!looks_like_number(cursor_.peek_token()))
    unexpected(what, kLiteralsOnly);
  return cursor_.take_real(what);
}

void CaseText::skip_string() {
  const char* const opened = cursor_.here();
  const char quote = next();
  for (;;) {
    cursor_.go_to(cursor_.here() + 1);
    if (cursor_.at_line_end())
      cursor_.fail(opened, "this string has no end in its line");
    if (next() != quote)
      continue;
    cursor_.go_to(cursor_.here() + 1);
    if (next() != quote) // two of them are one inside the string
      return;
  }
}

/// A number, a string, or what brackets and braces hold.
void CaseText::skip_value() {
  if (next() == '\'' || next() == '"') {
    skip_string();
    return;
  }
  if (next() != '[' && next() != '{') {
    take_number("a literal");
    return;
  }
  std::vector<const char*> open;
  do {
    skip_space();
    const char c = next();
    if (cursor_.at_end())
      cursor_.fail(open.back(), "this bracket is not closed");
    if (c == '\'' || c == '"') {
      skip_string();
      continue;
    }
    if (c == '[' || c == '{') {
      open.push_back(cursor_.here());
    } else if (c == ']' || c == '}') {
      if (*open.back() != (c == ']' ? '[' : '{'))
        unexpected(c == ']' ? "'}'" : "']'");
      open.pop_back();
    }
    cursor_.go_to(cursor_.here() + 1);
  } while (!open.empty());
}

CaseTable CaseText::take_table(std::string field) {
  CaseTable table;
  table.field = std::move(field);
  table.where = cursor_.here();
  if (next() != '[')
    unexpected("'[' and the rows of a matrix", kLiteralsOnly);
  cursor_.go_to(cursor_.here() + 1);
  uint64_t in_row = 0;
  const auto end_row = [&](const char* at) {
    if (in_row == 0)
      return;
    if (table.rows > 0 && in_row != table.columns)
      cursor_.fail(at, fmt::format("row {} of {} has {} numbers, the rows above it {}",
                                   table.rows + 1, table.field, in_row, table.columns));
    table.columns = in_row;
    ++table.rows;
    in_row = 0;
  };
  for (;;) {
    skip_space();
    if (cursor_.at_end())
      cursor_.fail(table.where, fmt::format("the matrix {} has no ']'", table.field));
    const char* const here = cursor_.here();
    const char c = *here;
    if (c == ';' || c == '\n' || c == ']') {
      end_row(here);
      cursor_.go_to(here + 1);
      if (c == ']')
        return table;
      continue;
    }
    if (c == ',' && in_row > 0) {
      cursor_.go_to(here + 1);
      skip_space();
      if (cursor_.at_line_end() || next() == ';' || next() == ']')
        continue;
    }
    table.places.push_back(cursor_.here());
    table.values.push_back(take_number("a number of the matrix"));
    ++in_row;
    const char after = next();
    if (!cursor_.at_line_end() &&
        std::string_view(" \t\r,;]%").find(after) == std::string_view::npos)
      unexpected("a blank, ',' or ';' after a number", kLiteralsOnly);
  }
}

void CaseText::take_assignment() {
  const char* const start = cursor_.here();
  const std::string_view variable = take_word();
  if (variable.empty())
    unexpected("an assignment to a field of the case", kLiteralsOnly);
  skip_space();
  if (variable == variable_ && next() == '=')
    cursor_.fail(start, fmt::format("'{}' is assigned as a whole", printable(variable)),
                 kLiteralsOnly);
  if (next() == '=')
    cursor_.fail(start, fmt::format("'{}' is no field of a case", printable(variable)),
                 "version 2 of the format is read, which assigns mpc.bus, mpc.gen and mpc.branch; "
                 "MATPOWER's loadcase and savecase make one of version 1");
  if (variable != variable_ || next() != '.')
    cursor_.fail(start,
                 fmt::format("expected an assignment to a field of '{}', found {}",
                             printable(variable_), cursor_.found_at(start)),
                 kLiteralsOnly);
  cursor_.go_to(cursor_.here() + 1);
  std::string field(take_word());
  while (next() == '.') {
    cursor_.go_to(cursor_.here() + 1);
    field += fmt::format(".{}", take_word());
  }
  if (field.empty() || field.back() == '.')
    unexpected("the name of a field");
  skip_space();
  if (next() != '=')
    unexpected("'='", kLiteralsOnly);
  cursor_.go_to(cursor_.here() + 1);
  skip_space();
  const size_t which = static_cast<size_t>(
      std::find(std::begin(kTables), std::end(kTables), field) - std::begin(kTables));
  const bool known = which < std::size(kTables) || field == "version" || field == "baseMVA";
  if (known && std::find(assigned_.begin(), assigned_.end(), field) != assigned_.end())
    cursor_.fail(start, fmt::format("{}.{} is assigned twice", variable_, field));
  const char* const value = cursor_.here();
  if (field == "version") {
    skip_value();
    std::string_view text(value, static_cast<size_t>(cursor_.here() - value));
    if (text.size() > 2 && (text.front() == '\'' || text.front() == '"'))
      text = text.substr(1, text.size() - 2);
    if (text != "2")
      cursor_.fail(value, fmt::format("the version is '{}', expected '2'", printable(text)),
                   "MATPOWER's loadcase and savecase make cases of version 2");
    version_ = true;
  } else if (field == "baseMVA") {
    base_mva_ = take_number("the base power in MVA");
    if (!(base_mva_ > 0) || !std::isfinite(base_mva_))
      cursor_.fail(value, fmt::format("the base power is {} MVA, expected more than 0", base_mva_));
  } else if (which < std::size(kTables)) {
    tables_[which] = take_table(fmt::format("{}.{}", variable_, field));
  } else {
    skip_value();
  }
  if (known)
    assigned_.push_back(field);
  skip_space();
  if (!at_statement_end())
    unexpected("the end of the statement", kLiteralsOnly);
}

void CaseText::read() {
  constexpr std::string_view kMark = "\xef\xbb\xbf"; // of UTF-8
  if (starts_with(kMark))
    cursor_.go_to(cursor_.here() + kMark.size());
  skip_between_statements();
  if (cursor_.at_end())
    cursor_.fail(cursor_.here(), "there is no case in the file",
                 "a case assigns mpc.bus, mpc.gen and mpc.branch");
  const char* const first = cursor_.here();
  if (take_word() == "function")
    take_function();
  else
    cursor_.go_to(first);
  for (skip_between_statements(); !cursor_.at_end(); skip_between_statements()) {
    const char* const start = cursor_.here();
    const std::string_view word = take_word();
    skip_space();
    if ((word == "end" || word == "return") && at_statement_end())
      continue;
    cursor_.go_to(start);
    take_assignment();
  }
  const auto need = [this](bool there, std::string_view field) {
    if (!there)
      cursor_.fail(cursor_.here(), fmt::format("{}.{} is not assigned", variable_, field));
  };
  need(version_, "version");
  need(base_mva_ > 0, "baseMVA");
  for (size_t t = 0; t < std::size(kTables); ++t)
    need(tables_[t].has_value(), kTables[t]);
}

} // namespace sparsertc
