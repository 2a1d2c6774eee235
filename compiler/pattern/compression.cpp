#include "compiler/pattern/compression.h"

#include "compiler/pattern/permutation.h"
#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc {
namespace {

constexpr uint64_t kNowhere = UINT64_MAX;

/// Calls found(entry, line, colour) for each entry that is alone with its vertex's colour in its
/// line. Row s of `lines` lists the vertices that have an entry in line s.
template <class Found>
void for_each_alone(const Pattern& lines, const std::vector<uint32_t>& colour, uint32_t colours,
                    const Found& found) {
  std::vector<uint32_t> times(uint64_t{colours} + 1, 0);
  for (uint32_t line = 0; line < lines.rows; ++line) {
    for (const uint32_t vertex : lines.row(line))
      ++times[colour[vertex]];
    for (uint64_t k = lines.row_offset[line]; k < lines.row_offset[line + 1]; ++k) {
      const uint32_t own = colour[lines.column_index[k]];
      if (own != 0 && times[own] == 1)
        found(k, line, own);
    }
    for (const uint32_t vertex : lines.row(line))
      times[colour[vertex]] = 0;
  }
}

} // namespace

uint64_t compressed_size(const Pattern& pattern, const Colouring& colouring) {
  return uint64_t{colouring.column_colours} * pattern.rows +
         uint64_t{colouring.row_colours} * pattern.columns;
}

std::vector<uint64_t> decompression_source(const Pattern& pattern, const Colouring& colouring) {
  std::vector<uint64_t> source(pattern.nnz(), kNowhere);
  if (colouring.side != ColouringSide::column) {
    std::vector<uint64_t> entry;
    const Pattern transposed = transpose(pattern, &entry);
    const uint64_t begin = uint64_t{colouring.column_colours} * pattern.rows;
    for_each_alone(transposed, colouring.row_colour, colouring.row_colours,
                   [&](uint64_t k, uint32_t column, uint32_t colour) {
                     source[entry[k]] = begin + (colour - uint64_t{1}) * pattern.columns + column;
                   });
  }
  if (colouring.side != ColouringSide::row)
    for_each_alone(pattern, colouring.column_colour, colouring.column_colours,
                   [&](uint64_t k, uint32_t row, uint32_t colour) {
                     source[k] = (colour - uint64_t{1}) * pattern.rows + row;
                   });
  for (uint64_t k = 0; k < source.size(); ++k)
    if (source[k] == kNowhere)
      throw InternalError(fmt::format("a colouring does not give entry {} of its pattern", k));
  return source;
}

} // namespace sparsertc
