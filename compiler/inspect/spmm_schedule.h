// The decisions about one SpMM: strategy, tile parameters, which rows a tile has, and what that
// costs.
#pragma once

#include "compiler/emit/target.h"
#include "compiler/input/matrix.h"
#include "compiler/inspect/bitmap_stream.h"
#include "compiler/inspect/compressed_stream.h"
#include "compiler/inspect/output_pixels.h"
#include "compiler/inspect/panel_packing.h"
#include "compiler/inspect/spmm_problem.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

enum class Strategy : uint8_t {
  unrolled,   ///< straight-line code: columns are address offsets, weights are operands
  streamed,   ///< a loop over indices and values in memory; rows and their lengths are known
  compressed, ///< a stream of values and short distances for few columns; B in shared memory
  panels,     ///< sparse fragments on tensor cores: rows of a panel share an order of columns
  bitmap,     ///< bits and pairs of weights, expanded for tensor cores; few columns
  dense,      ///< all of A, zeros included: a dense library, or a kernel like its own
};
enum class Stage : uint8_t {
  global, ///< B is loaded where it is used
  smem,   ///< chunks of B's rows are copied to shared memory ahead of their use
};
enum class WeightOperand : uint8_t {
  immediate,     ///< in the instruction
  constant_bank, ///< in the 64 KB constant bank
};

/// Of a convolution with output pixels of both kinds (output_pixels.h).
enum class BorderCode : uint8_t {
  own,    ///< the interior has code that asks nothing, the border code of its own
  shared, ///< all pixels run the code of the border, one column a thread
};

/// Which rows share a tile of unrolled code, all of which have nearly the same work.
enum class RowOrder : uint8_t {
  natural, ///< dealt by length alone
  similar, ///< and then exchanged so that rows of a tile use the same columns (row_order.h)
};

/// Of the dense strategy.
enum class DenseCode : uint8_t {
  library, ///< cuBLAS where it is found when the code is loaded, else as `own`
  own,     ///< the kernel that is made here
};

std::string_view name_of(Strategy strategy);
std::string_view name_of(Stage stage);
std::string_view name_of(BorderCode border);
std::string_view name_of(DenseCode code);
std::string_view name_of(RowOrder order);
std::string_view name_of(WeightOperand weights);

/// Tile parameters, the words of `--tile=rows=32,vec=1,...` (also in records, reports, the C API).
/// On a GPU a block has 32*warps threads along columns (x), `groups` tiles along rows (y) and
/// `splitk` parts of K (z); `cluster` blocks side by side along y have further parts of K for the
/// same rows. On the host a block is one group of vector lanes and does all parts itself.
struct SpmmTile {
  Strategy strategy = Strategy::unrolled;
  uint32_t rows = 32;  ///< rows of C a thread computes
  uint32_t vec = 1;    ///< columns of C a thread computes
  uint32_t warps = 4;  ///< warps along N
  uint32_t groups = 1; ///< row tiles in a block
  uint32_t splitk = 1; ///< parts of K in a block
  /// Blocks of a cluster, each with `splitk` parts of K of its own: 1, 2, 4 or 8.
  uint32_t cluster = 1;
  Stage stage = Stage::global;
  uint32_t chunk = 32; ///< smem: rows of B in one copy, of a convolution channels
  uint32_t prefetch =
      8; ///< loads of B issued ahead of their use (smem: chunks in flight, at least 2)
  WeightOperand weights = WeightOperand::immediate;
  /// Nothing where there is nothing to choose: products of matrices, pixels of one kind alone.
  std::optional<BorderCode> border;
  /// Of the dense strategy alone.
  std::optional<DenseCode> dense;
  /// Of unrolled code alone.
  std::optional<RowOrder> order;

  /// Parts of K, summed in ascending order at the end; block r of a cluster has parts r * splitk,
  /// r * splitk + 1, ...
  uint32_t parts() const { return splitk * cluster; }
};

/// What the user fixed; everything else is chosen.
struct SpmmTileChoice {
  std::optional<Strategy> strategy;
  std::optional<uint32_t> rows, vec, warps, groups, splitk, cluster, chunk, prefetch;
  std::optional<Stage> stage;
  std::optional<WeightOperand> weights;
  std::optional<BorderCode> border;
  std::optional<DenseCode> dense;
  std::optional<RowOrder> order;
};
/// Parses "rows=64,vec=1,..."; throws UsageError naming the word and the known ones.
SpmmTileChoice parse_tile_choice(std::string_view text);
/// "strategy=unrolled,rows=32,vec=1,..." in a fixed order; parses back.
std::string to_string(const SpmmTile& tile);

/// What the schedule costs, counted from the pattern.
struct SpmmPrediction {
  uint64_t multiply_adds = 0; ///< fused multiply-adds in the code (all tiles)
  uint64_t loads = 0;         ///< loads of B in the code
  uint64_t instructions = 0;  ///< estimated instructions of the code
  uint64_t code_bytes = 0;    ///< 16 bytes an instruction
  uint64_t data_bytes = 0;    ///< indices, values and constants in memory
  double balance = 1.0;       ///< work of the heaviest tile over the mean
  /// Loads with the rows in the other order; nothing where that was not looked at.
  std::optional<uint64_t> loads_in_other_order;
  /// Of these the code for the border of a convolution.
  uint64_t border_multiply_adds = 0;
  uint64_t border_loads = 0;
  /// Multiply-adds for each non-zero and column of a thread. Of unrolled code 1, of convolutions
  /// whose border has code of its own more, and below 2 unless --tile asked for that with one
  /// column a thread; 0 where the code does not grow with the non-zeros, or there are none.
  double multiply_adds_ratio = 0;
};

