#include "runtime/tune/plan_tune.h"

#include "ir/error.h"
#include "runtime/tune/dense_candidates.h"
#include "runtime/tune/graph_replay.h"
#include "runtime/tune/machine.h"
#include "runtime/tune/plan_comparison.h"
#include "runtime/tune/strategies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace sparsertc::tune {
namespace {

constexpr unsigned kQuickSamples = 5;
constexpr unsigned kRounds = 25;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A candidate's bundle and, once it has been timed, its plan.
struct Code : CandidateCode {
  explicit Code(Bundle made) : bundle(std::move(made)) {}
  // The measuring thread's alone.
  mutable Bundle bundle; ///< moves into the plan
  mutable std::unique_ptr<Plan> plan;
  mutable std::unique_ptr<GraphReplay> replay;
};

uint32_t columns_of(const PlanManifest& manifest, const PlanTuneOptions& options) {
  const uint64_t columns = manifest.n.value_or(options.columns);
  if (options.columns != 0 && options.columns != columns)
    throw UsageError(
        fmt::format("n is {}, the plan was compiled for {}", options.columns, columns));
  if (manifest.entries.empty() || manifest.m == 0 || columns == 0)
    throw UsageError("a layer without rows or columns cannot be tuned",
                     "where the plan takes n at each execution, tuning needs one to measure with");
  return static_cast<uint32_t>(columns);
}

/// Columns of C.
uint32_t outputs_of(const PlanManifest& manifest, uint32_t columns) {
  const uint64_t pixels =
      manifest.images ? uint64_t{manifest.images->out_height} * manifest.images->out_width : 1;
  if (columns * pixels > std::numeric_limits<int32_t>::max())
    throw UsageError(fmt::format("{} images are too many to tune with", columns));
  return static_cast<uint32_t>(columns * pixels);
}

/// The geometry as records say it: of the filters over all channels, in the order of the pattern.
std::string words_of(const PlanImages& images) {
  std::string words = images.words;
  constexpr std::string_view kGroups = "groups=", kTaps = ",taps=rsc";
  if (const size_t at = words.find(kGroups); at != std::string::npos) {
    const size_t begin = at + kGroups.size();
    words.replace(begin, std::min(words.find(',', begin), words.size()) - begin, "1");
  }
  if (words.ends_with(kTaps))
    words.resize(words.size() - kTaps.size());
  return words;
}

const cuda::Context& current_gpu_of(const Plan& plan) {
  const cuda::Context& gpu = plan.context().require_gpu("tuning a plan");
  gpu.make_current();
  return gpu;
}

/// What differs between two layers; empty where they compute the same up to their weights.
std::string difference_of_layers(const PlanManifest& found, const PlanManifest& expected) {
  const auto same = [](const auto& a, const auto& b, const char* what) {
    return a == b ? std::string() : fmt::format("another {}", what);
  };
  for (const std::string& one :
       {same(found.m, expected.m, "number of rows"), same(found.k, expected.k, "number of columns"),
        same(found.n, expected.n, "n"), same(found.dtype, expected.dtype, "type"),
        same(found.column_major, expected.column_major, "layout"),
        same(found.ldb, expected.ldb, "ldb"), same(found.ldc, expected.ldc, "ldc"),
        same(found.bias, expected.bias, "bias"),
        same(found.residual, expected.residual, "residual"),
        same(found.activation, expected.activation, "activation"),
        same(found.images.has_value() ? words_of(*found.images) : std::string(),
             expected.images.has_value() ? words_of(*expected.images) : std::string(), "geometry"),
        same(found.half_terms, expected.half_terms, "number of half terms"),
        same(found.precision, expected.precision, "precision"),
        same(found.nonfinite, expected.nonfinite, "treatment of NaN and infinity"),
        same(found.pattern_digest, expected.pattern_digest, "pattern")})
    if (!one.empty())
      return one;
  return {};
}

/// Convolved as a product of matrices: one tap, stride 1, no padding, of NHWC or a single image.
bool is_product(const PlanManifest& manifest) {
  const PlanImages& images = *manifest.images;
  return (manifest.column_major || manifest.n == 1u) && images.window_height == 1 &&
         images.window_width == 1 && images.out_height == images.height &&
         images.out_width == images.width;
}

LayerImages layer_images(const PlanManifest& manifest, uint32_t count) {
  const PlanImages& images = *manifest.images;
  const uint32_t out_height = std::max(1u, images.out_height);
  const uint64_t row_bytes = uint64_t{images.width} * manifest.element_bytes;
  const bool whole_pieces =
      row_bytes % 4 == 0 && manifest.ldb.value_or(0) * manifest.element_bytes % 4 == 0;
  return {count,
          images.channels,
          images.height,
          images.width,
          images.out_height,
          images.out_width,
          images.window_height,
          images.window_width,
          std::max(1u, (2 * images.height / out_height + 1) / 2), // about
          !manifest.column_major && whole_pieces};
}

class PlanTuner {
public:
  PlanTuner(const Plan& untuned, const PlanTuneOptions& options)
      : untuned_(untuned), options_(options), gpu_(current_gpu_of(untuned)),
        columns_(columns_of(untuned.manifest(), options)), stream_(gpu_),
        flush_(gpu_, 2 * gpu_.properties().l2_cache_bytes),
        comparison_(untuned, stream_, columns_, options.seed),
        untuned_replay_(gpu_, stream_, [this] { comparison_.enqueue(untuned_); }) {}

