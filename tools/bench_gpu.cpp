#include "tools/bench_gpu.h"

#include "ir/error.h"
#include "runtime/tune/dense_candidates.h"
#include "runtime/tune/machine.h"
#include "tools/assemblers.h"
#include "tools/bench_layer.h"
#include "tools/cold_cache.h"
#include "tools/gpu.h"
#include "tools/gpu_peers.h"
#include "tools/tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace sparsertc {
namespace {

/// What all cases share.
struct Bench {
  const GpuBenchOptions& options;
  const cuda::Context& gpu;
  const cuda::Stream& stream;
  const Assembler& assembler;
  const GpuPeerLibraries* libraries; ///< none for convolutions
  TaskPool& pool;
  Progress& progress;
  const CacheFlush* flush; ///< where times are cold
};

/// `first`: those that take part however short the time is.
std::vector<tune::Candidate> candidates_of(const GpuBenchOptions& options, const GpuLayer& layer,
                                           size_t& first) {
  std::vector<tune::Candidate> candidates;
  for (const std::string& tile : options.tiles)
    candidates.push_back(tune::parse_candidate(tile));
  if (candidates.empty()) // the compiler's own choice always takes part
    candidates.emplace_back();
  first = candidates.size();
  if (options.automatic) {
    std::vector<tune::Candidate> space = layer.space();
    first += tune::dense_library_first(space);
    candidates.insert(candidates.end(), space.begin(), space.end());
  }
  return candidates;
}

void count_trials(const tune::SearchResult& found, GpuBenchRow& row) {
  row.tried = found.tried;
  row.space = found.space;
  for (const tune::Trial& trial : found.trials) {
    row.refused += !trial.refused.empty() && !trial.is_wrong;
    row.wrong += trial.is_wrong;
  }
}

/// Seconds of searching for the next case, of a run that has a limit.
class Budget {
public:
  explicit Budget(const GpuBenchOptions& options) : options_(options) {}

  /// `left`: cases, this one included.
  double next(size_t left) {
    if (options_.total_seconds <= 0)
      return options_.budget_seconds;
    const double now = seconds();
    // Reading, the last candidate, the timing: as much as they have taken so far.
    const double beside = cases_ == 0 ? 0 : (now - given_) / cases_;
    const double share = (options_.total_seconds - now) / static_cast<double>(left);
    const double budget = std::min(options_.budget_seconds, std::max(kLeast, share - beside));
    ++cases_;
    given_ += budget;
    return budget;
  }

private:
  static constexpr double kLeast = 0.1;
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  const GpuBenchOptions& options_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  unsigned cases_ = 0; ///< that have been given
  double given_ = 0;   ///< to all of them
};

void measure(const Bench& bench, const BenchCase& one, double budget_seconds,
             const std::string& doing, GpuBenchRow& row, std::string& trials) {
  SpmmProblem problem = one.problem;
  Matrix weights = as_matrix(one.weights(), problem);
  GpuLayer layer(bench.gpu, bench.stream, bench.assembler, bench.pool, std::move(weights), problem,
                 bench.options.seed + 2);
  const Pattern& pattern = layer.weights().pattern;
  row.actual_percent = 100 * statistics_of(pattern).sparsity;
  row.m = pattern.rows;
  row.k = pattern.columns;
  row.n = layer.operands().columns;
  row.nnz = pattern.nnz();

  const tune::MakingThreads making = tune::making_threads(bench.options.jobs);
  tune::SearchHooks hooks = layer.hooks(making.processors);
  if (!bench.options.automatic) // the words that were given, and no others
    hooks.alternative = nullptr;
  hooks.progress = [&](const tune::SearchState& state) {
    bench.progress.show(fmt::format("{}: {} of {} candidates, best {:.2f} us, {:.0f} s ...", doing,
                                    state.tried, state.space, state.best_us, state.seconds));
  };
  tune::SearchOptions search;
  search.budget_seconds = budget_seconds;
  search.threads = making.threads;
  const std::vector<tune::Candidate> candidates = candidates_of(bench.options, layer, search.first);
  const tune::SearchResult found = tune::search(candidates, hooks, search);
  bench.progress.clear();
  report_refusals(found, row.name);
  count_trials(found, row);
  trials += gpu_trials_csv(row, found);

  std::vector<std::string> refused;
  std::vector<PreparedPeer> peers;
  if (bench.libraries)
    peers = prepare_peers(bench.gpu, bench.stream, *bench.libraries, layer, bench.pool, refused);
  for (const std::string& reason : refused)
    fmt::print(stderr, "sparsertc: {}: left out: {}\n", row.name, reason);
  std::vector<const tune::Trial*> finalists;
  for (const tune::Trial& trial : found.trials)
    if (trial.code)
      finalists.push_back(&trial);
  if (finalists.empty())
    throw RuntimeError("measuring " + row.name,
                       found.trials.empty() ? "stopped before the first candidate"
                                            : "no candidate ran: " + found.trials.front().refused);

  std::vector<const tune::GraphReplay*> contenders;
  for (const tune::Trial* trial : finalists)
    contenders.push_back(&layer.replay(*trial->code));
  for (const PreparedPeer& peer : peers)
    contenders.push_back(peer.replay.get());
  std::vector<std::unique_ptr<tune::GraphReplay>> cold;
  if (bench.flush) {
    contenders.clear();
    for (const tune::Trial* trial : finalists)
      cold.push_back(bench.flush->before([&] { layer.enqueue(*trial->code); }));
    for (const PreparedPeer& peer : peers)
      cold.push_back(bench.flush->before([&] { peer.peer->enqueue(); }));
    for (const auto& replay : cold)
      contenders.push_back(replay.get());
  }
  const std::vector<tune::Timing> timings =
      bench.flush ? time_cold(*bench.flush, contenders, bench.options.rounds)
                  : tune::time_in_turns(contenders, bench.options.rounds);

  for (size_t i = 0; i < finalists.size(); ++i) {
    if (i > 0 && timings[i].median_us >= row.ours.median_us)
      continue;
    const CandidateFacts facts = layer.facts(*finalists[i]->code);
    row.ours = timings[i];
    row.tile = facts.tile;
    row.registers = facts.registers;
    row.code_bytes = facts.code_bytes;
    row.spill_bytes = facts.spill_bytes;
    row.compile_us = facts.compile_us;
  }
  for (size_t i = 0; i < peers.size(); ++i)
    row.peers.push_back({peers[i].peer->name(), timings[finalists.size() + i]});
}

} // namespace

