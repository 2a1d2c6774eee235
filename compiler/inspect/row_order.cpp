#include "compiler/inspect/row_order.h"

#include <algorithm>
#include <span>

namespace sparsertc {
namespace {

/// Steps over entries, one for each eight tiles beside each other, after which rows stay where they
/// are: about a second.
constexpr uint64_t kMostSteps = 200'000'000;
/// Tiles that exchange rows with each other, fewer where there are many columns.
constexpr uint32_t kMostTiles = 512;
constexpr uint64_t kMostCounts = uint64_t{1} << 25;
/// Passes over the rows; the last ones find little.
constexpr uint32_t kMostPasses = 24;
/// Tiles looked at closely for a row: those that miss the fewest of its columns.
constexpr size_t kTilesForRow = 4;
constexpr double kAllowedOverMean = 1.02;

/// Exchanges rows among one run of tiles.
class Exchange {
public:
  Exchange(const Pattern& pattern, std::span<const uint32_t> tile_begin,
           std::vector<uint32_t>& row_order)
      : pattern_(pattern), begin_(tile_begin), tiles_(static_cast<uint32_t>(tile_begin.size()) - 1),
        row_order_(row_order), rows_using_(uint64_t{pattern.columns} * tiles_), work_(tiles_),
        missed_(tiles_), nearest_(tiles_), is_of_row_(pattern.columns) {
    uint64_t all = 0;
    for (uint32_t tile = 0; tile < tiles_; ++tile) {
      for (uint32_t at = begin_[tile]; at < begin_[tile + 1]; ++at)
        for (uint32_t column : pattern_.row(row_order_[at]))
          work_[tile] += use(column, tile)++ == 0 ? 2 : 1;
      all += work_[tile];
    }
    most_work_ = std::max(*std::max_element(work_.begin(), work_.end()),
                          static_cast<uint64_t>(kAllowedOverMean * static_cast<double>(all) /
                                                static_cast<double>(tiles_)));
  }

  /// Takes what it needs from `steps`, and ends when there are none.
  void run(uint64_t& steps) {
    const uint32_t rows = begin_[tiles_] - begin_[0];
    for (uint32_t pass = 0; pass < kMostPasses; ++pass) {
      uint32_t exchanged = 0;
      for (uint32_t tile = 0; tile < tiles_; ++tile)
        for (uint32_t at = begin_[tile]; at < begin_[tile + 1]; ++at)
          exchanged += exchange(tile, at, steps);
      if (steps == 0 || exchanged <= rows / 200)
        return;
    }
  }

private:
  struct Partner {
    uint32_t tile = 0, at = 0;
    int64_t gain = 0;                      ///< fewer columns used, in both tiles together
    int64_t more_here = 0, more_there = 0; ///< work
  };

  uint16_t& use(uint32_t column, uint32_t tile) {
    return rows_using_[uint64_t{column} * tiles_ + tile];
  }

  /// Finds the best partner in another tile for the row at place `at`; true if they were exchanged.
  bool exchange(uint32_t here, uint32_t at, uint64_t& steps) {
    const auto row = pattern_.row(row_order_[at]);
    const uint64_t needed = row.size() * (tiles_ / 8 + 1);
    if (row.empty() || steps == 0)
      return false;
    steps -= std::min(steps, needed);
    int64_t alone = 0; // columns that only this row uses here
    std::fill(missed_.begin(), missed_.end(), 0);
    for (uint32_t column : row) {
      const uint16_t* uses = &use(column, 0);
      alone += uses[here] == 1;
      uint32_t* missed = missed_.data();
      for (uint32_t tile = 0; tile < tiles_; ++tile)
        missed[tile] += uses[tile] == 0;
    }
    nearest_.clear();
    for (uint32_t tile = 0; tile < tiles_; ++tile)
      if (tile != here)
        nearest_.push_back(tile);
    const size_t count = std::min(kTilesForRow, nearest_.size());
    std::partial_sort(nearest_.begin(), nearest_.begin() + static_cast<ptrdiff_t>(count),
                      nearest_.end(), [&](uint32_t a, uint32_t b) {
                        return missed_[a] != missed_[b] ? missed_[a] < missed_[b] : a < b;
                      });
    for (uint32_t column : row)
      is_of_row_[column] = 1;
    Partner best;
    for (size_t i = 0; i < count; ++i)
      look_for_partner(here, row.size(), alone, nearest_[i], best, steps);
    for (uint32_t column : row)
      is_of_row_[column] = 0;
    if (best.gain <= 0)
      return false;
    work_[here] += static_cast<uint64_t>(best.more_here);
    work_[best.tile] += static_cast<uint64_t>(best.more_there);
    move(row_order_[at], here, best.tile);
    move(row_order_[best.at], best.tile, here);
    std::swap(row_order_[at], row_order_[best.at]);
    return true;
  }

