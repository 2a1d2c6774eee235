// The statements of a MATPOWER case file, a MATLAB function that assigns literals (MATPOWER user's
// manual, appendix B): what matpower.cpp makes a grid of.
#pragma once

#include "compiler/input/text_cursor.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// A matrix in brackets, row-major, with the place of every number.
struct CaseTable {
  std::string field;
  const char* where = nullptr;
  uint64_t rows = 0;
  uint64_t columns = 0;
  std::vector<double> values;
  std::vector<const char*> places;

  double value(uint64_t row, uint64_t column) const { return values[row * columns + column]; }
  const char* place(uint64_t row, uint64_t column) const { return places[row * columns + column]; }
};

/// The statements of the file: `version`, `baseMVA`, `bus`, `gen` and `branch` are kept, other
/// fields skipped, balanced. UserError with file:line:column for what is no literal assignment.
class CaseText {
public:
  CaseText(std::string_view text, const std::string& name)
      : begin_(text.data()), cursor_(text, name, ",;[]{}()'\"%=") {}

  void read();

  const TextCursor& cursor() const { return cursor_; }
  const std::optional<CaseTable>& table(size_t which) const { return tables_[which]; }
  double base_mva() const { return base_mva_; }

  static constexpr const char* kTables[] = {"bus", "gen", "branch"};

private:
  char next() const { return cursor_.at_end() ? '\0' : *cursor_.here(); }
  bool starts_with(std::string_view text) const {
    return std::string_view(cursor_.here(), cursor_.bytes_left()).starts_with(text);
  }
  [[noreturn]] void unexpected(const char* expected, const char* way_out = "") const;

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
  CaseTable take_table(std::string field);

  const char* begin_;
  TextCursor cursor_;
  std::string variable_ = "mpc";
  std::optional<CaseTable> tables_[3];
  double base_mva_ = 0;
  bool version_ = false;
  std::vector<std::string> assigned_;
};

} // namespace sparsertc
