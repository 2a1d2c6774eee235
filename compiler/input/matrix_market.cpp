// Matrix Market exchange format (Boisvert, Pozo, Remington: NISTIR 5935, 1996).
#include "compiler/input/readers.h"
#include "compiler/input/text_cursor.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

namespace sparsertc {
namespace {

enum class Form { coordinate, array };
enum class Field { real, integer, complex, pattern };
enum class Symmetry { general, symmetric, skew, hermitian };

struct Header {
  Form form;
  Field field;
  Symmetry symmetry;
  uint32_t rows;
  uint32_t columns;
  /// Entries in the file: the promised number, or those of the array (or its triangle).
  uint64_t entries;
};

struct Value {
  double real = 0;
  double imaginary = 0;
  bool is_zero() const { return real == 0 && imaginary == 0; }
};

class Reader {
public:
  Reader(std::string_view text, const std::string& name, const ReadOptions& options)
      : cursor_(text, name), options_(options), text_bytes_(text.size()) {}

  Matrix read_matrix();
  DenseTensor read_dense();

private:
  static constexpr char kComment = '%';

  void read_header();
  void read_banner();
  std::string take_word(const char* what, const char* choices);
  void check_combination(const char* symmetry_at) const;
  void read_sizes();
  void check_promise(const char* where, uint64_t least_bytes) const;

  /// Both call `put(row, column, value, place)` for every element of the matrix, mirrored ones
  /// included; positions are zero-based.
  template <typename Put>
  void read_coordinates(Put&& put);
  template <typename Put>
  void read_array(Put&& put);

  const char* next_entry(uint64_t found);
  uint32_t take_index(const char* what, const char* plural, uint32_t count);
  Value take_value(uint32_t row, uint32_t column);
  void check_finite(double value, const char* where, uint32_t row, uint32_t column) const;
  Value mirrored(Value value) const;
  void check_diagonal(Value value, const char* where, uint32_t row) const;

  StoredType stored_type() const {
    switch (header_.field) {
    case Field::real:
      return StoredType::f64;
    case Field::integer:
      return StoredType::i64;
    case Field::complex:
      return StoredType::c128;
    case Field::pattern:
      return StoredType::none;
    }
    return StoredType::none;
  }