  /// The row of `length` columns, marked, leaves tile `here`, where it is `alone` with some, for
  /// `there`; a row of `there` takes its place.
  void look_for_partner(uint32_t here, size_t length, int64_t alone, uint32_t there, Partner& best,
                        uint64_t& steps) {
    for (uint32_t at = begin_[there]; at < begin_[there + 1]; ++at) {
      const auto other = pattern_.row(row_order_[at]);
      steps -= std::min<uint64_t>(steps, other.size());
      int64_t used_here = -alone, used_there = missed_[there];
      for (uint32_t column : other) {
        const uint16_t is_shared = is_of_row_[column];
        used_there -= use(column, there) + is_shared == 1;
        used_here += use(column, here) == is_shared;
      }
      const int64_t gain = -(used_here + used_there);
      if (gain <= best.gain)
        continue;
      const int64_t longer = static_cast<int64_t>(other.size()) - static_cast<int64_t>(length);
      const int64_t more_here = used_here + longer, more_there = used_there - longer;
      if (may_take(here, more_here) && may_take(there, more_there))
        best = {there, at, gain, more_here, more_there};
    }
  }
  bool may_take(uint32_t tile, int64_t more) const {
    return more <= 0 || work_[tile] + static_cast<uint64_t>(more) <= most_work_;
  }
  void move(uint32_t row, uint32_t from, uint32_t to) {
    for (uint32_t column : pattern_.row(row)) {
      --use(column, from);
      ++use(column, to);
    }
  }

  const Pattern& pattern_;
  std::span<const uint32_t> begin_;
  uint32_t tiles_;
  std::vector<uint32_t>& row_order_;
  std::vector<uint16_t> rows_using_; ///< of each column, by tile
  std::vector<uint64_t> work_;
  uint64_t most_work_ = 0;
  std::vector<uint32_t> missed_;  ///< by tile: columns of a row that none of its rows uses
  std::vector<uint32_t> nearest_; ///< tiles
  std::vector<uint8_t> is_of_row_;
};

} // namespace

void bring_similar_rows_together(const Pattern& pattern, const std::vector<uint32_t>& tile_begin,
                                 std::vector<uint32_t>& row_order) {
  const auto tiles = static_cast<uint32_t>(tile_begin.size()) - 1;
  const uint64_t fitting = kMostCounts / std::max(1u, pattern.columns);
  const uint32_t at_once = static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 2, kMostTiles));
  uint64_t steps = kMostSteps;
  for (uint32_t first = 0; first < tiles; first += at_once) {
    const uint32_t count = std::min(at_once, tiles - first);
    const uint64_t counts = uint64_t{count} * pattern.columns;
    if (counts > kMostCounts || steps < counts / 8)
      break;
    steps -= counts / 8;
    Exchange(pattern, std::span(tile_begin).subspan(first, count + 1), row_order).run(steps);
  }
  for (uint32_t tile = 0; tile < tiles; ++tile)
    std::sort(row_order.begin() + tile_begin[tile], row_order.begin() + tile_begin[tile + 1]);
}

} // namespace sparsertc
