// The check of a colouring, from the definition and by sorting: no code in common with what
// colours.
#include "compiler/pattern/colouring.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace sparsertc {
namespace {

struct Entry {
  uint32_t row = 0;
  uint32_t column = 0;
  uint32_t column_colour = 0; ///< 0 on a side that is not coloured
  uint32_t row_colour = 0;
  bool is_alone_in_row = false;    ///< no other entry of its row has its column's colour
  bool is_alone_in_column = false; ///< no other entry of its column has its row's colour
};

std::optional<std::string> check_shape(std::string_view what, uint64_t expected, uint32_t colours,
                                       const std::vector<uint32_t>& colour) {
  if (colour.size() != expected)
    return fmt::format("{} {}s, but {} colours of {}s", expected, what, colour.size(), what);
  std::vector<bool> is_used(uint64_t{colours} + 1, false);
  for (size_t v = 0; v < colour.size(); ++v) {
    if (colour[v] > colours)
      return fmt::format("{} {} has colour {} of {}", what, v, colour[v], colours);
    is_used[colour[v]] = true;
  }
  for (uint32_t c = 1; c <= colours; ++c)
    if (!is_used[c])
      return fmt::format("no {} has colour {} of {}", what, c, colours);
  return std::nullopt;
}

/// Sets `alone` of the entries whose `line` and `colour` no other has; colour 0 is never alone.
void mark_alone(std::vector<Entry>& entries, uint32_t Entry::*line, uint32_t Entry::*colour,
                bool Entry::*alone) {
  const auto key = [&](const Entry& entry) {
    return std::array{entry.*line, entry.*colour, entry.row, entry.column};
  };
  std::sort(entries.begin(), entries.end(),
            [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
  const auto is_like = [&](const Entry& a, const Entry& b) {
    return a.*line == b.*line && a.*colour == b.*colour;
  };
  for (size_t k = 0; k < entries.size(); ++k)
    entries[k].*alone = entries[k].*colour != 0 &&
                        (k == 0 || !is_like(entries[k - 1], entries[k])) &&
                        (k + 1 == entries.size() || !is_like(entries[k], entries[k + 1]));
}

/// "columns 5 and 7 have colour 2", for an entry that is not alone, or why it has no colour.
std::string describe_conflict(const std::vector<Entry>& entries, const Entry& entry,
                              uint32_t Entry::*line, uint32_t Entry::*vertex,
                              uint32_t Entry::*colour, std::string_view what) {
  if (entry.*colour == 0)
    return fmt::format("{} {} has no colour", what, entry.*vertex);
  for (const Entry& other : entries)
    if (other.*line == entry.*line && other.*colour == entry.*colour &&
        other.*vertex != entry.*vertex) {
      const auto [first, second] = std::minmax(entry.*vertex, other.*vertex);
      return fmt::format("{}s {} and {} have colour {}", what, first, second, entry.*colour);
    }
  return {};
}

} // namespace

std::optional<std::string> find_conflict(const Pattern& pattern, const Colouring& colouring) {
  const bool has_columns = colouring.side != ColouringSide::row;
  const bool has_rows = colouring.side != ColouringSide::column;
  if (auto fault = check_shape("column", has_columns ? pattern.columns : 0,
                               colouring.column_colours, colouring.column_colour))
    return fault;
  if (auto fault = check_shape("row", has_rows ? pattern.rows : 0, colouring.row_colours,
                               colouring.row_colour))
    return fault;

  std::vector<Entry> entries;
  entries.reserve(pattern.nnz());
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (const uint32_t column : pattern.row(row))
      entries.push_back({.row = row,
                         .column = column,
                         .column_colour = has_columns ? colouring.column_colour[column] : 0,
                         .row_colour = has_rows ? colouring.row_colour[row] : 0});
  mark_alone(entries, &Entry::column, &Entry::row_colour, &Entry::is_alone_in_column);
  mark_alone(entries, &Entry::row, &Entry::column_colour, &Entry::is_alone_in_row);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.row, a.column) < std::pair(b.row, b.column);
  });
  for (const Entry& entry : entries) {
    if (entry.is_alone_in_row || entry.is_alone_in_column)
      continue;
    std::string text;
    if (has_columns)
      text = fmt::format("row {}: {}", entry.row,
                         describe_conflict(entries, entry, &Entry::row, &Entry::column,
                                           &Entry::column_colour, "column"));
    if (has_rows)
      text += fmt::format("{}column {}: {}", has_columns ? "; " : "", entry.column,
                          describe_conflict(entries, entry, &Entry::column, &Entry::row,
                                            &Entry::row_colour, "row"));
    return text;
  }
  return std::nullopt;
}

} // namespace sparsertc