  PlanTuneResult run() {
    result_.untuned_us = untuned_replay_.time(kQuickSamples).median_us;
    if (!options_.record || !take_record()) {
      SearchResult found;
      if (options_.budget_seconds > 0)
        found = search_space();
      choose(found);
    }
    return std::move(result_);
  }

private:
  std::shared_ptr<Code> make(const Candidate& candidate, unsigned processors,
                             const std::atomic<bool>& stop) const {
    if (stop)
      throw RuntimeError("compiling a candidate", "stopped");
    return std::make_shared<Code>(options_.compile(candidate, processors, stop));
  }

  const GraphReplay& replay(const CandidateCode& code) const {
    const auto& own = static_cast<const Code&>(code);
    if (!own.plan) {
      // The caller's workspace has room for what the untuned plan takes.
      const std::string name = "a candidate's bundle";
      auto plan =
          std::make_unique<Plan>(untuned_.context().shared_from_this(), std::move(own.bundle), name,
                                 untuned_.library_workspace_bytes());
      const std::string other = difference_of_layers(plan->manifest(), untuned_.manifest());
      if (!other.empty())
        throw UserError("a candidate's bundle has " + other);
      own.plan = std::move(plan);
    }
    if (!own.replay)
      own.replay =
          std::make_unique<GraphReplay>(gpu_, stream_, [&] { comparison_.enqueue(*own.plan); });
    return *own.replay;
  }

  std::string check(const CandidateCode& code) const {
    return comparison_.compare(*static_cast<const Code&>(code).plan);
  }

  void remark(const std::string& text) {
    result_.remark += (result_.remark.empty() ? "" : "\n") + text;
  }

  /// Whether the record was taken.
  bool take_record() {
    const Record& record = *options_.record;
    const Environment here = environment_of(untuned_, columns_);
    const std::vector<std::string> differences = tune::differences(record.environment, here);
    const bool similar = options_.similar && is_similar(record.environment, here);
    result_.record_use = RecordUse::refused;
    if (!differences.empty() && !similar) {
      remark(
          fmt::format("the record was made for something else: {}", fmt::join(differences, "; ")));
      return false;
    }
    try {
      const std::atomic<bool> stop{false};
      const std::shared_ptr<Code> code =
          make(candidate_of(record), processors_of(options_.jobs), stop);
      const std::vector<Timing> timings =
          time_in_turns({&untuned_replay_, &replay(*code)}, kRounds);
      const std::string wrong = check(*code);
      if (!wrong.empty()) {
        ++result_.wrong;
        remark("the record's candidate is wrong: " + wrong);
        return false;
      }
      result_.untuned_us = timings[0].median_us;
      result_.tuned_us = timings[1].median_us;
      code->replay.reset();
      result_.plan = std::move(code->plan);
    } catch (const Error& error) {
      ++result_.refused;
      remark(fmt::format("the record's candidate was refused: {}", error.what()));
      return false;
    }
    result_.record = record;
    result_.record_use = differences.empty() ? RecordUse::holds : RecordUse::similar;
    result_.improved = result_.tuned_us < result_.untuned_us;
    return true;
  }

