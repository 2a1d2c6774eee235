// The format is that of the MATPOWER user's manual, appendix B: a MATLAB function that assigns
// `mpc.version`, `mpc.baseMVA`, `mpc.bus`, `mpc.gen` and `mpc.branch` (and other fields, which are
// skipped, balanced).
#include "compiler/input/matpower.h"

#include "compiler/input/text_cursor.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace sparsertc {
namespace {

constexpr const char* kLiteralsOnly =
    "only literal numbers are read: load the case in MATPOWER and save it with savecase";

/// A matrix in brackets, row-major, with the place of every number.
struct Table {
  std::string field;
  const char* where = nullptr;
  uint64_t rows = 0;
  uint64_t columns = 0;
  std::vector<double> values;
  std::vector<const char*> places;

  double value(uint64_t row, uint64_t column) const { return values[row * columns + column]; }
  const char* place(uint64_t row, uint64_t column) const { return places[row * columns + column]; }
};

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

/// The statements of the file.
class CaseText {
public:
  CaseText(std::string_view text, const std::string& name)
      : begin_(text.data()), cursor_(text, name, ",;[]{}()'\"%=") {}

  void read();

  const TextCursor& cursor() const { return cursor_; }
  const std::optional<Table>& table(size_t which) const { return tables_[which]; }
  double base_mva() const { return base_mva_; }

  static constexpr const char* kTables[] = {"bus", "gen", "branch"};

private:
  char next() const { return cursor_.at_end() ? '\0' : *cursor_.here(); }
  bool starts_with(std::string_view text) const {
    return std::string_view(cursor_.here(), cursor_.bytes_left()).starts_with(text);
  }
  [[noreturn]] void unexpected(const char* expected, const char* way_out = "") const {
    cursor_.fail(cursor_.here(),
                 fmt::format("expected {}, found {}", expected, cursor_.found_at(cursor_.here())),
                 way_out);
  }

  void skip_comment();
  void skip_space();
  bool at_statement_end() const;
  void skip_between_statements();
  std::string_view take_word();
  void take_function();
  void take_assignment();
  double take_number(const char* what);
  void skip_string();
  void skip_value();
  Table take_table(std::string field);

