#include "tools/bench_regimes.h"

#include "compiler/inspect/spmm_cost.h"
#include "ir/error.h"
#include "tools/assemblers.h"
#include "tools/bench_layer.h"
#include "tools/cold_cache.h"
#include "tools/gpu.h"
#include "tools/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

namespace sparsertc {
namespace {

/// Unrolled code predicted to take so many times as long as the fastest is not assembled: that is
/// what takes long.
constexpr double kHopeless = 2;
/// Ways of a library that take so many times as long as our fastest in a quick sample are not
/// timed.
constexpr double kHopelessLibrary = 10;
/// Processes of the assembler for each strategy of each case.
constexpr unsigned kAssemblerJobs = 4;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// What has been measured, and the cases that have not.
struct Progressed {
  std::vector<RegimeCase> done;
  std::vector<const BenchCase*> left;
};
Progressed resume(const GpuBenchOptions& options) {
  std::vector<RegimeCase> known;
  if (!options.resume.empty() && std::filesystem::exists(options.resume)) {
    std::ifstream file(options.resume);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file)
      throw UserError(Place{options.resume, 0, 0, {}}, "cannot be read");
    known = parse_regimes_csv(text.str(), options.resume);
  }
  Progressed progressed;
  for (const BenchCase& one : options.cases) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const RegimeCase& other) {
      return other.name == one.name && other.n == *one.problem.columns &&
             (one.nominal_percent < 0 || other.zeros_percent == one.nominal_percent);
    });
    if (found == known.end())
      progressed.left.push_back(&one);
    else
      progressed.done.push_back(*found);
  }
  return progressed;
}

/// The library's product of the same precision.
std::string rival(const GpuBenchOptions& options) {
  const bool has_rival = options.type == DataType::f32 || options.type == DataType::f16;
  if (options.cases.empty() || !has_rival)
    return {};
  if (options.type == DataType::f16)
    return "cublas_fp16";
  return options.cases.front().problem.precision == Precision::tf32 ? "cublas_tf32" : "cublas_fp32";
}

void report(const GpuBenchOptions& options, const std::vector<RegimeCase>& cases) {
  const std::string summary = prediction_summary(cases) + regime_means(cases, rival(options));
  fmt::print(options.json ? stderr : stdout, "{}", summary);
  if (options.json)
    fmt::print("{}", regimes_csv(cases));
  if (!options.csv.empty())
    write_text(options.csv, regimes_csv(cases));
  if (!options.plot.empty())
    write_text(options.plot,
               regimes_svg(cases, fmt::format("The fastest strategy, {}", name_of(options.type))));
}

/// What is measured for one case.
struct Measured {
  RegimeCase result;
  SpmmProblem problem;
  Matrix weights; ///< until the layer has it
  std::unique_ptr<GpuLayer> layer;
  std::vector<StrategyPlan> plans; ///< that are measured
  std::vector<std::shared_ptr<const tune::CandidateCode>> codes;
  std::vector<std::string> refused; ///< why there is no code
};

/// Reads the case and plans its strategies.
Measured plan(const BenchCase& one, const Target& target) {
  Measured measured;
  measured.problem = one.problem;
  measured.weights = as_matrix(one.weights(), measured.problem);
  const Pattern& pattern = measured.weights.pattern;
  RegimeCase& result = measured.result;
  result.name = one.name;
  result.m = pattern.rows;
  result.k = pattern.columns;
  result.n = *one.problem.columns;
  result.nnz = pattern.nnz();
  result.zeros_percent =
      one.nominal_percent >= 0 ? one.nominal_percent : 100 * statistics_of(pattern).sparsity;
  measured.plans = plan_strategies(measured.weights, measured.problem, target, SpmmTileChoice());
  const StrategyPlan* best = predicted_fastest(measured.plans);
  const double most_us = best == nullptr ? 0 : kHopeless * *best->us;
  std::erase_if(measured.plans, [&](const StrategyPlan& plan) {
    return !plan.us ||
           (plan.strategy == Strategy::unrolled &&
            (*plan.us > most_us || plan.schedule.prediction.multiply_adds > kDefaultGpuBudget));
  });
  measured.codes.resize(measured.plans.size());
  measured.refused.resize(measured.plans.size());
  return measured;
}

