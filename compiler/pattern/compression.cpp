#include "compiler/pattern/compression.h"

#include "compiler/pattern/conflict_sets.h"
#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc {
namespace {

constexpr uint64_t kNowhere = UINT64_MAX;

} // namespace

uint64_t compressed_size(const Pattern& pattern, const Colouring& colouring) {
  return uint64_t{colouring.column_colours} * pattern.rows +
         uint64_t{colouring.row_colours} * pattern.columns;
}

std::vector<uint64_t> decompression_source(const Pattern& pattern, const Colouring& colouring) {
  std::vector<uint64_t> source(pattern.nnz(), kNowhere);
  // Writes where the entries that a side gives stand in its part, which starts at `begin`. Entry k
  // of `lines` is entry (*entry)[k] of the pattern, or k itself.
  const auto take = [&](const Pattern& lines, const std::vector<uint32_t>& colour, uint32_t colours,
                        uint64_t begin, const std::vector<uint64_t>* entry) {
    const std::vector<uint8_t> is_given = entries_given(lines, colour, colours);
    for (uint32_t line = 0; line < lines.rows; ++line)
      for (uint64_t k = lines.row_offset[line]; k < lines.row_offset[line + 1]; ++k)
        if (is_given[k])
          source[entry ? (*entry)[k] : k] =
              begin + (colour[lines.column_index[k]] - uint64_t{1}) * lines.rows + line;
  };
  if (colouring.side != ColouringSide::column) {
    std::vector<uint64_t> entry;
    const Pattern transposed = transpose(pattern, &entry);
    take(transposed, colouring.row_colour, colouring.row_colours,
         uint64_t{colouring.column_colours} * pattern.rows, &entry);
  }
  if (colouring.side != ColouringSide::row)
    take(pattern, colouring.column_colour, colouring.column_colours, 0, nullptr);
  for (uint64_t k = 0; k < source.size(); ++k)
    if (source[k] == kNowhere)
      throw InternalError(fmt::format("a colouring does not give entry {} of its pattern", k));
  return source;
}

} // namespace sparsertc
