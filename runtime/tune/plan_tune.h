// Tuning of a plan: other code for the same layer is asked for, measured, compared with the plan's
// own results, and the fastest becomes a new plan.
//
//   plan --> untuned time, results
//        --> record that holds? its candidate is compiled, compared and taken
//        --> else: search (compile beside measuring), the best few and the untuned plan in turns
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/tune/record.h"
#include "runtime/tune/search.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace sparsertc::tune {

struct PlanTuneProgress {
  SearchState search;
  double untuned_us = 0;
};

struct PlanTuneOptions {
  /// Makes a bundle of the plan's layer with the candidate's decisions. Called from several threads
  /// at once; gives up when `stop` is set. Throws Error where it cannot.
  std::function<Bundle(const Candidate& candidate, unsigned processors,
                       const std::atomic<bool>& stop)>
      compile;
  double budget_seconds = 20; ///< 0: no search
  uint32_t columns = 0;       ///< to measure with, where the plan leaves them open
  unsigned jobs = 0;          ///< processors that compiling may keep busy; 0: all
  uint64_t seed = 1;
  std::optional<Record> record;
  bool similar = false; ///< a record of a similar layer is taken, too
  /// Answers whether to stop. May be empty.
  std::function<bool(const PlanTuneProgress&)> progress;
};

enum class RecordUse : uint8_t { none, holds, similar, refused };

struct PlanTuneResult {
  std::unique_ptr<Plan> plan;
  Record record; ///< the given one where it was taken
  RecordUse record_use = RecordUse::none;
  double untuned_us = 0, tuned_us = 0;
  uint64_t refused = 0, wrong = 0; ///< of the candidates tried
  bool improved = false;           ///< faster; else, without a record, the untuned code
  /// Of a search: the best time of each strategy, and from which zeros on each would be the fastest
  /// (describe_strategies()).
  std::string strategies;
  std::string remark; ///< why the record was refused and why the first candidate was
};

/// What a record of this plan holds for.
Environment environment_of(const Plan& plan, uint32_t columns);

/// Throws UsageError where the plan cannot be tuned or the options are wrong, NoGpuError without a
/// GPU, RuntimeError where the driver refuses. The plan's context is current afterwards.
PlanTuneResult tune_plan(const Plan& untuned, const PlanTuneOptions& options);

} // namespace sparsertc::tune
