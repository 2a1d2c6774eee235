#include "runtime/tune/search.h"

#include "ir/error.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

namespace sparsertc::tune {
namespace {

constexpr double kPendingPenalty = 1.15;
constexpr double kPriorWeight = 0.25;
/// So many refusals without one result are no accident: a budget that is spent then counts.
constexpr size_t kHopeless = 8;

/// The candidates and what is known of each; not thread-safe.
class Ranking {
public:
  Ranking(const std::vector<Candidate>& space, size_t first)
      : space_(space), first_(std::min(first, space.size())), taken_(space.size()),
        ratio_(space.size()), sum_(space.size()), weights_(space.size()) {}

  /// Takes the one with the best estimate; nothing where all are taken.
  std::optional<size_t> take() {
    std::optional<size_t> best;
    double best_estimate = 0;
    const double middle = median_ratio();
    for (size_t i = 0; i < space_.size(); ++i) {
      if (taken_[i])
        continue;
      const double correction = (middle * kPriorWeight + sum_[i]) / (kPriorWeight + weights_[i]);
      const double estimate = predicted(i) * correction;
      if (!best || estimate < best_estimate) {
        best = i;
        best_estimate = estimate;
      }
      if (i < first_) // in their order
        break;
    }
    if (best) {
      taken_[*best] = true;
      ratio_[*best] = kPendingPenalty * best_estimate / predicted(*best);
      spread(*best, ratio_[*best], 1);
    }
    return best;
  }

  void measured(size_t index, double time_us) {
    const double ratio = time_us / predicted(index);
    spread(index, ratio - ratio_[index], 0);
    measured_ratios_.push_back(ratio);
  }

  /// It says nothing about its neighbours.
  void refused(size_t index) { spread(index, -ratio_[index], -1); }

private:
  /// A user's words have no prediction; all are equal then.
  double predicted(size_t i) const {
    return space_[i].predicted_us > 0 ? space_[i].predicted_us : 1.0;
  }
  double median_ratio() const {
    if (measured_ratios_.empty())
      return 1.0;
    std::vector<double> sorted = measured_ratios_;
    const size_t middle = sorted.size() / 2;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(middle), sorted.end());
    return sorted[middle];
  }
  /// Adds to everybody's sums, weighted by the distance from `index`.
  void spread(size_t index, double ratio, int count) {
    for (size_t i = 0; i < space_.size(); ++i) {
      const double apart = distance(space_[i], space_[index]);
      const double weight = 1 / (0.25 + apart * apart);
      sum_[i] += ratio * weight;
      weights_[i] += count * weight;
    }
  }

  const std::vector<Candidate>& space_;
  size_t first_; ///< that are taken before all others
  std::vector<bool> taken_;
  std::vector<double> ratio_; ///< assumed time of a candidate in the making over the predicted one
  std::vector<double> sum_, weights_;
  std::vector<double> measured_ratios_;
};

/// Valid ones first, fastest first.
void sort_trials(std::vector<Trial>& trials) {
  std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
    if (a.refused.empty() != b.refused.empty())
      return a.refused.empty();
    return a.refused.empty() && a.time_us < b.time_us;
  });
}

/// What a making thread hands over.
struct Made {
  size_t index = 0;
  std::shared_ptr<const CandidateCode> code;
  std::string refused;
  bool stopped = false;
};

class Search {
public:
  Search(const std::vector<Candidate>& space, const SearchHooks& hooks,
         const SearchOptions& options)
      : space_(space), hooks_(hooks), options_(options),
        first_left_(std::min(options.first, space.size())), ranking_(space, options.first) {}

  SearchResult run() {
    begin_ = hooks_.now();
    result_.space = space_.size();
    {
      std::vector<std::jthread> threads;
      const unsigned count =
          static_cast<unsigned>(std::clamp<size_t>(options_.threads, 1, space_.size() + 1));
      working_ = count;
      for (unsigned i = 0; i < count; ++i)
        threads.emplace_back([this] { make_candidates(); });
      try {
        measure_all();
      } catch (...) {
        end_making();
        throw;
      }
      end_making();
    }
    if (failure_)
      std::rethrow_exception(failure_);
    sort_trials(result_.trials);
    result_.tried = result_.trials.size();
    result_.exhausted = result_.tried == space_.size();
    result_.seconds = hooks_.now() - begin_;
    return std::move(result_);
  }

private:
  // ---- the making threads ----

