#include "compiler/pattern/colouring.h"

#include "compiler/pattern/conflict_sets.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace sparsertc {
namespace {

constexpr uint32_t kBits = 64;
constexpr uint32_t kUncoloured = UINT32_MAX;

/// First-fit colouring. The colours that are taken in a set are bits, so that a vertex looks at a
/// word for each set it avoids instead of at all their members. So that memory stays proportional
/// to the entries, a set has bits for eight times as many colours as it has members and 64 more;
/// the members with higher colours are looked up one by one.
class FirstFit {
public:
  explicit FirstFit(const ConflictSets& sets)
      : sets_(sets), colour_(sets.vertices(), kUncoloured), states_(sets.members.rows) {
    uint64_t words = 0;
    for (uint32_t set = 0; set < sets.members.rows; ++set) {
      states_[set].first_word = words;
      states_[set].capacity = static_cast<uint32_t>(sets.members.row_length(set) / 8 + 1);
      words += states_[set].capacity;
    }
    taken_.assign(words, 0);
  }

  void place(uint32_t vertex) {
    const uint32_t colour = first_free(vertex);
    colour_[vertex] = colour;
    colours_ = std::max(colours_, colour + 1);
    const uint32_t word = colour / kBits;
    for (const uint32_t set : sets_.enters.row(vertex)) {
      State& state = states_[set];
      if (word >= state.capacity) {
        state.is_exceeded = true;
        continue;
      }
      uint64_t* const taken = taken_.data() + state.first_word;
      taken[word] |= uint64_t{1} << colour % kBits;
      while (state.full_words < state.capacity && taken[state.full_words] == ~uint64_t{0})
        ++state.full_words;
    }
  }

  uint32_t colours() const { return colours_; }
  /// From 1; 0 where no colour was given.
  std::vector<uint32_t> result() && {
    for (uint32_t& colour : colour_)
      ++colour; // kUncoloured becomes 0
    return std::move(colour_);
  }

private:
  struct State {
    uint64_t first_word = 0;
    uint32_t capacity = 0;
    uint32_t full_words : 31 = 0; ///< that many words from the first have no free colour
    uint32_t is_exceeded : 1 = 0; ///< a member's colour lies beyond the bits
  };

  uint32_t first_free(uint32_t vertex) {
    const auto avoided = sets_.avoids.row(vertex);
    uint32_t word = 0;
    for (const uint32_t set : avoided)
      word = std::max<uint32_t>(word, states_[set].full_words);
    const uint32_t first = word;
    uint64_t free = 0;
    for (;; ++word) {
      uint64_t taken = 0;
      for (const uint32_t set : avoided) {
        const State& state = states_[set];
        if (word < state.capacity)
          taken |= taken_[state.first_word + word];
        else if (state.is_exceeded && word == std::max(first, state.capacity))
          collect(set, word);
      }
      if (word < collected_.size())
        taken |= collected_[word];
      free = ~taken;
      if (free != 0)
        break;
    }
    for (const uint32_t used : collected_words_)
      collected_[used] = 0;
    collected_words_.clear();
    return word * kBits + static_cast<uint32_t>(std::countr_zero(free));
  }

  /// The colours of a set's members, from a word on.
  void collect(uint32_t set, uint32_t from) {
    collected_.resize(colours_ / kBits + 1, 0);
    for (const uint32_t member : sets_.members.row(set)) {
      const uint32_t colour = colour_[member], word = colour / kBits;
      if (colour == kUncoloured || word < from)
        continue;
      collected_[word] |= uint64_t{1} << colour % kBits;
      collected_words_.push_back(word);
    }
  }

