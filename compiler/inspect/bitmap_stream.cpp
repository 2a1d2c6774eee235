#include "compiler/inspect/bitmap_stream.h"

#include <algorithm>

namespace sparsertc {
namespace {

/// Of an asynchronous copy.
constexpr uint32_t kPiece = 16;

} // namespace

BitmapPlace place_of_stage(const BitmapStream& stream, uint32_t warp, uint32_t stage) {
  const uint32_t in_block = warp % stream.warps(), block = warp / stream.warps();
  const uint32_t part = in_block % stream.parts, row_warp = in_block / stream.parts;
  const uint32_t rank = block % stream.ranks, row_block = block / stream.ranks;
  const uint32_t row_tile = stage / stream.stages, along = stage % stream.stages;
  return {((row_block * stream.row_tiles + row_tile) * stream.row_warps + row_warp) *
              BitmapStream::kTile,
          ((rank * stream.parts + part) * stream.stages + along) * stream.stage_columns()};
}

BitmapPlace place_in_tile(uint32_t lane, uint32_t i) {
  // Register i of fragment `a`: rows 8 apart, then columns 8 apart.
  return {lane / 4 + i % 2 * 8, lane % 4 * 2 + i / 2 * 8};
}

std::vector<uint32_t> pairs_of_stages(const Pattern& pattern, const BitmapStream& stream) {
  std::vector<uint32_t> pairs(size_t{stream.all_warps()} * stream.stages_of_warp(), 0);
  const uint32_t columns = stream.part_columns();
  for (uint32_t row = 0; row < pattern.rows; ++row) {
    const uint32_t row_of_tiles = row / BitmapStream::kTile;
    const uint32_t row_warp = row_of_tiles % stream.row_warps;
    const uint32_t row_tile = row_of_tiles / stream.row_warps % stream.row_tiles;
    const uint32_t row_block = row_of_tiles / stream.row_warps / stream.row_tiles;
    uint32_t last_pair = UINT32_MAX;
    for (const uint32_t column : pattern.row(row)) {
      if (column / 2 == last_pair)
        continue;
      last_pair = column / 2;
      const uint32_t part = column / columns; // of all ranks
      const uint32_t block = row_block * stream.ranks + part / stream.parts;
      const uint32_t warp =
          (block * stream.row_warps + row_warp) * stream.parts + part % stream.parts;
      const uint32_t stage = row_tile * stream.stages + column % columns / stream.stage_columns();
      ++pairs[size_t{warp} * stream.stages_of_warp() + stage];
    }
  }
  return pairs;
}

uint32_t bytes_of_pairs(uint32_t pairs) {
  return (pairs * BitmapStream::kPairBytes + kPiece - 1) / kPiece * kPiece;
}

void size_stream(const Pattern& pattern, BitmapStream& stream) {
  const std::vector<uint32_t> pairs = pairs_of_stages(pattern, stream);
  stream.lead_bytes = stream.pair_bytes = kPiece;
  stream.pairs = 0;
  uint64_t later = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const uint32_t bytes = bytes_of_pairs(pairs[i]);
    stream.pairs += pairs[i];
    stream.pair_bytes = std::max(stream.pair_bytes, bytes);
    if (i % stream.stages_of_warp() < stream.leads)
      stream.lead_bytes = std::max(stream.lead_bytes, bytes);
    else
      later += stream.head_bytes() + bytes;
  }
  stream.bytes = stream.leads_bytes() + later;
}

} // namespace sparsertc