  static Candidate candidate_of(const Record& record) {
    Candidate candidate;
    candidate.words = record.tile;
    candidate.registers = record.registers;
    return candidate;
  }

  /// The plan's product, and which strategies may take it.
  Layer layer() const {
    const PlanManifest& manifest = untuned_.manifest();
    Layer layer = {static_cast<uint32_t>(manifest.m), static_cast<uint32_t>(manifest.k),
                   outputs_of(manifest, columns_), manifest.nnz, manifest.element_bytes};
    layer.allows_dense = manifest.nonfinite == "dense" && manifest.half_terms == 0 && manifest.n &&
                         (!manifest.images || is_product(manifest));
    layer.allows_panels = layer.allows_dense && manifest.dtype != "f64";
    layer.allows_dense_library = layer.allows_dense && !manifest.bias &&
                                 (manifest.activation == "none" || manifest.activation == "relu");
    layer.is_tf32 = manifest.precision == "tf32";
    if (manifest.images && !is_product(manifest))
      layer.images = layer_images(manifest, columns_);
    return layer;
  }

  SearchResult search_space() {
    const Layer product = layer();
    const Device device = device_of(gpu_);
    std::vector<Candidate> candidates;
    if (options_.record)
      candidates.push_back(candidate_of(*options_.record));
    std::vector<Candidate> space = candidate_space(product, device);
    const size_t dense = dense_library_first(space); // takes part however short the time is
    candidates.insert(candidates.end(), space.begin(), space.end());

    const MakingThreads making = making_threads(options_.jobs);
    bool stop = false;
    SearchHooks hooks;
    hooks.make = [&](const Candidate& candidate, const std::atomic<bool>& stopped) {
      return make(candidate, making.processors, stopped);
    };
    hooks.time = [&](const CandidateCode& code) {
      return replay(code).time(kQuickSamples).median_us;
    };
    hooks.check = [&](const CandidateCode& code) { return check(code); };
    hooks.alternative = in_other_row_order;
    hooks.now = now;
    hooks.interrupted = [&] { return stop; };
    if (options_.progress)
      hooks.progress = [&](const SearchState& state) {
        stop = stop || options_.progress({state, result_.untuned_us});
      };
    SearchOptions search_options;
    search_options.budget_seconds = options_.budget_seconds;
    search_options.threads = making.threads;
    search_options.first = (options_.record ? 1 : 0) + dense;
    SearchResult found = search(candidates, hooks, search_options);
    result_.strategies = describe_strategies(product, device, space, found.trials);
    return found;
  }

