// sparsertc_plan_tune: the tuner behind functions of plain C.
#include "runtime/plan/c_api.h"
#include "runtime/plan/c_guard.h"
#include "runtime/tune/plan_tune.h"

#include <limits>

namespace sparsertc {
namespace {

int32_t search_stopped(const sparsertc_candidate* candidate) {
  return static_cast<const std::atomic<bool>*>(candidate->search)->load() ? 1 : 0;
}

/// Asks the caller's function, and gives back what it made whatever comes of it.
Bundle compile(const sparsertc_tune_options& options, const tune::Candidate& candidate,
               unsigned processors, const std::atomic<bool>& stop) {
  const std::string words = to_string(candidate);
  const sparsertc_candidate wanted = {sizeof wanted,  words.c_str(), processors, 0,
                                      search_stopped, &stop};
  sparsertc_compiled made = {sizeof made, nullptr, 0, nullptr};
  const sparsertc_result result = options.compile(options.compile_user, &wanted, &made);
  if (result != SPARSERTC_OK)
    throw RuntimeError("compiling a candidate",
                       made.message ? made.message : sparsertc_result_name(result));
  struct Release {
    const sparsertc_tune_options& options;
    const sparsertc_compiled& made;
    ~Release() {
      if (options.release)
        options.release(options.compile_user, &made);
    }
  } const release = {options, made};
  if (!made.bundle)
    throw RuntimeError("compiling a candidate", "the compile function gave no bundle");
  return parse_bundle({static_cast<const uint8_t*>(made.bundle), made.bytes},
                      "a candidate's bundle");
}

tune::PlanTuneOptions to_tune_options(const sparsertc_tune_options& given) {
  tune::PlanTuneOptions options;
  options.compile = [&given](const tune::Candidate& candidate, unsigned processors,
                             const std::atomic<bool>& stop) {
    return compile(given, candidate, processors, stop);
  };
  options.budget_seconds = given.budget_seconds;
  if (given.n < 0 || given.n > std::numeric_limits<int32_t>::max())
    throw UsageError(fmt::format("n is {}, which is no number of columns", given.n));
  options.columns = static_cast<uint32_t>(given.n);
  options.jobs = given.jobs;
  options.seed = given.seed;
  options.similar = given.similar != 0;
  if (given.record) {
    try {
      options.record = tune::record_from_json(given.record, "record");
    } catch (const UserError& error) {
      throw UsageError(error.what());
    }
  }
  if (given.progress)
    options.progress = [&given](const tune::PlanTuneProgress& state) {
      const sparsertc_tune_progress progress = {
          sizeof progress,      state.search.seconds, given.budget_seconds, state.untuned_us,
          state.search.best_us, state.search.tried,   state.search.space};
      return given.progress(given.progress_user, &progress) != 0;
    };
  return options;
}

sparsertc_record_use use_of(tune::RecordUse use) {
  switch (use) {
  case tune::RecordUse::none:
    return SPARSERTC_RECORD_NONE;
  case tune::RecordUse::holds:
    return SPARSERTC_RECORD_HOLDS;
  case tune::RecordUse::similar:
    return SPARSERTC_RECORD_SIMILAR;
  case tune::RecordUse::refused:
    return SPARSERTC_RECORD_REFUSED;
  }
  return SPARSERTC_RECORD_NONE;
}

std::unique_ptr<sparsertc_plan> to_handle(tune::PlanTuneResult result,
                                          sparsertc_tune_report& report) {
  auto handle = std::make_unique<sparsertc_plan>();
  const tune::Record& record = result.record;
  tune::Candidate candidate;
  candidate.words = record.tile;
  candidate.registers = record.registers;
  handle->tile = to_string(candidate);
  handle->record = to_json(record);
  handle->remark = result.remark;
  handle->strategies = result.strategies;
  handle->plan = std::move(result.plan);

  clear_keeping_size(report);
  report.untuned_us = result.untuned_us;
  report.tuned_us = result.tuned_us;
  report.improved = result.improved;
  report.refused = result.refused;
  report.wrong = result.wrong;
  report.record_use = use_of(result.record_use);
  const bool searched =
      result.record_use != tune::RecordUse::holds && result.record_use != tune::RecordUse::similar;
  if (searched) {
    report.seconds = record.search_seconds;
    report.tried = record.candidates_tried;
    report.candidates = record.candidates_in_space;
    report.stopped = record.interrupted;
  }
  report.tile = handle->tile.c_str();
  report.record = handle->record.c_str();
  report.remark = handle->remark.c_str();
  report.strategies = handle->strategies.c_str();
  return handle;
}

} // namespace
} // namespace sparsertc

using namespace sparsertc;

sparsertc_result sparsertc_plan_tune(const sparsertc_plan* plan,
                                     const sparsertc_tune_options* options,
                                     sparsertc_tune_report* report, sparsertc_plan** tuned) {
  return guarded([&] {
    required(tuned, "tuned") = nullptr;
    check_size(required(report, "report"), "sparsertc_tune_report");
    const sparsertc_tune_options& given =
        required_struct(options, "options", "sparsertc_tune_options");
    if (!given.compile)
      throw UsageError("compile is a null pointer");
    const Plan& untuned = *required(plan, "plan").plan;
    *tuned = to_handle(tune::tune_plan(untuned, to_tune_options(given)), *report).release();
  });
}