  TextCursor cursor_;
  ReadOptions options_;
  uint64_t text_bytes_;
  Header header_{};
};

std::string Reader::take_word(const char* what, const char* choices) {
  cursor_.skip_blanks();
  if (cursor_.at_line_end())
    cursor_.fail(cursor_.here(), fmt::format("expected {} ({}), found {}", what, choices,
                                             cursor_.found_at(cursor_.here())));
  std::string word(cursor_.take_token());
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

void Reader::read_banner() {
  constexpr const char* kBanner =
      "the first line is '%%MatrixMarket matrix FORM FIELD SYMMETRY', for example "
      "'%%MatrixMarket matrix coordinate real general'";
  const char* const start = cursor_.here();
  if (cursor_.at_end())
    cursor_.fail(start, "the file is empty", kBanner);
  if (take_word("the banner", "%%MatrixMarket") != "%%matrixmarket")
    cursor_.fail(start, fmt::format("expected '%%MatrixMarket', found {}", cursor_.found_at(start)),
                 kBanner);

  const auto choose = [&]<typename Choice>(
                          const char* what, const char* choices,
                          std::initializer_list<std::pair<const char*, Choice>> table) {
    cursor_.skip_blanks();
    const char* const where = cursor_.here();
    const std::string word = take_word(what, choices);
    for (const auto& [text, choice] : table)
      if (word == text)
        return choice;
    cursor_.fail(where,
                 fmt::format("expected {} ({}), found {}", what, choices, cursor_.found_at(where)));
  };
  choose("the object", "matrix", {std::pair{"matrix", 0}});
  header_.form = choose("the form", "coordinate, array",
                        {std::pair{"coordinate", Form::coordinate}, {"array", Form::array}});
  header_.field = choose("the field", "real, integer, complex, pattern",
                         {std::pair{"real", Field::real},
                          {"double", Field::real},
                          {"integer", Field::integer},
                          {"unsigned-integer", Field::integer},
                          {"complex", Field::complex},
                          {"pattern", Field::pattern}});
  cursor_.skip_blanks();
  const char* const symmetry_at = cursor_.here();
  header_.symmetry = choose("the symmetry", "general, symmetric, skew-symmetric, hermitian",
                            {std::pair{"general", Symmetry::general},
                             {"symmetric", Symmetry::symmetric},
                             {"skew-symmetric", Symmetry::skew},
                             {"hermitian", Symmetry::hermitian}});
  cursor_.expect_line_end("the banner");
  check_combination(symmetry_at);
}

void Reader::check_combination(const char* symmetry_at) const {
  if (header_.form == Form::array && header_.field == Field::pattern)
    cursor_.fail(symmetry_at, "an array of pattern has no meaning: an array stores every value",
                 "use 'coordinate pattern' or 'array real'");
  if (header_.symmetry == Symmetry::hermitian && header_.field != Field::complex)
    cursor_.fail(symmetry_at, "only complex matrices can be hermitian",
                 "for other fields the same is called 'symmetric'");
  if (header_.symmetry == Symmetry::skew && header_.field == Field::pattern)
    cursor_.fail(symmetry_at,
                 "a pattern cannot be skew-symmetric: it has no values whose sign could change",
                 "use 'pattern symmetric'");
}

void Reader::read_sizes() {
  const bool coordinate = header_.form == Form::coordinate;
  cursor_.skip_empty_lines(kComment);
  if (cursor_.at_end())
    cursor_.fail(cursor_.here(), fmt::format("expected the size line ({}), found {}",
                                             coordinate ? "ROWS COLUMNS ENTRIES" : "ROWS COLUMNS",
                                             cursor_.found_at(cursor_.here())));
  const char* const rows_at = cursor_.here();
  const uint64_t rows = cursor_.take_unsigned("the number of rows", kMaximumDimension);
  cursor_.skip_blanks();
  const char* const columns_at = cursor_.here();
  const uint64_t columns = cursor_.take_unsigned("the number of columns", kMaximumDimension);
  check_dimension(rows, "rows", text_bytes_, cursor_.place_of(rows_at));
  check_dimension(columns, "columns", text_bytes_, cursor_.place_of(columns_at));
  if (header_.symmetry != Symmetry::general && rows != columns)
    cursor_.fail(rows_at,
                 fmt::format("a matrix with symmetry must be square, found {} x {}", rows, columns),
                 "use 'general'");
  header_.rows = static_cast<uint32_t>(rows);
  header_.columns = static_cast<uint32_t>(columns);

  if (coordinate) {
    cursor_.skip_blanks();
    const char* const entries_at = cursor_.here();
    header_.entries = cursor_.take_unsigned("the number of entries", UINT64_MAX);
    cursor_.expect_line_end("the size line");
    // "1 1" and a line end; a value adds a blank and a digit.
    const uint64_t numbers = header_.field == Field::pattern   ? 2
                             : header_.field == Field::complex ? 4
                                                               : 3;
    check_promise(entries_at, 2 * numbers);
    return;
  }
  cursor_.expect_line_end("the size line");
  switch (header_.symmetry) {
  case Symmetry::general:
    header_.entries = rows * columns;
    break;
  case Symmetry::symmetric:
  case Symmetry::hermitian:
    header_.entries = rows * (rows + 1) / 2;
    break;
  case Symmetry::skew:
    header_.entries = rows == 0 ? 0 : rows * (rows - 1) / 2;
    break;
  }
  check_promise(rows_at, header_.field == Field::complex ? 4 : 2);
}

void Reader::check_promise(const char* where, uint64_t least_bytes) const {
  if (header_.entries > (cursor_.bytes_left() + 1) / least_bytes)
    cursor_.fail(where,
                 fmt::format("{} entries are promised, but only {} bytes follow", header_.entries,
                             cursor_.bytes_left()),
                 "the file is truncated or its size line wrong");
}

void Reader::read_header() {
  read_banner();
  read_sizes();
}

const char* Reader::next_entry(uint64_t found) {
  cursor_.skip_empty_lines(kComment);
  if (cursor_.at_end())
    cursor_.fail(cursor_.here(),
                 fmt::format("expected {} entries, found {}", header_.entries, found),
                 "the file is truncated or its size line wrong");
  return cursor_.here();
}

uint32_t Reader::take_index(const char* what, const char* plural, uint32_t count) {
  cursor_.skip_blanks();
  const char* const where = cursor_.here();
  const uint64_t index = cursor_.take_unsigned(what, UINT64_MAX);
  if (index == 0)
    cursor_.fail(where, fmt::format("expected {}, found 0, but Matrix Market counts from 1", what),
                 "add 1 to every index");
  if (index > count)
    cursor_.fail(where, fmt::format("{} {} is out of range: the matrix has {} {}", what + 2, index,
                                    count, plural));
  return static_cast<uint32_t>(index - 1);
}

void Reader::check_finite(double value, const char* where, uint32_t row, uint32_t column) const {
  if (!options_.allow_nonfinite && !std::isfinite(value))
    cursor_.fail(where,
                 fmt::format("the value at row {}, column {} is {}, expected a finite number",
                             uint64_t{row} + 1, uint64_t{column} + 1, value),
                 "repair the matrix: weights must be finite");
}

Value Reader::take_value(uint32_t row, uint32_t column) {
  Value value;
  if (header_.field == Field::pattern)
    return value;
  cursor_.skip_blanks();
  const char* const where = cursor_.here();
  if (header_.field == Field::integer) {
    value.real = cursor_.take_integer("a value");
    return value;
  }
  value.real = cursor_.take_real("a value");
  check_finite(value.real, where, row, column);
  if (header_.field == Field::complex) {
    cursor_.skip_blanks();
    const char* const imaginary_at = cursor_.here();
    value.imaginary = cursor_.take_real("an imaginary part");
    check_finite(value.imaginary, imaginary_at, row, column);
  }
  return value;
}

Value Reader::mirrored(Value value) const {
  switch (header_.symmetry) {
  case Symmetry::skew:
    return {-value.real, -value.imaginary};
  case Symmetry::hermitian:
    return {value.real, -value.imaginary};
  default:
    return value;
  }
}

void Reader::check_diagonal(Value value, const char* where, uint32_t row) const {
  if (header_.symmetry == Symmetry::skew && !value.is_zero())
    cursor_.fail(where, fmt::format("the diagonal of a skew-symmetric matrix is zero, found {} at "
                                    "row {}",
                                    value.real, uint64_t{row} + 1));
  if (header_.symmetry == Symmetry::hermitian && value.imaginary != 0)
    cursor_.fail(where,
                 fmt::format("the diagonal of a hermitian matrix is real, found an imaginary "
                             "part of {} at row {}",
                             value.imaginary, uint64_t{row} + 1));
}

template <typename Put>
void Reader::read_coordinates(Put&& put) {
  for (uint64_t k = 0; k < header_.entries; ++k) {
    const char* const where = next_entry(k);
    const uint32_t row = take_index("a row index", "rows", header_.rows);
    const uint32_t column = take_index("a column index", "columns", header_.columns);
    const Value value = take_value(row, column);
    cursor_.expect_line_end("an entry");
    if (header_.symmetry != Symmetry::general) {
      if (row < column)
        cursor_.fail(where,
                     fmt::format("entry ({}, {}) lies above the diagonal: a file with symmetry "
                                 "stores the lower triangle only",
                                 uint64_t{row} + 1, uint64_t{column} + 1),
                     "swap its indices, or call the matrix 'general' and list both triangles");
      if (row == column)
        check_diagonal(value, where, row);
    }
    put(row, column, value, where);
    if (header_.symmetry != Symmetry::general && row != column)
      put(column, row, mirrored(value), where);
  }
  cursor_.expect_end(fmt::format("{} entries", header_.entries).c_str(), kComment);
}

template <typename Put>
void Reader::read_array(Put&& put) {
  uint64_t found = 0;
  for (uint32_t column = 0; column < header_.columns; ++column) {
    const uint32_t first = header_.symmetry == Symmetry::general ? 0
                           : header_.symmetry == Symmetry::skew  ? column + 1
                                                                 : column;
    for (uint32_t row = first; row < header_.rows; ++row) {
      const char* const where = next_entry(found++);
      const Value value = take_value(row, column);
      cursor_.expect_line_end("a value");
      if (row == column && header_.symmetry != Symmetry::general)
        check_diagonal(value, where, row);
      put(row, column, value, where);
      if (header_.symmetry != Symmetry::general && row != column)
        put(column, row, mirrored(value), where);
    }
  }
  cursor_.expect_end(fmt::format("{} entries", header_.entries).c_str(), kComment);
}

Matrix Reader::read_matrix() {
  read_header();
  Triplets triplets;
  triplets.rows = header_.rows;
  triplets.columns = header_.columns;
  const bool has_values = header_.field != Field::pattern;
  const bool has_imaginary = header_.field == Field::complex;
  const bool refuse = options_.duplicates == Duplicates::refuse;
  // Places of the entries, kept only where a duplicate must be shown.
  std::vector<const char*> places;

  const auto put = [&](uint32_t row, uint32_t column, Value value, const char* where) {
    triplets.row.push_back(row);
    triplets.column.push_back(column);
    if (has_values)
      triplets.value.push_back(value.real);
    if (has_imaginary)
      triplets.imaginary.push_back(value.imaginary);
    if (refuse)
      places.push_back(where);
  };
  if (header_.form == Form::coordinate) {
    const uint64_t expected =
        header_.symmetry == Symmetry::general ? header_.entries : 2 * header_.entries;
    triplets.row.reserve(expected);
    triplets.column.reserve(expected);
    triplets.value.reserve(has_values ? expected : 0);
    triplets.imaginary.reserve(has_imaginary ? expected : 0);
    read_coordinates(put);
  } else {
    // An array has no pattern of its own: what is zero is no entry.
    read_array([&](uint32_t row, uint32_t column, Value value, const char* where) {
      if (!value.is_zero())
        put(row, column, value, where);
    });
  }
  Matrix matrix =
      compress(std::move(triplets), options_.duplicates, [&](uint64_t first, uint64_t second) {
        cursor_.fail(places[second],
                     fmt::format("a second entry for one position; the first is in line {}",
                                 cursor_.place_of(places[first]).line),
                     "remove one, or let duplicates be summed");
      });
  matrix.stored = stored_type();
  matrix.name = cursor_.name();
  return matrix;
}

DenseTensor Reader::read_dense() {
  read_header();
  if (header_.field == Field::complex || header_.field == Field::pattern)
    throw UserError(Place::text(cursor_.name(), 1, 1),
                    fmt::format("a dense array needs real values, found {} ones",
                                header_.field == Field::complex ? "complex" : "no"),
                    "use a file with field 'real' or 'integer'");
  const uint64_t elements = uint64_t{header_.rows} * header_.columns;
  constexpr uint64_t kAlwaysAllowed = uint64_t{1} << 20;
  constexpr uint64_t kElementsPerByte = 64;
  if (header_.form == Form::coordinate &&
      elements > std::max(kAlwaysAllowed, kElementsPerByte * text_bytes_))
    throw UserError(Place::text(cursor_.name(), 1, 1),
                    fmt::format("{} x {} is too large to be filled up with zeros from {} bytes",
                                header_.rows, header_.columns, text_bytes_),
                    "store the dense array as 'array' or as .npy");
  DenseTensor tensor;
  tensor.shape = {header_.rows, header_.columns};
  tensor.stored = stored_type();
  tensor.fortran_order = header_.form == Form::array;
  tensor.values.resize(elements, 0.0);
  const auto put = [&](uint32_t row, uint32_t column, Value value, const char*) {
    tensor.values[uint64_t{row} * header_.columns + column] += value.real;
  };
  if (header_.form == Form::coordinate)
    read_coordinates(put);
  else
    read_array(put);
  return tensor;
}

} // namespace

Matrix read_matrix_market(std::string_view text, const std::string& name,
                          const ReadOptions& options) {
  return Reader(text, name, options).read_matrix();
}

DenseTensor read_matrix_market_dense(std::string_view text, const std::string& name,
                                     const ReadOptions& options) {
  ReadOptions dense_options = options;
  dense_options.allow_nonfinite = true;
  return Reader(text, name, dense_options).read_dense();
}

} // namespace sparsertc