  /// Times the best few and the untuned plan in turns, and fills in the result.
  void choose(const SearchResult& found) {
    std::vector<const Trial*> finalists;
    const Trial* first_refused = nullptr;
    for (const Trial& trial : found.trials) {
      if (trial.code)
        finalists.push_back(&trial);
      if (trial.refused.empty())
        continue;
      ++(trial.is_wrong ? result_.wrong : result_.refused);
      first_refused = first_refused ? first_refused : &trial;
    }
    if (first_refused)
      remark(fmt::format("{}: {}", to_string(first_refused->candidate), first_refused->refused));

    std::vector<const GraphReplay*> contenders = {&untuned_replay_};
    for (const Trial* trial : finalists)
      contenders.push_back(&replay(*trial->code));
    const std::vector<Timing> timings = time_in_turns(contenders, kRounds);
    size_t best = 0;
    for (size_t i = 1; i < timings.size(); ++i)
      if (timings[i].median_us < timings[best].median_us)
        best = i;

    uint32_t registers = untuned_.manifest().max_registers;
    if (best == 0) {
      result_.plan =
          std::make_unique<Plan>(untuned_.context().shared_from_this(), untuned_.bundle(),
                                 "the untuned plan's bundle", untuned_.library_workspace_bytes());
    } else {
      const Trial& winner = *finalists[best - 1];
      const auto& code = static_cast<const Code&>(*winner.code);
      code.replay.reset();
      result_.plan = std::move(code.plan);
      registers = winner.candidate.registers;
    }
    const Plan& plan = *result_.plan;
    result_.improved = best != 0;
    result_.untuned_us = timings[0].median_us;
    result_.tuned_us = timings[best].median_us;

    Record& record = result_.record;
    record.environment = environment_of(plan, columns_);
    record.tile = plan.manifest().tile;
    record.registers = registers;
    record.warm = timings[best];
    record.cold = time_cold(
        gpu_, stream_, [&] { comparison_.enqueue(plan); }, flush_, kRounds);
    record.search_seconds = found.seconds;
    record.candidates_tried = found.tried;
    record.candidates_in_space = found.space;
    record.exhausted = found.exhausted;
    record.interrupted = found.interrupted;
  }

  const Plan& untuned_;
  const PlanTuneOptions& options_;
  const cuda::Context& gpu_;
  uint32_t columns_;
  cuda::Stream stream_;
  cuda::DeviceBuffer flush_;
  PlanComparison comparison_;
  GraphReplay untuned_replay_;
  PlanTuneResult result_;
};

} // namespace

Environment environment_of(const Plan& plan, uint32_t columns) {
  const PlanManifest& manifest = plan.manifest();
  const cuda::Context& gpu = plan.context().require_gpu("tuning a plan");
  Environment environment;
  environment.gpu = gpu.properties().name;
  environment.driver = static_cast<uint32_t>(gpu.driver().version());
  environment.target = manifest.target;
  environment.sparsertc = manifest.sparsertc;
  environment.assembler = plan.code() == Plan::Code::cubin ? manifest.assembler : "driver";
  environment.pattern_digest = manifest.pattern_digest;
  environment.nnz = manifest.nnz;
  environment.m = static_cast<uint32_t>(manifest.m);
  environment.k = static_cast<uint32_t>(manifest.k);
  environment.n = columns;
  environment.dtype = manifest.dtype;
  const auto unless_tight = [](const std::optional<uint64_t>& leading, uint64_t tight) {
    return leading && *leading != std::max<uint64_t>(tight, 1) ? *leading : 0;
  };
  LayerOptions options;
  const bool column_major = manifest.column_major;
  if (manifest.images) {
    const PlanImages& images = *manifest.images;
    const uint64_t in = uint64_t{images.height} * images.width;
    const uint64_t out = uint64_t{images.out_height} * images.out_width;
    options.layout = column_major ? "nhwc" : "nchw";
    options.convolution = words_of(images);
    options.ldb = unless_tight(manifest.ldb, images.channels * (column_major ? 1 : in));
    options.ldc = unless_tight(manifest.ldc, manifest.m * (column_major ? 1 : out));
  } else {
    options.layout = column_major ? "column" : "row";
    options.ldb = unless_tight(manifest.ldb, column_major ? manifest.k : columns);
    options.ldc = unless_tight(manifest.ldc, column_major ? manifest.m : columns);
  }
  options.bias = manifest.bias;
  options.residual = manifest.residual;
  options.activation = manifest.activation;
  options.half_terms = manifest.half_terms;
  options.precision = manifest.precision;
  options.nonfinite = manifest.nonfinite;
  options.dynamic_columns = !manifest.n;
  environment.options = to_string(options);
  return environment;
}

PlanTuneResult tune_plan(const Plan& untuned, const PlanTuneOptions& options) {
  if (!std::isfinite(options.budget_seconds) || options.budget_seconds < 0)
    throw UsageError("the budget is no number of seconds");
  return PlanTuner(untuned, options).run();
}

} // namespace sparsertc::tune
