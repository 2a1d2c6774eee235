// Measures candidates while others are being assembled, within a budget of time.
//
// Threads take the candidate that looks best, make its code and queue it; the calling thread, which
// owns the GPU, times what is in the queue. What has been measured corrects the predictions of its
// neighbours:
//
//   estimate = predicted * (r0 w0 + sum_i r_i w_i) / (w0 + sum_i w_i),  w_i = 1 / (1/4 +
//   distance_i^2)
//
// with r_i = measured / predicted, r0 their median (w0 = 1/4). A candidate in the making counts as
// measured 15 % above its estimate, so that threads spread out.
#pragma once

#include "runtime/tune/candidate.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc::tune {

/// Code that the caller's `make` made; its `time` and `check` know what it is.
class CandidateCode {
public:
  virtual ~CandidateCode() = default;
};

struct Trial {
  Candidate candidate;
  double time_us = 0;     ///< quick measurement; 0 where refused
  std::string refused;    ///< why it was not measured or its result is wrong; empty: a valid trial
  bool is_sample = false; ///< of a sample of its tiles; never the winner
  bool is_wrong = false;  ///< it ran and missed a bound
  /// Of the best few valid trials only.
  std::shared_ptr<const CandidateCode> code;
};

struct SearchState {
  size_t tried = 0, space = 0;
  double best_us = 0; ///< 0: none yet
  double seconds = 0;
};

struct SearchHooks {
  /// Makes the code; called from several threads at once, gives up when `stop` is set. Throws Error
  /// where the compiler or the assembler refuses.
  std::function<std::shared_ptr<const CandidateCode>(const Candidate&,
                                                     const std::atomic<bool>& stop)>
      make;
  /// The same for a sample of the tiles, which assembles sooner and takes about as long to run;
  /// what it computes is not checked. May be empty.
  std::function<std::shared_ptr<const CandidateCode>(const Candidate&,
                                                     const std::atomic<bool>& stop)>
      make_sample;
  /// Which candidates have a sample that is smaller than the whole; the others are made in full at
  /// once. May be empty: all have.
  std::function<bool(const Candidate&)> has_sample;
  /// Microseconds of one launch, measured quickly; on the caller's thread. Throws Error where it
  /// cannot run.
  std::function<double(const CandidateCode&)> time;
  /// What is wrong with its result, empty if nothing; for candidates that would be among the best.
  std::function<std::string(const CandidateCode&)> check;
  /// A candidate outside of the space that is tried when the best of the space is known, beside it.
  /// May be empty.
  std::function<std::optional<Candidate>(const Candidate& best)> alternative;
  /// Seconds that go by.
  std::function<double()> now;
  /// Asks whether the user wants to stop; the best so far is kept.
  std::function<bool()> interrupted;
  /// May be empty.
  std::function<void(const SearchState&)> progress;
};

struct SearchOptions {
  double budget_seconds = 20;
  unsigned threads = 1; ///< that make code
  unsigned keep = 4;    ///< best trials whose code stays
  /// Of the search on samples: the part of the budget that it takes, and how many of its best are
  /// then made in full.
  double sample_share = 0.6;
  unsigned finalists = 5;
  size_t most_trials = SIZE_MAX;
  /// So many of the space's first are taken before all others, and brought to their end even where
  /// the budget is spent.
  size_t first = 0;
};

struct SearchResult {
  /// Valid ones first, fastest first; then the refused, in the order in which they were tried; then
  /// those on samples in the same order.
  std::vector<Trial> trials;
  size_t space = 0;
  size_t tried = 0;       ///< different candidates, on samples or in full
  bool exhausted = false; ///< every candidate was tried
  bool interrupted = false;
  double seconds = 0;

  size_t valid() const;
};

/// With make_sample in two rounds: all candidates on samples, then the best few in full, where they
/// have not been made in full already.
///
/// When the budget is spent no new candidate is begun and those in the making are stopped, but at
/// least one is brought to its end (unless eight have been refused by then), and the alternative to
/// the best, if there is one, is still made, unless there was an interrupt. Throws nothing of its
/// own; what else than an Error the hooks throw passes through.
SearchResult search(const std::vector<Candidate>& space, const SearchHooks& hooks,
                    const SearchOptions& options);

} // namespace sparsertc::tune
