// The compressed stream of weights for few columns of B (decoding: N from 1 to 64), where the bytes
// of the weights decide.
//
// A row's entries become slots: a value, and the distance to the entry before in rows of B as they
// are staged in shared memory. `splitk` parts of the row have nearly the same number of slots each,
// and each part a first place. Distances have 4 or 8 bits, whichever makes the stream smaller for
// the pattern. Between the staged rows of B there are rows of zeros, so close that one is within
// reach of every place: a distance too long for its bits goes by way of one, and slots that only
// fill up a step stand at one. Such a slot multiplies 0 by 0, whatever B holds.
//
//   staged:  0 | rows 0 .. spacing-1 | 0 | rows spacing .. | 0 | ... | last row | 0
//
// The parts are runs of the row, or, where that costs few bytes, classes: part p has the places
// that are p modulo the number of parts which load at the same time, so that their loads are from
// different banks; what a part has no room for goes to another.
#pragma once

#include "compiler/pattern/pattern.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sparsertc {

/// How rows of B lie in shared memory for one width of distances.
struct StagedRows {
  uint32_t delta_bits = 8;
  uint32_t rows = 0; ///< of B

  /// Rows of B between two rows of zeros; divides the threads of every block.
  uint32_t spacing() const { return delta_bits == 8 ? 32 : 8; }
  uint32_t most_delta() const { return (1u << delta_bits) - 1; }
  uint32_t place_of(uint32_t row) const { return row + row / spacing() + 1; }
  /// Places, those of zeros included.
  uint32_t count() const { return rows == 0 ? 1 : place_of(rows - 1) + 2; }
  uint32_t zero_rows() const { return count() - rows; }
  /// The next row of zeros after a place; the last one stays.
  uint32_t zero_after(uint32_t place) const;
  /// Slots without an entry on the way from a place to another.
  uint32_t hops(uint32_t from, uint32_t to) const;
};

/// Entries of a part in one step of the loop.
constexpr uint32_t kCompressedStep = 8;

struct CompressedStream {
  StagedRows staged;
  uint32_t columns_per_block = 1;
  uint32_t lanes_per_part = 1; ///< each with `vec` columns
  uint32_t parts = 1;          ///< of a row in a block
  /// Blocks of a cluster, each with a range of the rows of B (split_begin) and the row's entries
  /// there.
  uint32_t ranks = 1;
  /// Parts that load at the same time; whether they are classes of places.
  uint32_t parts_together = 1;
  bool has_classes = false;
  uint32_t rows_per_warp = 1;
  /// B is staged in the accumulating type.
  bool staged_wide = false;
  /// Every warp's steps begin at a multiple of `stride()`, and its number of steps stands in its
  /// head; else (where rows differ much, so that this would leave much unused) both are in a table.
  bool has_stride = false;
  /// Rows with the most slots first; warp g has `rows_per_warp` of them.
  std::vector<uint32_t> rows;
  /// Of each warp of a rank, rank after rank. Descending where there is one.
  std::vector<uint32_t> steps;
  uint64_t slots = 0; ///< with those that fill up steps
  uint64_t bytes = 0; ///< that are read

  uint32_t warps() const { return static_cast<uint32_t>(steps.size()) / ranks; }
  uint32_t most_steps() const; ///< of any warp
  uint32_t least_steps() const;
  /// Parts a warp works on at once.
  uint32_t parts_of_warp() const { return rows_per_warp * parts; }
  uint32_t delta_bytes() const { return kCompressedStep * staged.delta_bits / 8; }
  /// A word for each of a warp's parts, in whole sectors of memory: the first place in the low
  /// bits, above them the warp's number of steps where `has_stride`.
  static constexpr uint32_t kPlaceBits = 18;
  uint32_t head_bytes() const { return (4 * parts_of_warp() + 31) / 32 * 32; }
  /// Values, then distances, so that the next step's values are aligned again.
  uint32_t step_bytes(uint32_t value_bytes) const {
    return (parts_of_warp() * (kCompressedStep * value_bytes + delta_bytes()) + 15) / 16 * 16;
  }
  /// From warp to warp, where `has_stride`.
  uint64_t stride(uint32_t value_bytes) const {
    return head_bytes() + uint64_t{most_steps()} * step_bytes(value_bytes);
  }
};

/// Bytes of the smaller stream of rows in one run, and its width of distances.
struct CompressedSize {
  uint32_t delta_bits = 8;
  uint64_t bytes = 0;
};
CompressedSize smallest_stream(const Pattern& pattern, uint32_t value_bytes);

/// Chooses between runs (`runs` from smallest_stream) and classes, and the width of distances.
void choose_format(const Pattern& pattern, uint32_t value_bytes, const CompressedSize& runs,
                   CompressedStream& stream);
/// Deals rows to warps.
void deal_to_warps(const Pattern& pattern, uint32_t value_bytes, CompressedStream& stream);

/// Slots of a row with its columns in one run, hops included.
uint64_t slots_of_row(const StagedRows& staged, std::span<const uint32_t> columns);

/// One part of a row as it is stored.
struct CompressedPart {
  static constexpr uint32_t kNoEntry = UINT32_MAX;
  struct Slot {
    uint32_t delta = 0;
    uint32_t entry = kNoEntry; ///< number in the row
  };
  uint32_t first_place = 0;
  std::vector<Slot> slots; ///< `steps` * kCompressedStep of them
};
/// A row's entries in the range of one rank.
struct RankEntries {
  std::span<const uint32_t> columns;
  uint32_t first_entry = 0; ///< their first's number in the row
  uint32_t first_row = 0;   ///< of B
};
RankEntries entries_of(std::span<const uint32_t> columns, uint32_t inner, uint32_t ranks,
                       uint32_t rank);

/// Splits a rank's entries into the stream's parts of `steps` steps; they must be enough.
std::vector<CompressedPart> compress_row(const CompressedStream& stream, const RankEntries& entries,
                                         uint32_t steps);
/// The fewest steps that are enough.
uint32_t steps_of_row(const CompressedStream& stream, const RankEntries& entries);

} // namespace sparsertc
