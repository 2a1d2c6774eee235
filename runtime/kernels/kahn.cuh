// What the kernels of kahn.cu are given; included by them and by the host's code.
#pragma once

#include "fill2.cuh"

namespace sparsertc::kernels {

/// L+U in compressed rows, of which rows first_row to last_row are on the device: a *part*. What a
/// row waits for stands in smaller rows: levels of earlier parts are final.
struct LevelsArguments {
  uint32_t size; ///< n
  uint32_t first_row;
  uint32_t last_row;
  uint32_t right_looking;     ///< 1: column j waits for k where L(j,k) != 0, too
  const uint64_t* row_offset; ///< size + 1
  const uint64_t* diagonal;   ///< size: the place of (i,i)
  uint64_t first_entry;       ///< the place of columns[0]
  const uint32_t* columns;

  uint32_t* has_lower; ///< size: 1 where the column has entries below the diagonal. Zeros at first.
  uint32_t* missing;   ///< size: what is waited for within the part. Zeros at first.
  uint32_t* level;     ///< size. Zeros at first.

  // The entries of L within the part by columns; where right_looking is 1.
  uint32_t* lower_length; ///< rows of the part. Zeros at first.
  uint64_t* lower_offset; ///< rows of the part + 1
  uint32_t* lower_next;   ///< rows of the part. Zeros at first.
  uint32_t* lower_row;

  uint32_t* queue;   ///< rows of the part: columns that wait for nothing, in the order found
  uint32_t* ready;   ///< how many of them there are at first. Zero at first.
  uint32_t* pushed;  ///< 3 numbers, zeros at first: of each third level, those of the next one
  uint32_t* state;   ///< 2 numbers: where the queue's level begins, and its length
  uint64_t* arrived; ///< of the barrier. Zero at first.
};

/// Columns in the order of their levels, by digits of 8 bits. A tile of kRadixTile columns is a
/// warp's; columns of equal digits keep their order.
struct RadixArguments {
  uint32_t size;
  uint32_t shift;
  const uint32_t* level;  ///< by column
  const uint32_t* source; ///< the columns; null: 0, 1, 2, ...
  uint32_t* target;
  uint32_t* length;       ///< of each digit in each tile, digit by digit
  const uint64_t* offset; ///< their exclusive sums
  uint32_t* level_offset; ///< where a level begins among sorted columns
  uint32_t* maximum;      ///< the greatest level. Zero at first.
};
constexpr uint32_t kRadixTile = 1024;
constexpr uint32_t kRadixDigits = 256;

} // namespace sparsertc::kernels