  const char* begin_;
  TextCursor cursor_;
  std::string variable_ = "mpc";
  std::optional<Table> tables_[3];
  double base_mva_ = 0;
  bool version_ = false;
  std::vector<std::string> assigned_;
};

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

Table CaseText::take_table(std::string field) {
  Table table;
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

/// The numbers of a table's rows, checked.
class TableReader {
public:
  TableReader(const TextCursor& cursor, const Table& table, uint64_t least_columns)
      : cursor_(cursor), table_(table) {
    if (table.rows > 0 && table.columns < least_columns)
      cursor.fail(table.where, fmt::format("{} has {} columns, expected at least {}", table.field,
                                           table.columns, least_columns));
    if (table.rows > UINT32_MAX)
      cursor.fail(table.where, fmt::format("{} has {} rows", table.field, table.rows));
  }

  double finite(uint64_t row, uint64_t column, const char* what) const {
    const double value = table_.value(row, column);
    if (!std::isfinite(value))
      fail(row, column, fmt::format("{} is {}, expected a finite number", what, value));
    return value;
  }
  uint64_t number(uint64_t row, uint64_t column, const char* what) const {
    const double value = table_.value(row, column);
    if (!(value >= 1) || value > 0x1p53 || value != std::floor(value))
      fail(row, column, fmt::format("{} is {}, expected a whole number from 1 on", what, value));
    return static_cast<uint64_t>(value);
  }
  [[noreturn]] void fail(uint64_t row, uint64_t column, const std::string& message,
                         const std::string& way_out = {}) const {
    cursor_.fail(table_.place(row, column),
                 fmt::format("{}, row {}: {}", table_.field, row + 1, message), way_out);
  }

private:
  const TextCursor& cursor_;
  const Table& table_;
};

/// The line of each row, by one walk over the text.
std::vector<uint64_t> lines_of(const Table& table, const char* begin) {
  std::vector<uint64_t> lines;
  uint64_t line = 1;
  const char* at = begin;
  for (uint64_t row = 0; row < table.rows; ++row) {
    const char* const here = table.place(row, 0);
    line += static_cast<uint64_t>(std::count(at, here, '\n'));
    at = here;
    lines.push_back(line);
  }
  return lines;
}

/// Bus numbers to indices.
class BusNumbers {
public:
  BusNumbers(const TableReader& reader, const std::vector<PowerBus>& buses) {
    for (uint32_t i = 0; i < buses.size(); ++i)
      sorted_.emplace_back(buses[i].number, i);
    std::sort(sorted_.begin(), sorted_.end());
    for (size_t i = 1; i < sorted_.size(); ++i)
      if (sorted_[i].first == sorted_[i - 1].first)
        reader.fail(sorted_[i].second, 0,
                    fmt::format("the number {} has been given to the bus of row {}",
                                sorted_[i].first, sorted_[i - 1].second + 1));
  }
  uint32_t index(const TableReader& reader, uint64_t row, uint64_t column) const {
    const uint64_t number = reader.number(row, column, "the number of a bus");
    const auto found =
        std::lower_bound(sorted_.begin(), sorted_.end(), std::pair<uint64_t, uint32_t>(number, 0));
    if (found == sorted_.end() || found->first != number)
      reader.fail(row, column, fmt::format("there is no bus {}", number));
    return found->second;
  }

private:
  std::vector<std::pair<uint64_t, uint32_t>> sorted_;
};

std::vector<PowerBus> buses_of(const TableReader& read, const Table& table,
                               const std::vector<uint64_t>& lines) {
  std::vector<PowerBus> buses(table.rows);
  for (uint64_t i = 0; i < table.rows; ++i) {
    PowerBus& bus = buses[i];
    bus.number = read.number(i, 0, "the number of the bus");
    const uint64_t type = read.number(i, 1, "the type of the bus");
    if (type > 4)
      read.fail(i, 1, fmt::format("the type of the bus is {}", type),
                "1 is PQ, 2 PV, 3 the reference, 4 isolated");
    bus.type = static_cast<BusType>(type);
    bus.load_mw = read.finite(i, 2, "the load");
    bus.load_mvar = read.finite(i, 3, "the reactive load");
    bus.shunt_mw = read.finite(i, 4, "the shunt conductance");
    bus.shunt_mvar = read.finite(i, 5, "the shunt susceptance");
    bus.voltage_pu = read.finite(i, 7, "the voltage");
    bus.angle_degrees = read.finite(i, 8, "the angle");
    bus.line = lines[i];
  }
  return buses;
}

std::vector<PowerGenerator> generators_of(const TableReader& read, const Table& table,
                                          const BusNumbers& numbers,
                                          const std::vector<uint64_t>& lines) {
  std::vector<PowerGenerator> generators(table.rows);
  for (uint64_t i = 0; i < table.rows; ++i) {
    PowerGenerator& generator = generators[i];
    generator.bus = numbers.index(read, i, 0);
    generator.in_service = read.finite(i, 7, "the status") > 0;
    generator.power_mw = read.finite(i, 1, "the power");
    generator.power_mvar = read.finite(i, 2, "the reactive power");
    generator.voltage_pu = read.finite(i, 5, "the voltage to be held");
    if (generator.in_service && !(generator.voltage_pu > 0))
      read.fail(i, 5,
                fmt::format("the voltage to be held is {} p.u., expected more than 0",
                            generator.voltage_pu));
    generator.line = lines[i];
  }
  return generators;
}

std::vector<PowerBranch> branches_of(const TableReader& read, const Table& table,
                                     const BusNumbers& numbers,
                                     const std::vector<uint64_t>& lines) {
  std::vector<PowerBranch> branches(table.rows);
  for (uint64_t i = 0; i < table.rows; ++i) {
    PowerBranch& branch = branches[i];
    branch.from = numbers.index(read, i, 0);
    branch.to = numbers.index(read, i, 1);
    if (branch.from == branch.to)
      read.fail(i, 1, "the branch ends where it begins");
    branch.in_service = read.finite(i, 10, "the status") != 0;
    branch.resistance_pu = read.finite(i, 2, "the resistance");
    branch.reactance_pu = read.finite(i, 3, "the reactance");
    branch.charging_pu = read.finite(i, 4, "the charging susceptance");
    const double ratio = read.finite(i, 8, "the tap ratio");
    branch.tap_ratio = ratio == 0 ? 1 : ratio;
    branch.shift_degrees = read.finite(i, 9, "the phase shift");
    if (branch.in_service && branch.resistance_pu == 0 && branch.reactance_pu == 0)
      read.fail(i, 2, "a branch in service has no impedance",
                "join its buses, or give it a small reactance");
    branch.line = lines[i];
  }
  return branches;
}

} // namespace

PowerCase read_power_case_from_bytes(std::span<const uint8_t> bytes, const std::string& name,
                                     uint64_t maximum_bytes) {
  std::vector<uint8_t> plain;
  if (is_gzip(bytes)) {
    plain = decompress_gzip(bytes, name, maximum_bytes);
    bytes = plain;
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  CaseText reader(text, name);
  reader.read();
  const auto lines = [&](const Table& table) { return lines_of(table, text.data()); };
  const Table& bus = *reader.table(0);
  const Table& generator = *reader.table(1);
  const Table& branch = *reader.table(2);
  PowerCase grid;
  grid.name = name;
  grid.base_mva = reader.base_mva();
  const TableReader read_bus(reader.cursor(), bus, 13);
  grid.buses = buses_of(read_bus, bus, lines(bus));
  const BusNumbers numbers(read_bus, grid.buses);
  grid.generators = generators_of(TableReader(reader.cursor(), generator, 10), generator, numbers,
                                  lines(generator));
  grid.branches =
      branches_of(TableReader(reader.cursor(), branch, 11), branch, numbers, lines(branch));
  return grid;
}

PowerCase read_power_case(const std::string& path, uint64_t maximum_bytes) {
  return read_power_case_from_bytes(read_bytes(path, maximum_bytes),
                                    path == "-" ? kStandardInputName : path, maximum_bytes);
}

} // namespace sparsertc