  const ConflictSets& sets_;
  std::vector<uint32_t> colour_; ///< from 0
  std::vector<State> states_;
  std::vector<uint64_t> taken_;
  std::vector<uint64_t> collected_;
  std::vector<uint32_t> collected_words_;
  uint32_t colours_ = 0;
};

/// For p = 0, 1, ... the number of entries that rows of these lengths give when each gives p at
/// most.
std::vector<uint64_t> entries_within(const Pattern& pattern) {
  const uint64_t widest = widest_row(pattern);
  std::vector<uint64_t> longer(widest + 1, 0); // rows with more than p entries, for each p
  for (uint32_t row = 0; row < pattern.rows; ++row)
    ++longer[pattern.row_length(row)];
  uint64_t rows = pattern.rows;
  std::vector<uint64_t> result(widest + 1, 0);
  for (uint64_t p = 0; p < widest; ++p) {
    rows -= longer[p];
    result[p + 1] = result[p] + rows;
  }
  return result;
}

} // namespace

std::string_view to_string(ColouringSide side) {
  switch (side) {
  case ColouringSide::column:
    return "column";
  case ColouringSide::row:
    return "row";
  case ColouringSide::star:
    break;
  }
  return "star";
}

std::string_view to_string(ColouringOrder order) {
  switch (order) {
  case ColouringOrder::natural:
    return "natural";
  case ColouringOrder::largest_first:
    return "largest-first";
  case ColouringOrder::smallest_last:
    return "smallest-last";
  case ColouringOrder::incidence_degree:
    break;
  }
  return "incidence-degree";
}

std::vector<uint32_t> colour_greedily(const ConflictSets& sets, const Permutation& order,
                                      uint32_t& count) {
  FirstFit fit(sets);
  for (const uint32_t vertex : order)
    if (sets.is_needed(vertex))
      fit.place(vertex);
  count = fit.colours();
  return std::move(fit).result();
}

std::vector<uint8_t> entries_given(const Pattern& lines, const std::vector<uint32_t>& colour,
                                   uint32_t colours) {
  std::vector<uint8_t> is_given(lines.nnz());
  std::vector<uint32_t> times(uint64_t{colours} + 1, 0);
  for (uint32_t line = 0; line < lines.rows; ++line) {
    for (const uint32_t vertex : lines.row(line))
      ++times[colour[vertex]];
    for (uint64_t k = lines.row_offset[line]; k < lines.row_offset[line + 1]; ++k) {
      const uint32_t own = colour[lines.column_index[k]];
      is_given[k] = own != 0 && times[own] == 1;
    }
    for (const uint32_t vertex : lines.row(line))
      times[colour[vertex]] = 0;
  }
  return is_given;
}

uint64_t widest_row(const Pattern& pattern) {
  uint64_t widest = 0;
  for (uint32_t row = 0; row < pattern.rows; ++row)
    widest = std::max(widest, pattern.row_length(row));
  return widest;
}

Colouring colour_pattern(const Pattern& pattern, ColouringSide side, ColouringOrder order) {
  const Pattern transposed = transpose(pattern);
  const ConflictSets columns{pattern, transposed, transposed}, rows{transposed, pattern, pattern};
  if (side == ColouringSide::star)
    return colour_both_sides(pattern, colouring_order(columns, order),
                             colouring_order(rows, order));
  Colouring result;
  result.side = side;
  if (side == ColouringSide::column)
    result.column_colour =
        colour_greedily(columns, colouring_order(columns, order), result.column_colours);
  else
    result.row_colour = colour_greedily(rows, colouring_order(rows, order), result.row_colours);
  return result;
}

uint64_t colouring_lower_bound(const Pattern& pattern, ColouringSide side) {
  if (side == ColouringSide::column)
    return widest_row(pattern);
  const Pattern transposed = transpose(pattern);
  if (side == ColouringSide::row)
    return widest_row(transposed);
  const std::vector<uint64_t> by_columns = entries_within(pattern);
  const std::vector<uint64_t> by_rows = entries_within(transposed);
  uint64_t least = std::numeric_limits<uint64_t>::max();
  uint64_t q = by_rows.size() - 1;
  for (uint64_t p = 0; p < by_columns.size(); ++p) {
    while (q > 0 && by_columns[p] + by_rows[q - 1] >= pattern.nnz())
      --q;
    if (by_columns[p] + by_rows[q] >= pattern.nnz())
      least = std::min(least, p + q);
  }
  return least;
}

} // namespace sparsertc