class Regimes {
public:
  Regimes(const GpuBenchOptions& options, Progressed progressed)
      : options_(options), left_(std::move(progressed.left)), results_(std::move(progressed.done)),
        gpu_(require_gpu()), assembler_(require_cached_assembler({}, {})), stream_(*gpu_),
        target_(find_target(target_of(*gpu_))), pool_(options.jobs) {
    if (options_.libraries)
      libraries_ = std::make_unique<GpuPeerLibraries>(*gpu_, stream_);
    if (options_.cold)
      flush_ = std::make_unique<CacheFlush>(*gpu_, stream_, target_);
  }

  int run() {
    if (!options_.json)
      fmt::print("{}, {}: each strategy's time in us, the predicted one in parentheses; medians of "
                 "{} rounds, warm{}\n",
                 gpu_->properties().name, name_of(options_.type), options_.rounds,
                 options_.cold ? ", and cold" : "");
    if (libraries_)
      for (const std::string& missing : libraries_->missing())
        fmt::print(stderr, "sparsertc: left out: {}\n", missing);
    // Some cases at a time: compiled together, so that all processors have work, then measured.
    const size_t at_once = pool_.threads();
    double longest = 0;
    size_t first = 0;
    for (; first < left_.size() && !interrupt_flag(); first += at_once) {
      const double before = seconds_since(start_);
      if (options_.total_seconds > 0 && before + longest > options_.total_seconds)
        break;
      const size_t end = std::min(left_.size(), first + at_once);
      progress_.show(
          fmt::format("sparsertc: cases {} to {} of {} ...", first + 1, end, left_.size()));
      if (!measure_some({left_.begin() + static_cast<ptrdiff_t>(first),
                         left_.begin() + static_cast<ptrdiff_t>(end)}))
        break;
      longest = std::max(longest, seconds_since(start_) - before);
    }
    progress_.clear();
    report(options_, results_);
    if (first < left_.size() && !interrupt_flag())
      fmt::print(stderr, "sparsertc: {} of {} cases are left, --resume goes on with them\n",
                 left_.size() - first, options_.cases.size());
    stop_if_interrupted();
    return failed_ ? 1 : 0;
  }

private:
  void failed(const Error& error) {
    fmt::print(stderr, "sparsertc: {}\n", error.what());
    failed_ = true;
  }

  /// Whether to go on.
  bool measure_some(const std::vector<const BenchCase*>& cases) {
    std::vector<Measured> some = prepare(cases);
    if (!compile(some))
      return false;
    for (Measured& measured : some) {
      if (interrupt_flag())
        return false;
      try {
        measure(measured);
      } catch (const RuntimeError& error) {
        failed(error);
        continue;
      }
      results_.push_back(measured.result);
      measured.layer.reset(); // its memory
      progress_.clear();
      if (!options_.json)
        fmt::print("{}", regime_line(results_.back()));
      std::fflush(stdout);
    }
    return true;
  }