int bench_gpu(const GpuBenchOptions& options) {
  const std::unique_ptr<cuda::Context> gpu = require_gpu();
  const std::unique_ptr<Assembler> assembler = require_assembler();
  const cuda::Stream stream(*gpu);
  std::unique_ptr<GpuPeerLibraries> libraries;
  if (!options.convolutions)
    libraries = std::make_unique<GpuPeerLibraries>(*gpu, stream);
  TaskPool pool(options.jobs);
  Progress progress;
  std::unique_ptr<CacheFlush> flush;
  if (options.cold)
    flush = std::make_unique<CacheFlush>(*gpu, stream, find_target(target_of(*gpu)));
  const Bench bench{options,         *gpu, stream,   *assembler,
                    libraries.get(), pool, progress, flush.get()};

  GpuBenchSetting setting;
  setting.gpu = gpu->properties().name;
  setting.driver = static_cast<uint32_t>(gpu->driver().version());
  setting.assembler = assembler->identity();
  if (libraries) {
    setting.libraries = libraries->found();
    setting.missing = libraries->missing();
  }
  setting.rounds = options.rounds;
  setting.convolutions = options.convolutions;
  setting.type = name_of(options.type);
  setting.cold = options.cold;
  for (const std::string& missing : setting.missing)
    fmt::print(stderr, "sparsertc: left out: {}\n", missing);
  if (!options.json)
    fmt::print("{}, {}, {}; {}\nmedians of {} rounds of graphs of launches (half the range in "
               "percent), {}\n{}",
               setting.gpu, setting.type, setting.assembler,
               setting.libraries.empty() ? "no library to compare with"
                                         : fmt::format("{}", fmt::join(setting.libraries, ", ")),
               setting.rounds,
               setting.cold ? "each after reading more than the cache holds" : "warm",
               gpu_table_head(setting));

  std::vector<GpuBenchRow> rows;
  std::string trials = gpu_trials_head();
  bool failed = false, stopped = false;
  Budget budget(options);
  for (const BenchCase& one : options.cases) {
    GpuBenchRow& row = rows.emplace_back();
    row.name = one.name;
    row.nominal_percent = one.nominal_percent;
    row.conv = one.conv;
    const std::string doing =
        fmt::format("sparsertc: {} of {}: {}", rows.size(), options.cases.size(), one.name);
    progress.show(doing + " ...");
    try {
      measure(bench, one, budget.next(options.cases.size() - rows.size() + 1), doing, row, trials);
    } catch (const Error& error) {
      row.failure = error.what();
    }
    progress.clear();
    stopped = interrupt_flag();
    failed |= row.wrong > 0 || (!row.failure.empty() && !stopped);
    if (!row.failure.empty())
      fmt::print(stderr, "sparsertc: {}: {}\n", row.name, row.failure);
    else if (!options.json)
      fmt::print("{}", gpu_table_line(row, setting));
    std::fflush(stdout);
    if (stopped)
      break;
  }
  if (options.json)
    fmt::print("{}\n", gpu_json(rows, setting));
  else if (!options.convolutions)
    fmt::print("{}", gpu_means(rows));
  if (!options.csv.empty())
    write_text(options.csv, gpu_csv(rows, setting));
  if (!options.trials.empty())
    write_text(options.trials, trials);
  if (!options.plot.empty())
    write_text(options.plot, gpu_plot(rows, setting));
  if (stopped)
    throw Interrupted{};
  return failed ? 1 : 0;
}

} // namespace sparsertc
