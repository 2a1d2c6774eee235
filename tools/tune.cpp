// sparsertc tune: measures candidates for one matrix on this GPU and writes a record of the winner.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "runtime/tune/dense_candidates.h"
#include "runtime/tune/machine.h"
#include "runtime/tune/strategies.h"
#include "tools/assemblers.h"
#include "tools/bench_layer.h"
#include "tools/command.h"
#include "tools/gpu.h"
#include "tools/gpu_peers.h"
#include "tools/options.h"
#include "tools/session.h"
#include "tools/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace sparsertc {
namespace {

struct TuneOptions {
  InputOptions input;
  ProblemOptions problem;
  JobOptions jobs;
  std::string output;
  std::vector<std::string> tiles;
  double budget_seconds = 20;
  unsigned rounds = 25;
  uint64_t seed = 1;
  bool rivals = true;
};

/// Candidates: the user's, the compiler's own choice, and the space.
/// `first`: those that take part however short the time is.
std::vector<tune::Candidate> candidates_of(const TuneOptions& options, const GpuLayer& layer,
                                           size_t& first) {
  std::vector<tune::Candidate> candidates;
  for (const std::string& tile : options.tiles)
    candidates.push_back(tune::parse_candidate(tile));
  candidates.emplace_back();
  std::vector<tune::Candidate> space = layer.space();
  first = candidates.size() + tune::dense_library_first(space);
  candidates.insert(candidates.end(), space.begin(), space.end());
  return candidates;
}

void print_record(const tune::Record& record, const CandidateFacts& facts) {
  fmt::print("{} x {} x {}, {}, on {}: {} of {} candidates in {:.1f} s\n", record.environment.m,
             record.environment.k, record.environment.n, record.environment.dtype,
             record.environment.gpu, record.candidates_tried, record.candidates_in_space,
             record.search_seconds);
  fmt::print("best: {}\n", facts.tile);
  fmt::print(
      "  warm {:.2f} us ({:.2f} to {:.2f}), cold {:.2f} us ({:.2f} to {:.2f}); {} registers, "
      "{} bytes of code, {} bytes spilled, compiled in {:.2f} s\n",
      record.warm.median_us, record.warm.minimum_us, record.warm.maximum_us, record.cold.median_us,
      record.cold.minimum_us, record.cold.maximum_us, facts.registers, facts.code_bytes,
      facts.spill_bytes, facts.compile_us * 1e-6);
  for (const tune::Record::Rival& rival : record.rivals)
    fmt::print("  {:<14} {:.2f} us, {:.2f} times ours{}\n", rival.name, rival.time_us,
               rival.time_us / record.warm.median_us,
               rival.time_us < record.warm.median_us ? ": faster" : "");
}

/// The best time of each strategy that was tried, and from which zeros on each would be the
/// fastest.
void print_strategies(const cuda::Context& gpu, const GpuLayer& layer,
                      const tune::SearchResult& found, const tune::Record& record) {
  fmt::print(
      "won: {}; the best of each strategy in the search: {}\n", tune::strategy_of(record.tile),
      tune::describe_strategies(layer.shape(), tune::device_of(gpu), layer.space(), found.trials));
}

int tune_matrix(const TuneOptions& options) {
  if (options.input.list_tensors) {
    print_tensors(options.input);
    return 0;
  }
  SpmmProblem problem = to_problem(options.problem);
  if (!problem.columns || *problem.columns == 0)
    throw UsageError("--columns: tuning needs a number of columns, or of images");
  if (!(options.budget_seconds > 0))
    throw UsageError("--budget: expected a number of seconds");
  if (options.rounds == 0)
    throw UsageError("--rounds: expected at least 1");
  for (const std::string& tile : options.tiles)
    parse_tile_choice(tune::parse_candidate(tile).words);
  refuse_overwriting(options.output, {options.input.path});
  ReadOptions read = to_read_options(options.input);
  read.require_values = true;
  Matrix weights = as_matrix(read_matrix(options.input.path, read), problem);
  if (weights.pattern.rows == 0)
    throw UserError(Place{options.input.path, 0, 0, {}}, "a matrix without rows is not tuned");

  const std::unique_ptr<cuda::Context> gpu = require_gpu();
  const std::unique_ptr<Assembler> assembler = require_assembler();
  const cuda::Stream stream(*gpu);
  TaskPool pool(options.jobs.jobs);
  GpuLayer layer(*gpu, stream, *assembler, pool, std::move(weights), problem, options.seed);

  Progress progress;
  const tune::MakingThreads making = tune::making_threads(options.jobs.jobs);
  tune::SearchHooks hooks = layer.hooks(making.processors);
  hooks.progress = [&](const tune::SearchState& state) {
    progress.show(fmt::format(
        "sparsertc: {} of {} candidates, best {:.2f} us, {:.0f} of {:g} s ...", state.tried,
        state.space, state.best_us, state.seconds, options.budget_seconds));
  };
  tune::SearchOptions search;
  search.budget_seconds = options.budget_seconds;
  search.threads = making.threads;
  const std::vector<tune::Candidate> candidates = candidates_of(options, layer, search.first);
  const tune::SearchResult found = tune::search(candidates, hooks, search);
  progress.clear();
  report_refusals(found, options.input.path);
  bool wrong = false;
  std::vector<const tune::Trial*> finalists;
  for (const tune::Trial& trial : found.trials) {
    if (trial.code)
      finalists.push_back(&trial);
    wrong |= trial.is_wrong;
  }
  if (finalists.empty()) {
    if (found.interrupted)
      throw Interrupted{};
    throw RuntimeError("tuning " + options.input.path,
                       found.trials.empty() ? "there was no candidate"
                                            : "no candidate ran: " + found.trials.front().refused);
  }

  // The best few in full, beside the libraries.
  const GpuPeerLibraries libraries(*gpu, stream);
  std::vector<std::string> refused = libraries.missing();
  std::vector<PreparedPeer> peers;
  // Who has pressed Ctrl-C does not want to wait for the libraries.
  const bool rivals = options.rivals && !found.interrupted;
  if (rivals)
    peers = prepare_peers(*gpu, stream, libraries, layer, pool, refused);
  if (rivals)
    for (const std::string& reason : refused)
      fmt::print(stderr, "sparsertc: left out: {}\n", reason);
  std::vector<const tune::GraphReplay*> contenders;
  for (const tune::Trial* trial : finalists)
    contenders.push_back(&layer.replay(*trial->code));
  for (const PreparedPeer& peer : peers)
    contenders.push_back(peer.replay.get());
  const std::vector<tune::Timing> timings = tune::time_in_turns(contenders, options.rounds);
  size_t best = 0;
  for (size_t i = 1; i < finalists.size(); ++i)
    if (timings[i].median_us < timings[best].median_us)
      best = i;

  const tune::CandidateCode& winner = *finalists[best]->code;
  tune::Record record;
  record.environment =
      environment_of(layer.weights().pattern, problem, layer.target(), assembler->identity());
  record.environment.gpu = gpu->properties().name;
  record.environment.driver = static_cast<uint32_t>(gpu->driver().version());
  const CandidateFacts facts = layer.facts(winner);
  const tune::Candidate resolved = tune::parse_candidate(facts.tile);
  record.tile = resolved.words;
  record.registers = resolved.registers;
  record.warm = timings[best];
  const cuda::DeviceBuffer flush(
      *gpu, 2 * std::max<uint64_t>(gpu->properties().l2_cache_bytes, uint64_t{32} << 20));
  record.cold = layer.time_cold(winner, flush, options.rounds);
  record.search_seconds = found.seconds;
  record.candidates_tried = found.tried;
  record.candidates_in_space = found.space;
  record.exhausted = found.exhausted;
  record.interrupted = found.interrupted;
  for (size_t i = 0; i < peers.size(); ++i)
    record.rivals.push_back({peers[i].peer->name(), timings[finalists.size() + i].median_us});

  if (options.output != "-")
    print_record(record, facts);
  if (options.output != "-")
    print_strategies(*gpu, layer, found, record);
  if (!options.output.empty())
    write_text(options.output, to_json(record));
  if (found.interrupted)
    throw Interrupted{}; // what was found has been kept
  return wrong ? 1 : 0;
}

} // namespace