  std::vector<Measured> prepare(const std::vector<const BenchCase*>& cases) {
    std::vector<std::optional<Measured>> planned(cases.size());
    std::vector<std::unique_ptr<UserError>> wrong(cases.size());
    pool_.run(cases.size(), [&](uint64_t i) {
      try {
        planned[i] = plan(*cases[i], target_);
      } catch (const UserError& error) { // a file that cannot be read, say
        wrong[i] = std::make_unique<UserError>(error);
      }
    });
    std::vector<Measured> some;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (wrong[i]) {
        failed(*wrong[i]);
        continue;
      }
      Measured& measured = some.emplace_back(std::move(*planned[i]));
      measured.layer = std::make_unique<GpuLayer>(*gpu_, stream_, *assembler_, pool_,
                                                  std::move(measured.weights), measured.problem,
                                                  options_.seed + 2);
    }
    return some;
  }

  /// Makes all code, what takes longest first. Whether it was not interrupted.
  bool compile(std::vector<Measured>& some) {
    struct Work {
      Measured* measured;
      size_t which;
      uint64_t instructions() const {
        return measured->plans[which].schedule.prediction.instructions;
      }
    };
    std::vector<Work> work;
    for (Measured& measured : some)
      for (size_t i = 0; i < measured.plans.size(); ++i)
        work.push_back({&measured, i});
    std::stable_sort(work.begin(), work.end(), [](const Work& a, const Work& b) {
      return a.instructions() > b.instructions();
    });
    pool_.run(work.size(), [&](uint64_t number) {
      const auto& [measured, which] = work[number];
      tune::Candidate candidate;
      candidate.words = fmt::format("strategy={}", name_of(measured->plans[which].strategy));
      try {
        measured->codes[which] =
            measured->layer->hooks(kAssemblerJobs).make(candidate, interrupt_flag());
      } catch (const Error& error) {
        measured->refused[which] = error.what();
      }
    });
    return !interrupt_flag();
  }

  void measure(Measured& measured) {
    std::vector<size_t> ours;
    for (size_t i = 0; i < measured.plans.size(); ++i) {
      const std::string doing = fmt::format(
          "measuring {} of {}", name_of(measured.plans[i].strategy), measured.result.name);
      std::string wrong = measured.refused[i];
      if (wrong.empty())
        wrong = measured.layer->check(*measured.codes[i]);
      if (wrong.empty())
        ours.push_back(i);
      else
        failed(RuntimeError(doing, wrong));
    }
    std::vector<std::string> refused;
    std::vector<PreparedPeer> peers;
    if (libraries_)
      peers = prepare_peers(*gpu_, stream_, *libraries_, *measured.layer, pool_, refused);
    for (const std::string& reason : refused)
      fmt::print(stderr, "sparsertc: {}: left out: {}\n", measured.result.name, reason);

    std::vector<const tune::GraphReplay*> contenders;
    double fastest = 0;
    for (const size_t i : ours) {
      contenders.push_back(&measured.layer->replay(*measured.codes[i]));
      const double us = contenders.back()->sample();
      fastest = contenders.size() == 1 ? us : std::min(fastest, us);
    }
    if (!ours.empty())
      std::erase_if(peers, [&](const PreparedPeer& peer) {
        return peer.replay->sample() > kHopelessLibrary * fastest;
      });
    for (const PreparedPeer& peer : peers)
      contenders.push_back(peer.replay.get());
    const std::vector<tune::Timing> warm = tune::time_in_turns(contenders, options_.rounds);
    std::vector<tune::Timing> cold(warm.size());
    if (flush_) {
      std::vector<std::unique_ptr<tune::GraphReplay>> flushed;
      for (const size_t i : ours)
        flushed.push_back(flush_->before([&] { measured.layer->enqueue(*measured.codes[i]); }));
      for (const PreparedPeer& peer : peers)
        flushed.push_back(flush_->before([&] { peer.peer->enqueue(); }));
      contenders.clear();
      for (const auto& replay : flushed)
        contenders.push_back(replay.get());
      cold = time_cold(*flush_, contenders, options_.rounds);
    }
    for (size_t j = 0; j < ours.size(); ++j) {
      const StrategyPlan& plan = measured.plans[ours[j]];
      measured.result.times.push_back({plan.strategy, to_string(plan.schedule.tile), *plan.us,
                                       warm[j].median_us, cold[j].median_us});
    }
    for (size_t j = 0; j < peers.size(); ++j)
      measured.result.peers.push_back({peers[j].peer->name(), warm[ours.size() + j].median_us,
                                       cold[ours.size() + j].median_us});
  }

  const GpuBenchOptions& options_;
  std::vector<const BenchCase*> left_;
  std::vector<RegimeCase> results_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<cuda::Context> gpu_;
  std::unique_ptr<Assembler> assembler_;
  cuda::Stream stream_;
  Target target_;
  TaskPool pool_;
  Progress progress_;
  std::unique_ptr<GpuPeerLibraries> libraries_; ///< where they are compared with
  std::unique_ptr<CacheFlush> flush_;           ///< where times are cold, too
  bool failed_ = false;
};

} // namespace

int bench_regimes(const GpuBenchOptions& options) {
  Progressed progressed = resume(options);
  if (!progressed.left.empty())
    return Regimes(options, std::move(progressed)).run();
  report(options, progressed.done); // without a GPU
  return 0;
}

} // namespace sparsertc
