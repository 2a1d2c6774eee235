// What the tuner may choose among for one SpMM on one GPU: tiles (in the words of --tile) and the
// cap on registers, with a predicted time by which it decides what to try first.
//
// The cost model. With d = nnz / (M K), tiles T = ceil(M / rows), parts S = splitk, a tile's part
// is one stream of straight-line code of
//
//   used = K (1 - (1 - d)^rows)            columns of B that some row of the tile needs
//   I    = (nnz / T + used) vec / S + 2 rows vec + 16          instructions, 16 bytes each
//
// and the time is
//
//   launch + meetings + max(supply, issue, L2, latency) + (their sum - their maximum) / 6
//
//   supply   an SM's blocks, one after the other, fetch distinct instructions. Streams side by
//            side, g = groups * S * resident blocks, reach 0.16 sqrt(g) a clock, at most 1; fitted
//            to three layers on an H200 with g = 1, 4 and 8. Under 128 KB, code that all blocks of
//            an SM share stays in its cache.
//   issue    warp instructions over 4 schedulers a multiprocessor at 60 %
//   L2       128 bytes a load and warp (256 threads of a staged block share one load) at 9 TB/s
//   latency  not staged: waves * (loads of a part / loads in flight + 1) * 1100 clocks; in flight:
//            registers under the cap beside the rows' sums, from 4 to 96
//   meetings staged: waves * (300 clocks a chunk and 1500 to begin with); split K: 0.5 us
//
// Only ratios matter: the search corrects the prediction by what it measures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::tune {

/// The product to be tuned: C (M x N) = A (M x K, sparse) * B (K x N).
struct Layer {
  uint32_t m = 0, k = 0, n = 0;
  uint64_t nnz = 0;
  uint32_t element_bytes = 4; ///< of B and C
};

/// What the space and the model need to know of a GPU.
struct Device {
  uint32_t multiprocessors = 132;
  uint32_t max_threads_per_block = 1024;
  uint32_t shared_bytes_per_block = 227 * 1024;
};

struct Candidate {
  /// `--tile` words; those of candidate_space() name every parameter of the space.
  std::string words;
  /// Most registers a thread; 0: as many as the block's size allows.
  uint32_t registers = 0;
  double predicted_us = 0;

  /// Place in the space, for distances; zeros for a user's words.
  uint32_t rows = 0, vec = 0, warps = 0, groups = 0, splitk = 0, chunk = 0;
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

/// Microseconds, by the formula above.
double predict_us(const Layer& layer, const Device& device, const Candidate& candidate);

/// How different two candidates of a space are: steps of factors of two, summed.
double distance(const Candidate& a, const Candidate& b);

} // namespace sparsertc::tune