Command add_tune_command(CLI::App& application) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* parser = application.add_subcommand(
      "tune", "Measures candidates on this GPU and records the fastest for compile --tuning");
  declare(*parser, options->input);
  parser->add_option("-o,--output", options->output,
                     "Where the record goes (JSON); - is standard output");
  parser->add_option("--budget", options->budget_seconds, "Seconds of searching")
      ->capture_default_str();
  parser
      ->add_option(
          "--tile", options->tiles,
          "Candidates that take part in any case, as for compile, perhaps with registers=; "
          "may be repeated")
      ->expected(1)
      ->take_all();
  parser->add_flag("--rivals,!--no-rivals", options->rivals,
                   "Time cuBLAS and cuSPARSE in the same run, where present (default: on)");
  parser->add_option("--rounds", options->rounds, "Times that each finalist takes its turn")
      ->capture_default_str();
  parser->add_option("--seed", options->seed, "Of the operands")->capture_default_str();
  declare(*parser, options->jobs);
  declare(*parser, options->problem);
  parser->footer("Ctrl-C ends the search; the best so far is recorded, and the exit code is 130.\n"
                 "Examples:\n"
                 "  sparsertc tune layer.npy -n 256 --budget=20 -o layer.tuning.json\n"
                 "  sparsertc compile layer.npy -n 256 --target=native --tuning=layer.tuning.json "
                 "-o layer.srtc");
  return {parser, [options] { return tune_matrix(*options); }};
}

} // namespace sparsertc
