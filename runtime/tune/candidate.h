// What the tuner may choose among for one SpMM on one GPU: tiles (in the words of --tile) and the
// cap on registers, with a predicted time by which it decides what to try first.
//
// The cost model, fitted to 650 measured candidates for 24 layers on an H200 (1.755 GHz; the mean
// error is 22 %). With d = nnz / (M K), tiles T = ceil(M / rows), parts S = splitk * cluster,
// groups G and b = ceil(blocks / multiprocessors), unrolled code has in each tile's part
//
//   used = K (1 - (1 - d)^rows)            columns of B that some row of the tile needs
//   I    = (nnz / T + used) vec / S + 2 rows vec + 16      instructions of 16 bytes,
//          6 more a staged chunk, 2 rows vec more where parts exchange sums,
//
// and takes launch + meetings + f (sum of x^2.9 over the terms)^(1/2.9) microseconds. The factor
// f = 0.95 + 8.5 / registers, times 1.7 where staged, comes from 3,000 candidates of another run.
//
//   launch    1.1
//   code      T S I 16 bytes, each fetched once, at 0.4 TB/s for the whole GPU: limits small N
//   supply    b G splitk I distinct instructions, 1.9 clocks each: limits narrow blocks
//   issue     warp instructions at 0.45 a clock and scheduler
//   loads     1.3 clocks of its multiprocessor for each load of a warp
//   L2        128 bytes a load and warp at 16 TB/s; of a staged block the chunks of B
//   latency   waves (used / (13 S) + 1) 240 clocks, fewer loads at once with few registers;
//             staged: 330 clocks a chunk and wave
//   meetings  0.27 where parts exchange sums; 4.4 over the blocks of a cluster (from 5 candidates
//             of one layer)
//
// Streamed code takes 3.0 + (sum of the squares of these)^(1/2):
//
//   latency   waves rows (ceil(nnz / (M S 8)) + 4) 270 clocks
//   issue     3.6 instructions an entry and 20 a row, at 0.44 a clock and scheduler
//   L2        136 bytes an entry and warp at 10.5 TB/s
//
// Unrolled code of convolutions whose images are not staged takes (0.75 + 9 / out_width) times that
// beyond the launch (roughly, from 50 candidates of 8 layers).
//
// Code for staged images of a convolution (45 candidates of 5 layers, 18 %), with L loads and
// copies a thread, takes 1.1 + meetings + the L2 time of the first chunk + 1.2 (sum of
// x^3.7)^(1/3.7):
//
//   code, issue  as above, a warp instruction a clock and scheduler
//   supply    b G S I distinct instructions, 2.8 clocks each
//   loads     1.3 clocks of its multiprocessor for each load or copy of a warp
//   L2        what blocks copy, at 9 TB/s
//   latency   waves (120 clocks a chunk of channels and 4 an instruction): one warp alone
//
// The code's rate is that of a 32-byte path to each of eight clusters of multiprocessors; copies
// of the same code in neighbouring blocks cost nothing that shows. Only ratios matter: the search
// corrects the prediction by what it measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::tune {

/// The images of a convolution that is not a product of matrices.
struct LayerImages {
  uint32_t count = 1;
  uint32_t channels = 0, height = 0, width = 0; ///< of the input
  uint32_t out_height = 0, out_width = 0;
  uint32_t window_height = 1, window_width = 1, stride = 1;
  /// A block can stage its part of them: rows of whole pieces of 4 bytes (NCHW), or elements of
  /// at least 4 bytes (NHWC).
  bool can_be_staged = false;
};

/// The product to be tuned: C (M x N) = A (M x K, sparse) * B (K x N).
struct Layer {
  uint32_t m = 0, k = 0, n = 0;
  uint64_t nnz = 0;
  uint32_t element_bytes = 4; ///< of B and C
  std::optional<LayerImages> images = {};
  /// What is asked for can be done by the panels strategy: padding may be multiplied, the products
  /// are of f16, bf16 or tf32.
  bool allows_panels = false;
  /// By the dense one: padding may be multiplied, N is fixed; and by a library of the dense one:
  /// the epilogue is one that it has.
  bool allows_dense = false, allows_dense_library = false;
  bool is_tf32 = false; ///< products of f32 may be of 10 bits of the fraction
};

/// What the space and the model need to know of a GPU.
struct Device {
  uint32_t multiprocessors = 132;
  uint32_t max_threads_per_block = 1024;
  uint32_t shared_bytes_per_block = 227 * 1024;
  bool has_clusters = true;
};

struct Candidate {
  /// `--tile` words; those of candidate_space() name every parameter of the space.
  std::string words;
  /// Most registers a thread; 0: as many as the block's size allows.
  uint32_t registers = 0;
  double predicted_us = 0;

  /// Place in the space, for distances; of a user's words only rows and groups, where they are
  /// given.
  uint32_t rows = 0, vec = 0, warps = 0, groups = 0, splitk = 0, chunk = 0;
  bool is_streamed = false;
  uint32_t cluster = 1;
  bool is_compressed = false;
  bool is_bitmap = false;
  bool is_dense = false;   ///< whose layers are not sampled either
  uint32_t panel_rows = 0; ///< of the panels strategy, whose layers are not sampled

  /// Of K, over the blocks of a cluster.
  uint32_t parts() const { return splitk * cluster; }
};

/// "rows=32,...,registers=128"; what parse_candidate() reads.
std::string to_string(const Candidate& candidate);
/// Takes the word `registers=` (16 to 255) out of `--tile` words. Throws UsageError where that
/// number is wrong; the other words are the compiler's matter.
Candidate parse_candidate(std::string_view text);

/// All candidates that fit the device and do not waste threads, best prediction first; the order is
/// the same on every machine. Staged ones (chunk > 0) only where rows of B are copied in pieces of
/// 16 bytes.
std::vector<Candidate> candidate_space(const Layer& layer, const Device& device);

/// Whether the device can run it, of unrolled and streamed code with all its parameters.
bool is_possible(const Layer& layer, const Device& device, const Candidate& candidate);

/// Microseconds, by the formula above.
double predict_us(const Layer& layer, const Device& device, const Candidate& candidate);

/// How much slower all tiles are than the sample in which one of `step` stands for all: its code is
/// shared by more multiprocessors. (From the finalists of the same layers.)
double sample_correction(const Candidate& candidate, uint32_t step);

/// The same unrolled tile with its rows in the other order (`order=`); nothing for other
/// candidates, and where the words leave the order to the compiler.
std::optional<Candidate> in_other_row_order(const Candidate& candidate);

/// How different two candidates of a space are: steps of factors of two, summed.
double distance(const Candidate& a, const Candidate& b);

} // namespace sparsertc::tune
