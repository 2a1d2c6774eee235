#include "compiler/lower/bitmap_tables.h"

#include "compiler/lower/spmm_symbols.h"
#include "ir/error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace sparsertc {
namespace {

constexpr uint32_t kWarp = 32, kUnit = 16; ///< bytes in which stages are counted

/// A pair of weights that may be zero; both are where there is no entry.
struct Pair {
  double low = 0, high = 0;
  bool is_there = false;
};

class StageWriter {
public:
  StageWriter(const SpmmSchedule& schedule, const Pattern& pattern,
              const std::vector<double>& weights)
      : stream_(schedule.bitmap), type_(schedule.problem.type), pattern_(pattern),
        weights_(weights) {}

  /// Head and pairs; what is in the head of the stage fetched meanwhile is left zero.
  std::vector<uint8_t> write(uint32_t warp, uint32_t stage) const {
    const BitmapPlace place = place_of_stage(stream_, warp, stage);
    std::vector<uint32_t> bits(size_t{stream_.chunks} * kWarp, 0);
    std::vector<uint16_t> places;
    std::vector<uint8_t> pairs;
    for (uint32_t tile = 0; tile < stream_.chunks * BitmapStream::kTilesOfChunk; ++tile) {
      places.push_back(static_cast<uint16_t>(pairs.size()));
      const auto all = pairs_of_tile(place.row, place.column + tile * BitmapStream::kTile);
      for (uint32_t lane = 0; lane < kWarp; ++lane)
        for (uint32_t i = 0; i < BitmapStream::kPairsOfLane; ++i) {
          const Pair& pair = all[lane * BitmapStream::kPairsOfLane + i];
          if (!pair.is_there)
            continue;
          const uint32_t bit = tile % BitmapStream::kTilesOfChunk * BitmapStream::kPairsOfLane + i;
          bits[size_t{tile / BitmapStream::kTilesOfChunk} * kWarp + lane] |= 1u << bit;
          put_value(pairs, type_, pair.low);
          put_value(pairs, type_, pair.high);
        }
    }
    std::vector<uint8_t> bytes;
    for (const uint32_t word : bits)
      put_bytes(bytes, word);
    for (const uint16_t first : places)
      put_bytes(bytes, first);
    bytes.resize(stream_.head_bytes(), 0);
    pairs.resize((pairs.size() + kUnit - 1) / kUnit * kUnit, 0);
    bytes.insert(bytes.end(), pairs.begin(), pairs.end());
    return bytes;
  }

private:
  using Tile = std::array<Pair, kWarp * BitmapStream::kPairsOfLane>;

  Tile pairs_of_tile(uint32_t first_row, uint32_t first_column) const {
    Tile all;
    for (uint32_t row = 0; row < BitmapStream::kTile && first_row + row < pattern_.rows; ++row) {
      const std::span<const uint32_t> columns = pattern_.row(first_row + row);
      auto at = std::lower_bound(columns.begin(), columns.end(), first_column);
      for (; at != columns.end() && *at < first_column + BitmapStream::kTile; ++at) {
        const uint32_t column = *at - first_column;
        // The inverse of place_in_tile().
        const uint32_t lane = row % 8 * 4 + column % 8 / 2, i = row / 8 + column / 8 * 2;
        Pair& pair = all[lane * BitmapStream::kPairsOfLane + i];
        pair.is_there = true;
        (column % 2 == 0 ? pair.low : pair.high) =
            weights_[pattern_.row_offset[first_row + row] +
                     static_cast<size_t>(at - columns.begin())];
      }
    }
    return all;
  }

  const BitmapStream& stream_;
  DataType type_;
  const Pattern& pattern_;
  const std::vector<double>& weights_;
};

void set_word(std::vector<uint8_t>& bytes, uint64_t at, uint64_t word) {
  const auto value = static_cast<uint32_t>(word);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

} // namespace

std::vector<uint8_t> bitmap_stream_bytes(const SpmmSchedule& schedule, const Pattern& pattern,
                                         const std::vector<double>& weights) {
  const BitmapStream& stream = schedule.bitmap;
  const StageWriter writer(schedule, pattern, weights);
  std::vector<uint8_t> bytes(stream.leads_bytes(), 0);
  bytes.reserve(stream.bytes);
  for (uint32_t warp = 0; warp < stream.all_warps(); ++warp) {
    std::vector<uint64_t> begin; // of each stage
    for (uint32_t stage = 0; stage < stream.stages_of_warp(); ++stage) {
      const std::vector<uint8_t> written = writer.write(warp, stage);
      if (stage < stream.leads) {
        begin.push_back((uint64_t{warp} * stream.leads + stage) * stream.lead_stage_bytes());
        std::copy(written.begin(), written.end(),
                  bytes.begin() + static_cast<ptrdiff_t>(begin.back()));
        continue;
      }
      begin.push_back(bytes.size());
      bytes.insert(bytes.end(), written.begin(), written.end());
      const uint64_t teller = begin[stage - stream.leads] + stream.next_offset();
      set_word(bytes, teller, begin.back() / kUnit);
      set_word(bytes, teller + 4, written.size() - stream.head_bytes());
    }
  }
  if (bytes.size() != stream.bytes)
    throw InternalError("the bitmap stream has not the length that was planned");
  return bytes;
}

} // namespace sparsertc
