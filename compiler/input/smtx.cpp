// The .smtx format of the Deep Learning Matrix Collection: "M, K, NNZ"; M + 1 row offsets; NNZ
// column indices; all zero-based, no values.
#include "compiler/input/readers.h"
#include "compiler/input/text_cursor.h"

#include <fmt/format.h>

namespace sparsertc {

Matrix read_smtx(std::string_view text, const std::string& name, const ReadOptions&) {
  TextCursor cursor(text, name);
  constexpr const char* kHeader = "the first line is 'ROWS, COLUMNS, NONZEROS'";
  const auto take_comma = [&](const char* after) {
    if (!cursor.take(','))
      cursor.fail(
          cursor.here(),
          fmt::format("expected ',' after {}, found {}", after, cursor.found_at(cursor.here())),
          kHeader);
  };

  cursor.skip_blanks();
  if (cursor.at_end())
    cursor.fail(cursor.here(), "the file is empty", kHeader);
  const char* const rows_at = cursor.here();
  const uint64_t rows = cursor.take_unsigned("the number of rows", kMaximumDimension);
  take_comma("the number of rows");
  cursor.skip_blanks();
  const char* const columns_at = cursor.here();
  const uint64_t columns = cursor.take_unsigned("the number of columns", kMaximumDimension);
  take_comma("the number of columns");
  cursor.skip_blanks();
  const char* const nnz_at = cursor.here();
  const uint64_t nnz = cursor.take_unsigned("the number of non-zeros", UINT64_MAX);
  cursor.expect_line_end("the header");

  // A number takes at least a digit and a separator: what cannot be there is refused before memory
  // is taken for it.
  const uint64_t most_numbers = cursor.bytes_left() / 2 + 1;
  if (rows + 1 > most_numbers)
    cursor.fail(
        rows_at,
        fmt::format("{} rows are promised, but only {} bytes follow", rows, cursor.bytes_left()),
        "the file is truncated or its header wrong");
  check_dimension(columns, "columns", text.size(), cursor.place_of(columns_at));
  if (nnz > most_numbers)
    cursor.fail(nnz_at,
                fmt::format("{} non-zeros are promised, but only {} bytes follow", nnz,
                            cursor.bytes_left()),
                "the file is truncated or its header wrong");
  if (rows == 0 || columns == 0 ? nnz > 0 : nnz / rows > columns)
    cursor.fail(nnz_at,
                fmt::format("{} non-zeros do not fit in {} x {} positions", nnz, rows, columns));

  Matrix matrix;
  matrix.name = name;
  Pattern& pattern = matrix.pattern;
  pattern.rows = static_cast<uint32_t>(rows);
  pattern.columns = static_cast<uint32_t>(columns);
  pattern.row_offset.resize(rows + 1);
  for (uint64_t row = 0; row <= rows; ++row) {
    cursor.skip_blanks();
    const char* const here = cursor.here();
    if (cursor.at_line_end())
      cursor.fail(here, fmt::format("expected {} row offsets (rows + 1), found {}", rows + 1, row));
    const uint64_t offset = cursor.take_unsigned("a row offset", UINT64_MAX);
    if (row == 0 && offset != 0)
      cursor.fail(here, fmt::format("the first row offset must be 0, found {}", offset));
    if (row > 0 && offset < pattern.row_offset[row - 1])
      cursor.fail(here, fmt::format("row offsets must not descend: {} after {}", offset,
                                    pattern.row_offset[row - 1]));
    if (offset > nnz)
      cursor.fail(
          here, fmt::format("row offset {} is beyond the {} non-zeros of the header", offset, nnz));
    if (row == rows && offset != nnz)
      cursor.fail(here, fmt::format("the last row offset must be the number of non-zeros, {}, "
                                    "found {}",
                                    nnz, offset));
    pattern.row_offset[row] = offset;
  }
  cursor.expect_line_end("the row offsets");

  pattern.column_index.resize(nnz);
  uint64_t entry = 0;
  for (uint64_t row = 0; row < rows; ++row) {
    for (; entry < pattern.row_offset[row + 1]; ++entry) {
      cursor.skip_blanks();
      const char* const here = cursor.here();
      if (cursor.at_line_end())
        cursor.fail(here, fmt::format("expected {} column indices, found {}", nnz, entry));
      const uint64_t column = cursor.take_unsigned("a column index", UINT64_MAX);
      if (column >= columns)
        cursor.fail(here, fmt::format("column index {} in row {} is out of range: {} columns, "
                                      "counted from 0",
                                      column, row, columns));
      if (entry > pattern.row_offset[row] && column <= pattern.column_index[entry - 1])
        cursor.fail(here,
                    fmt::format("column indices must ascend within a row: {} after {} in row {}",
                                column, pattern.column_index[entry - 1], row),
                    "sort the columns of each row and remove duplicates");
      pattern.column_index[entry] = static_cast<uint32_t>(column);
    }
  }
  cursor.expect_line_end("the column indices");
  cursor.expect_end("the column indices");
  return matrix;
}

} // namespace sparsertc