/// How many blocks along x a launch needs for one kind of block: n times `items`, in parts of
/// `items_per_block`. n is the number of columns, of a convolution the number of images.
struct GridRange {
  uint64_t items = 1;
  uint32_t items_per_block = 1;
  uint64_t blocks(uint64_t n) const { return (n * items + items_per_block - 1) / items_per_block; }
};

/// Blocks along x that find their columns alike and run the same code. The ranges of a schedule
/// follow one another along x.
struct BlockRange {
  GridRange grid;
  /// The code asks which taps are inside the image.
  bool border = false;
  /// The output pixels that are columns, in this order, image after image; empty for SpMM. On a
  /// GPU the items are pixels; on the host, where a block takes part of a line of the only set (or
  /// a single pixel, where lines are shorter than a block), they are blocks.
  std::vector<PixelSet> pixels;
};

struct SpmmSchedule {
  /// As it is lowered: a convolution that is a product of matrices stands here as that product.
  SpmmProblem problem;
  /// As it was asked for, with leading dimensions filled in.
  SpmmProblem request;
  Target target;
  SpmmTile tile;
  uint32_t rows = 0;  ///< M
  uint32_t inner = 0; ///< K
  /// Rows in tile order (a permutation of 0..M-1); tile t has row_order[tile_begin[t] ..
  /// tile_begin[t+1]).
  std::vector<uint32_t> row_order;
  std::vector<uint32_t> tile_begin = {0};
  SpmmPrediction prediction;
  /// Sentences for the user: why a strategy was refused, what was clamped.
  std::vector<std::string> remarks;

  /// Threads of a block along columns: 32*warps, or the host's vector lanes.
  uint32_t threads_x = 32;
  /// A thread's `vec` columns are neighbours (vector accesses); otherwise they are threads_x apart,
  /// so that each access of a warp, or of a group of lanes, is contiguous.
  bool neighbouring_columns = false;
  /// Some thread's columns may lie beyond N: loads are clamped, stores guarded.
  bool guarded = true;
  /// ldb and ldc are kernel parameters (dynamic N, row-major, not given).
  bool leading_dimension_parameters = false;
  /// At least one. Convolutions have one of interior and one of border blocks (on the host one for
  /// each set of pixels), or only one of the two.
  std::vector<BlockRange> ranges;
  /// Of a convolution that is not a product of matrices.
  OutputPixels pixels;
  /// Columns for each unit of n where n is not the number of columns itself.
  uint32_t columns_per_n = 1;
  /// Convolution: border sums go through this many channels tap by tap, then through the next.
  /// Given by the pattern alone, since it sets the order of summation.
  uint32_t border_channels = 1;
  /// Of the compressed strategy.
  CompressedStream stream;
  /// Of the panels strategy.
  PanelPacking panels;
  /// Of the bitmap strategy.
  BitmapStream bitmap;
  /// The code being written is that of border blocks (variant_of).
  bool asks_taps = false;

  uint32_t columns_per_block() const { return threads_x * tile.vec; }
  uint32_t tile_count() const { return static_cast<uint32_t>(tile_begin.size()) - 1; }
  /// Blocks along rows, a cluster counted as one.
  uint32_t row_blocks() const { return (tile_count() + tile.groups - 1) / tile.groups; }
};

/// Most multiply-adds in unrolled code, and most elements that it may store, before the streamed
/// strategy is taken. On a GPU they are counted per thread, non-zeros or rows times columns a
/// thread; on the host, where `vec` follows from the strategy, non-zeros and rows count (times
/// `vec` where the user gave it).
constexpr uint64_t kDefaultGpuBudget = 262144;
constexpr uint64_t kDefaultHostBudget = 4096;

/// Chooses the strategy and the tile. `budget` of 0 means the target's default.
/// Throws UsageError for combinations that cannot be (with what could).
SpmmSchedule schedule_spmm(const Matrix& weights, const SpmmProblem& problem, const Target& target,
                           const SpmmTileChoice& choice = {}, uint64_t budget = 0);

/// Deals the rows, longest first, back and forth over the tiles: each tile gets at most `tile.rows`
/// rows and nearly the same work. Within a tile rows ascend.
void deal_rows_by_length(const Pattern& pattern, SpmmSchedule& schedule);

/// The schedule of the interior's or the border's code: columns of a thread, guards, taps.
SpmmSchedule variant_of(const SpmmSchedule& schedule, const BlockRange& range);
/// Of the taps of a convolution over all border blocks.
std::vector<TapClass> border_taps(const SpmmSchedule& schedule);

/// Counts what the code of a schedule holds.
SpmmPrediction predict_spmm(const Pattern& pattern, const SpmmSchedule& schedule);

/// Bytes of one asynchronous copy of B to shared memory (16, 8 or 4), 0 where the alignment of the
/// problem allows none.
uint32_t staging_piece_bytes(const SpmmSchedule& schedule);
/// Shared memory of a block: staged chunks of B, or partial sums.
uint64_t shared_bytes(const SpmmSchedule& schedule);
/// Of these, for unrolled and streamed code, what staging takes, and what parts of K take.
uint64_t staging_bytes(const SpmmSchedule& schedule);
uint64_t exchange_bytes(const SpmmSchedule& schedule);
/// Streamed: entries of a row in one step of the loop (`prefetch` 8 or more: 8, else 4).
uint32_t streamed_entries_per_step(const SpmmTile& tile);

/// First column of part `part` of K: parts are equal ranges of columns, so that the order in which
/// a row is summed depends on their number alone, not on tiles or target.
uint32_t split_begin(uint32_t inner, uint32_t parts, uint32_t part);

} // namespace sparsertc
