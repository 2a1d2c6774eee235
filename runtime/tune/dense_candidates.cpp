#include "runtime/tune/dense_candidates.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc::tune {
namespace {

constexpr double kLaunch = 4;
/// Operations a microsecond: about what cuBLAS reaches on an H200.
constexpr double kHalves = 450e6, kTf32 = 220e6, kF32 = 45e6, kF64 = 50e6;
constexpr double kOwnSlowness = 2;
constexpr const char* kLibraryWords = "strategy=dense,dense=library";

Candidate candidate_of(const std::string& words, double predicted_us) {
  Candidate candidate;
  candidate.words = words;
  candidate.predicted_us = predicted_us;
  candidate.is_dense = true;
  return candidate;
}

} // namespace

void add_dense_candidates(const Layer& layer, std::vector<Candidate>& space) {
  if (!layer.allows_dense || layer.m == 0 || layer.n == 0 || layer.k == 0)
    return;
  const double rate = layer.element_bytes == 2   ? kHalves
                      : layer.element_bytes == 8 ? kF64
                      : layer.is_tf32            ? kTf32
                                                 : kF32;
  const double us = kLaunch + 2.0 * layer.m * layer.n * layer.k / rate;
  if (layer.allows_dense_library)
    space.push_back(candidate_of(kLibraryWords, us));
  const bool tensor_cores = layer.element_bytes == 2 || layer.is_tf32;
  // From large blocks to small ones.
  constexpr const char* kTensorCores[] = {
      "rows=64,vec=1,groups=2,warps=4", "rows=64,vec=1,groups=1,warps=4",
      "rows=32,vec=1,groups=2,warps=2", "rows=16,vec=1,groups=2,warps=1"};
  constexpr const char* kMultiplyAdd[] = {
      "rows=32,vec=2,groups=4,warps=2", "rows=32,vec=2,groups=2,warps=2",
      "rows=32,vec=1,groups=2,warps=2", "rows=16,vec=1,groups=2,warps=1"};
  for (const char* tile : tensor_cores ? kTensorCores : kMultiplyAdd)
    space.push_back(
        candidate_of(fmt::format("strategy=dense,{},dense=own", tile), kOwnSlowness * us));
}

size_t dense_library_first(std::vector<Candidate>& space) {
  const auto end =
      std::stable_partition(space.begin(), space.end(), [](const Candidate& candidate) {
        return candidate.words == kLibraryWords;
      });
  return static_cast<size_t>(end - space.begin());
}

} // namespace sparsertc::tune