  void make_candidates() {
    for (;;) {
      size_t index;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        const std::optional<size_t> next =
            no_more_ || taken_ >= options_.most_trials ? std::nullopt : ranking_.take();
        if (!next) {
          --working_;
          changed_.notify_all();
          return;
        }
        ++taken_;
        index = *next;
      }
      Made made = make(index);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!made.code)
        ranking_.refused(index);
      if (!made.stopped)
        queue_.push_back(std::move(made));
      changed_.notify_all();
    }
  }

  Made make(size_t index) {
    Made made;
    made.index = index;
    try {
      made.code = hooks_.make(space_[index], stop_);
    } catch (const Error& error) {
      made.refused = error.what();
      made.stopped = stop_;
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_)
        failure_ = std::current_exception();
      no_more_ = true;
      made.stopped = true;
    }
    return made;
  }

  void end_making() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      no_more_ = true;
    }
    stop_ = true;
  }

  // ---- the measuring thread ----

  void measure_all() {
    for (;;) {
      Made made;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        // Wakes up now and then to ask for the time and for Ctrl-C.
        changed_.wait_for(lock, std::chrono::milliseconds(50),
                          [&] { return !queue_.empty() || working_ == 0; });
        if (queue_.empty() && working_ == 0)
          return;
        if (!queue_.empty()) {
          made = std::move(queue_.front());
          queue_.pop_front();
        }
      }
      if (made.code || !made.refused.empty())
        measure(std::move(made));
      report();
      result_.interrupted = result_.interrupted || hooks_.interrupted();
      const bool spent = hooks_.now() - begin_ >= options_.budget_seconds;
      const bool may_end = first_left_ == 0 && (valid_ > 0 || result_.trials.size() >= kHopeless);
      if (result_.interrupted || (spent && may_end))
        return;
    }
  }

  void measure(Made made) {
    Trial trial;
    first_left_ -= made.index < options_.first;
    trial.candidate = space_[made.index];
    trial.refused = std::move(made.refused);
    if (made.code) {
      try {
        trial.time_us = hooks_.time(*made.code);
      } catch (const Error& error) {
        trial.refused = error.what();
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      if (trial.refused.empty())
        ranking_.measured(made.index, trial.time_us);
      else
        ranking_.refused(made.index);
    }
    if (trial.refused.empty() && trial.time_us < worst_kept()) {
      trial.refused = hooks_.check(*made.code);
      trial.is_wrong = !trial.refused.empty();
      if (!trial.is_wrong)
        trial.code = std::move(made.code);
    }
    const bool valid = trial.refused.empty();
    result_.trials.push_back(std::move(trial));
    if (!valid)
      return;
    ++valid_;
    drop_code_beyond_best();
  }

  /// Trials whose code is kept, fastest first.
  std::vector<Trial*> kept() {
    std::vector<Trial*> kept;
    for (Trial& trial : result_.trials)
      if (trial.code)
        kept.push_back(&trial);
    std::stable_sort(kept.begin(), kept.end(),
                     [](const Trial* a, const Trial* b) { return a->time_us < b->time_us; });
    return kept;
  }
  /// What a trial must beat for its code to be kept.
  double worst_kept() {
    const std::vector<Trial*> all = kept();
    if (options_.keep == 0)
      return 0;
    return all.size() < options_.keep ? 1e300 : all.back()->time_us;
  }
  void drop_code_beyond_best() {
    const std::vector<Trial*> all = kept();
    for (size_t i = options_.keep; i < all.size(); ++i)
      all[i]->code = nullptr;
  }

  void report() {
    if (!hooks_.progress)
      return;
    SearchState state;
    state.tried = result_.trials.size();
    state.space = std::min(space_.size(), options_.most_trials);
    for (const Trial& trial : result_.trials)
      if (trial.refused.empty() && (state.best_us == 0 || trial.time_us < state.best_us))
        state.best_us = trial.time_us;
    state.seconds = hooks_.now() - begin_;
    hooks_.progress(state);
  }

  const std::vector<Candidate>& space_;
  const SearchHooks& hooks_;
  const SearchOptions& options_;
  double begin_ = 0;
  SearchResult result_;
  size_t valid_ = 0;
  size_t first_left_; ///< of the first ones, whose trials are not over

  std::mutex mutex_; ///< guards what follows
  std::condition_variable changed_;
  Ranking ranking_;
  std::deque<Made> queue_;
  size_t taken_ = 0;
  unsigned working_ = 0;
  bool no_more_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> stop_{false};
};

} // namespace

size_t SearchResult::valid() const {
  return static_cast<size_t>(std::count_if(
      trials.begin(), trials.end(), [](const Trial& trial) { return trial.refused.empty(); }));
}

