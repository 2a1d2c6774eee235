// Convolutions whose images are staged in shared memory: which pixels threads take, and which part
// of the input a block copies. Images in NHWC are transposed by the copies, so that in shared
// memory they lie as those in NCHW do.
//
// The images of a batch stand one below the other in one tall image with zeros around them, where
// neighbours share the zeros between them:
//
//     pitch
//   |<------->|
//   0 0 0 0 0 0              Two images of 2 x 4 pixels, padding 1. A row's right padding is the
//   0 a b c d 0 (e = 0)      left padding of the row below it, an image's bottom padding the top
//   0 e f g h                padding of the next one, so pitch is 5 and image_rows 3.
//   0 0 0 0 0
//   0 i j k l                Output (row, column) of an image has its window's first tap at
//   0 m n o p                (row * stride, column * stride) below the image's first row of zeros.
//   0 0 0 0 0 0
//
// Threads are numbered along lines of `line` positions. With stride 1 a line is as long as the
// pitch: neighbouring threads read neighbouring elements, also from one line to the next, and no
// two of a warp meet in a bank of shared memory. Positions beyond the output's width compute
// something that is not stored; they read what the last thread of the line reads.
//
// Zeros of the padding are multiplied: weights are finite (rounded_weights, and binding, refuse
// others), so that 0 is added, and NaN reaches the outputs alone whose window holds it.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

#include <cstdint>

namespace sparsertc {

/// Sizes in elements.
struct StagedRegion {
  uint32_t pad_top = 0, pad_left = 0; ///< zeros before an image's rows, and before its columns
  uint32_t first_column = 0;          ///< where the window of output column 0 begins
  uint32_t pitch = 0;                 ///< from row to row
  uint32_t image_rows = 0;            ///< rows from image to image
  uint32_t line = 0;                  ///< positions of threads in a line of outputs
  uint32_t rows = 0;                  ///< of a block's region, at most
  uint32_t copied = 0;  ///< a channel's region: rows, and what is read behind the last
  uint32_t channel = 0; ///< from channel to channel
  uint32_t piece = 1;   ///< in one copy
  /// A thread's columns are loaded together, in vectors of `vec`.
  bool wide = false;

  /// Copies, NCHW: thread q of the block has the pieces q, q + threads, ... of one channel, or,
  /// where a channel has fewer pieces, piece q % pieces of channel q / pieces of `channels_a_pass`.
  /// NHWC, where the channels of a pixel are neighbours: of channel q % channels_a_pass the pieces
  /// q / channels_a_pass, + pieces_a_pass, ...; `channel` is such that a warp writes to all banks.
  uint32_t channels_a_pass = 1;
  uint32_t pieces_a_pass = 1; ///< of a channel, where there are several passes
  uint32_t passes = 1;
  /// Threads that copy in the last pass.
  uint32_t last_pass_threads = 0;
};

/// The schedule stages the images of a convolution.
bool stages_images(const SpmmSchedule& schedule);
/// Threads that share the copies: all of the block.
uint32_t copying_threads(const SpmmSchedule& schedule);
/// Parts of K share each chunk: the part that has the products of a row of B.
uint32_t part_of_row(const SpmmSchedule& schedule, uint32_t row);
/// From the geometry, the tile and threads_x; staging_piece_bytes() must not be 0.
StagedRegion staged_region(const SpmmSchedule& schedule);
/// Bytes of the chunks in flight.
uint64_t staged_region_bytes(const SpmmSchedule& schedule);

} // namespace sparsertc
