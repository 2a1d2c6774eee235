// The bitmap stream of weights for few columns of B: what a tensor core multiplies densely lies in
// memory without the pairs of neighbours that are both zero, as a bit for each pair and the pairs
// that are left. (That memory decides with few columns, and that tensor cores can multiply what is
// expanded on the way: Xia et al., "Flash-LLM", PVLDB 17, 2023; Fan et al., "SpInfer", EuroSys
// 2025, whose bits are of single weights.)
//
//   tile    16 rows x 16 columns, a fragment `a` of an mma: 4 pairs of weights for each lane
//   chunk   8 tiles side by side: a word of bits for each lane, 4 bits a tile
//   stage   `chunks` chunks side by side, which are copied to shared memory together:
//             head    a word a lane and chunk | the place of each tile's first pair, 16 bits |
//                     where the stage lies that is copied while this one is multiplied, its bytes
//             pairs   those that are left: tile after tile, lane after lane
//
// So a lane finds its pairs of a tile behind those of the lanes before it, whose bits it counts.
// A warp has `stages` stages of one row of tiles, then those of the next, `row_tiles` of them; a
// block's warps have different rows of tiles or parts of K, the blocks of a cluster parts of K.
// The first `leads` stages of all warps are at equal distances, so that they can be fetched before
// anything else is known.
#pragma once

#include "compiler/pattern/pattern.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

struct BitmapStream {
  static constexpr uint32_t kTile = 16;       ///< rows and columns
  static constexpr uint32_t kPairsOfLane = 4; ///< in a tile
  static constexpr uint32_t kPairBytes = 4;
  static constexpr uint32_t kTilesOfChunk = 8;
  static constexpr uint32_t kChunkColumns = kTile * kTilesOfChunk;

  uint32_t chunks = 1;
  uint32_t stages = 1;    ///< of a row of tiles
  uint32_t row_tiles = 1; ///< of a warp
  uint32_t row_warps = 1; ///< of a block, with different rows
  uint32_t parts = 1;     ///< of K in a block
  uint32_t ranks = 1;     ///< blocks of a cluster, with different parts of K
  uint32_t row_blocks = 1;
  uint32_t leads = 1;
  uint32_t lead_bytes = 0; ///< most bytes of pairs in the first stages
  uint32_t pair_bytes = 0; ///< most in any stage
  uint64_t pairs = 0;      ///< that are left
  uint64_t bytes = 0;      ///< of the stream

  uint32_t warps() const { return row_warps * parts; } ///< of a block
  uint32_t all_warps() const { return row_blocks * ranks * warps(); }
  uint32_t stages_of_warp() const { return stages * row_tiles; }
  uint32_t block_rows() const { return kTile * row_warps * row_tiles; }
  uint32_t stage_columns() const { return chunks * kChunkColumns; }
  uint32_t part_columns() const { return stages * stage_columns(); }
  uint32_t rank_columns() const { return part_columns() * parts; }

  uint32_t places_offset() const { return chunks * 128; }
  uint32_t next_offset() const { return places_offset() + chunks * kTilesOfChunk * 2; }
  uint32_t head_bytes() const { return next_offset() + 16; }
  uint32_t lead_stage_bytes() const { return head_bytes() + lead_bytes; }
  /// What all leading stages take.
  uint64_t leads_bytes() const { return uint64_t{all_warps()} * leads * lead_stage_bytes(); }
};

/// Where a stage's weights are in A. Warps count through a block, then through the blocks along y
/// (rank after rank of a cluster, cluster after cluster).
struct BitmapPlace {
  uint32_t row = 0, column = 0; ///< the first
};
BitmapPlace place_of_stage(const BitmapStream& stream, uint32_t warp, uint32_t stage);
/// Where pair `i` of a lane is in a tile.
BitmapPlace place_in_tile(uint32_t lane, uint32_t i);

/// Pairs of each stage that are left, warp after warp.
std::vector<uint32_t> pairs_of_stages(const Pattern& pattern, const BitmapStream& stream);
/// What so many pairs take.
uint32_t bytes_of_pairs(uint32_t pairs);

/// Fills in the sizes.
void size_stream(const Pattern& pattern, BitmapStream& stream);

} // namespace sparsertc