namespace {

SearchResult search_space(const std::vector<Candidate>& space, const SearchHooks& hooks,
                          const SearchOptions& options) {
  if (!hooks.make_sample || space.size() <= options.finalists)
    return Search(space, hooks, options).run();
  const double begin = hooks.now();

  const auto has_sample = [&](const Candidate& candidate) {
    return !hooks.has_sample || hooks.has_sample(candidate);
  };
  SearchHooks on_samples = hooks;
  on_samples.make = [&](const Candidate& candidate, const std::atomic<bool>& stop) {
    return has_sample(candidate) ? hooks.make_sample(candidate, stop) : hooks.make(candidate, stop);
  };
  on_samples.check = [](const CandidateCode&) { return std::string(); };
  SearchOptions first = options;
  first.budget_seconds = options.budget_seconds * options.sample_share;
  first.keep = options.finalists;
  SearchResult samples = Search(space, on_samples, first).run();

  std::vector<Candidate> to_make;
  std::vector<Trial> made, on_sample;
  for (size_t i = 0; i < samples.trials.size(); ++i) {
    Trial& trial = samples.trials[i];
    trial.is_sample = has_sample(trial.candidate);
    const bool is_finalist = trial.refused.empty() && i < options.finalists;
    if (is_finalist && trial.is_sample) {
      to_make.push_back(trial.candidate);
      to_make.back().predicted_us = trial.time_us;
    } else if (is_finalist) {
      trial.refused = hooks.check(*trial.code);
      trial.is_wrong = !trial.refused.empty();
    }
    if (!is_finalist || trial.is_sample || trial.is_wrong)
      trial.code = nullptr;
    (is_finalist && !trial.is_sample ? made : on_sample).push_back(std::move(trial));
  }
  SearchHooks in_full = hooks;
  SearchOptions second = options;
  second.first = 0;
  second.budget_seconds = std::max(0.0, options.budget_seconds - (hooks.now() - begin));
  if (samples.interrupted) { // what was found so far is to be kept: one must be made
    in_full.interrupted = [] { return false; };
    second.most_trials = made.empty() ? 1 : 0;
  }
  SearchResult result = Search(to_make, in_full, second).run();
  result.trials.insert(result.trials.end(), std::make_move_iterator(made.begin()),
                       std::make_move_iterator(made.end()));
  sort_trials(result.trials);
  size_t with_code = 0;
  for (Trial& trial : result.trials)
    if (trial.code && ++with_code > options.keep)
      trial.code = nullptr;
  result.trials.insert(result.trials.end(), std::make_move_iterator(on_sample.begin()),
                       std::make_move_iterator(on_sample.end()));
  result.space = space.size();
  result.tried = samples.tried;
  result.exhausted = result.exhausted && samples.exhausted;
  result.interrupted = result.interrupted || samples.interrupted;
  result.seconds = hooks.now() - begin;
  return result;
}

/// Puts a trial in its place among those made in full.
void insert_trial(Trial trial, unsigned keep, std::vector<Trial>& trials) {
  const bool is_valid = trial.refused.empty();
  const auto place = std::find_if(trials.begin(), trials.end(), [&](const Trial& other) {
    return other.is_sample || !other.refused.empty() || (is_valid && trial.time_us < other.time_us);
  });
  trials.insert(place, std::move(trial));
  size_t with_code = 0;
  for (Trial& one : trials)
    if (one.code && ++with_code > keep)
      one.code = nullptr;
}

/// Tries the alternative to the best, however much of the budget is left.
void try_alternative(const SearchHooks& hooks, const SearchOptions& options, SearchResult& result) {
  const bool has_best = !result.trials.empty() && result.trials.front().refused.empty() &&
                        !result.trials.front().is_sample;
  if (!has_best || result.interrupted || !hooks.alternative)
    return;
  const std::optional<Candidate> other = hooks.alternative(result.trials.front().candidate);
  if (!other)
    return;
  SearchResult found = Search({*other}, hooks, options).run();
  result.space += found.space;
  result.tried += found.tried;
  result.exhausted = result.exhausted && found.exhausted;
  result.interrupted = found.interrupted;
  result.seconds += found.seconds;
  for (Trial& trial : found.trials)
    insert_trial(std::move(trial), options.keep, result.trials);
}

} // namespace

SearchResult search(const std::vector<Candidate>& space, const SearchHooks& hooks,
                    const SearchOptions& options) {
  SearchResult result = search_space(space, hooks, options);
  try_alternative(hooks, options, result);
  return result;
}

} // namespace sparsertc::tune
