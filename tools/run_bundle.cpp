#include "tools/run_bundle.h"

#include "compiler/input/bytes.h"
#include "ir/error.h"
#include "runtime/plan/plan.h"
#include "runtime/tune/graph_replay.h"
#include "tools/bundle_weights.h"
#include "tools/run_report.h"
#include "tools/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

namespace sparsertc {
namespace {

constexpr uint32_t kDefaultColumns = 256;

/// The bundle in the file, or one made of a manifest and the code beside it.
Bundle read_code(const std::string& path) {
  if (path.ends_with(".srtc"))
    return read_bundle(path);
  const std::vector<uint8_t> manifest = read_bytes(path + ".json");
  Bundle bundle;
  bundle.manifest.assign(manifest.begin(), manifest.end());
  bundle.sections.push_back({path.ends_with(".ptx") ? "ptx" : "cubin", read_bytes(path)});
  return bundle;
}

/// What the bundle computes, with what the launch gives.
SpmmProblem problem_of(const PlanManifest& manifest, const BundleRun& run) {
  const ProblemOptions& given = run.problem;
  SpmmProblem problem = problem_of(manifest);
  const auto agree = [&](const char* option, uint64_t asked, std::optional<uint64_t> fixed) {
    if (fixed && asked != 0 && asked != *fixed)
      throw UsageError(
          fmt::format("{}={}: {} was compiled for {}", option, asked, run.path, *fixed));
    return fixed ? *fixed : asked;
  };
  if (given.columns != "dynamic") {
    const uint64_t columns = parse_number("--columns", given.columns);
    if (columns > kMaximumDimension)
      throw UsageError(fmt::format("--columns: {} is too large", columns));
    problem.columns = static_cast<uint32_t>(columns);
  }
  if (manifest.n && problem.columns && *problem.columns != *manifest.n)
    throw UsageError(fmt::format("--columns={}: {} was compiled for {}", *problem.columns, run.path,
                                 *manifest.n));
  if (manifest.n)
    problem.columns = static_cast<uint32_t>(*manifest.n);
  problem.ldb = agree("--ldb", given.ldb, manifest.ldb);
  problem.ldc = agree("--ldc", given.ldc, manifest.ldc);
  return problem;
}

/// What is computed is in the bundle; words that say otherwise would go unheard.
void refuse_contradictions(const BundleRun& run) {
  refuse_problem(run.problem, run.path);
  if (run.check && run.weights.empty())
    throw UsageError("--check: a bundle does not hold the matrix that it was compiled from",
                     "--weights=FILE names the file");
  if (!run.check && !run.weights.empty())
    throw UsageError("--weights is for --check, which was not asked for");
}

void refuse_operands(const BundleRun& run, const PlanManifest& manifest) {
  const auto refuse = [&](const std::string& path, bool taken, const char* option,
                          const char* what) {
    if (!path.empty() && !taken)
      throw UsageError(fmt::format("{}: {} takes no {}", option, run.path, what));
  };
  refuse(run.sources.bias, manifest.bias, "--bias-file", "bias");
  refuse(run.sources.residual, manifest.residual, "--residual-file", "residual");
}

/// The matrix that the bundle was compiled from, whose pattern is the bundle's; without a file only
/// its shape.
Matrix weights_of(const BundleRun& run, const PlanManifest& manifest) {
  if (run.weights.empty()) {
    Matrix shape;
    shape.pattern.rows = static_cast<uint32_t>(manifest.m);
    shape.pattern.columns = static_cast<uint32_t>(manifest.k);
    return shape;
  }
  return read_bundle_weights(run.weights, run.tensor, manifest, run.path);
}

std::span<uint8_t> bytes_of(const AlignedBytes& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}

/// Operands and workspace on the device.
class Execution {
public:
  Execution(const Plan& plan, const SpmmBuffers& buffers, const SpmmOperands& operands)
      : plan_(plan), gpu_(plan.context().require_gpu("running a bundle")), buffers_(buffers),
        stream_(gpu_), b_(gpu_, buffers.b.size()), c_(gpu_, buffers.c.size()),
        bias_(gpu_, buffers.bias.size()), residual_(gpu_, buffers.residual.size()),
        workspace_(gpu_, plan_.workspace_bytes()) {
    b_.upload(bytes_of(buffers.b), stream_);
    c_.upload(bytes_of(buffers.c), stream_);
    bias_.upload(bytes_of(buffers.bias), stream_);
    residual_.upload(bytes_of(buffers.residual), stream_);
    arguments_ = {b_.address(),
                  c_.address(),
                  bias_.address(),
                  residual_.address(),
                  operands.n,
                  static_cast<int64_t>(buffers.ldb),
                  static_cast<int64_t>(buffers.ldc)};
    plan.initialize_workspace(workspace_.address(), stream_.handle());
  }

  /// Once for the result, which comes back in the buffers' C; then timed.
  tune::Timing run(unsigned samples) const {
    enqueue();
    plan_.status(workspace_.address(), stream_.handle()); // waits, and tells of faults
    c_.download(bytes_of(buffers_.c), stream_);
    if (arguments_.n == 0 || plan_.manifest().entries.empty())
      return {}; // nothing is enqueued
    return tune::GraphReplay(gpu_, stream_, [this] { enqueue(); }).time(samples);
  }

private:
  void enqueue() const { plan_.execute(arguments_, workspace_.address(), stream_.handle()); }

  const Plan& plan_;
  const cuda::Context& gpu_;
  const SpmmBuffers& buffers_;
  cuda::Stream stream_;
  cuda::DeviceBuffer b_, c_, bias_, residual_, workspace_;
  SpmmArguments arguments_;
};

std::shared_ptr<const ExecutionContext> open_gpu(const BundleRun& run) {
  try {
    return std::make_shared<ExecutionContext>(0);
  } catch (const NoGpuError& error) {
    const std::string text = error.what(); // without its own way out, which is not this one
    constexpr std::string_view kWord = "error: ";
    const std::string reason = text.substr(0, text.find("\nnote: "));
    throw NoGpuError(
        fmt::format("running {}: {}", run.path,
                    reason.starts_with(kWord) ? reason.substr(kWord.size()) : reason),
        "a bundle holds code for GPUs; to run on the CPU, give the weights it was compiled from: "
        "sparsertc run WEIGHTS");
  }
}

} // namespace

bool is_compiled_code(const std::string& path) {
  return path.ends_with(".srtc") || path.ends_with(".cubin") || path.ends_with(".ptx");
}

void refuse_problem(const ProblemOptions& given, const std::string& path) {
  const ProblemOptions defaults;
  const auto refuse = [&](bool differs, const char* option) {
    if (differs)
      throw UsageError(
          fmt::format("{}: {} is compiled already and says itself what it computes", option, path),
          "run the weights to compile them otherwise");
  };
  refuse(given.op != defaults.op, "--op");
  refuse(given.conv != defaults.conv, "--conv");
  refuse(given.type != defaults.type, "--dtype");
  refuse(given.layout != defaults.layout, "--layout");
  refuse(given.bias, "--bias");
  refuse(given.residual, "--residual");
  refuse(given.activation != defaults.activation, "--activation");
  refuse(given.half_terms != defaults.half_terms, "--half-terms");
  refuse(given.precision != defaults.precision, "--precision");
  refuse(given.nonfinite != defaults.nonfinite, "--nonfinite");
}

SpmmProblem problem_of(const PlanManifest& manifest) {
  SpmmProblem problem;
  problem.type = data_type_from_name(manifest.dtype);
  problem.layout = manifest.column_major ? Layout::column_major : Layout::row_major;
  problem.epilogue = {manifest.bias, manifest.residual, activation_from_name(manifest.activation)};
  problem.half_terms = manifest.half_terms;
  if (!manifest.precision.empty())
    problem.precision = precision_from_name(manifest.precision);
  if (!manifest.nonfinite.empty())
    problem.nonfinite = nonfinite_from_name(manifest.nonfinite);
  if (manifest.images)
    problem.convolution = parse_convolution(manifest.images->words).convolution;
  if (manifest.n)
    problem.columns = static_cast<uint32_t>(*manifest.n);
  return problem;
}

int run_bundle(const BundleRun& run) {
  refuse_contradictions(run);
  Bundle bundle = read_code(run.path);
  const PlanManifest manifest = parse_plan_manifest(bundle.manifest, run.path);
  const SpmmProblem problem = problem_of(manifest, run);
  refuse_operands(run, manifest);
  const Matrix weights = weights_of(run, manifest);
  const std::shared_ptr<const ExecutionContext> context = open_gpu(run);
  const SpmmOperands operands = make_operands(weights, problem, run.sources, kDefaultColumns);
  const SpmmBuffers buffers = lay_out(operands, problem);

  stop_if_interrupted();
  const auto start = std::chrono::steady_clock::now();
  const Plan plan(context, std::move(bundle), run.path);
  const std::chrono::duration<double, std::micro> load = std::chrono::steady_clock::now() - start;
  if (!plan.library_refusal().empty())
    fmt::print(stderr, "sparsertc: our own dense kernel runs: {}\n", plan.library_refusal());
  const tune::Timing timing = Execution(plan, buffers, operands).run(run.repeat);
  const std::vector<double> result = read_back(buffers, operands, problem);
  stop_if_interrupted();

  std::optional<CheckResult> check;
  if (run.check) {
    TaskPool pool(run.jobs);
    SpmmTile tile; // of which the bound needs the strategy and the number of parts
    const SpmmTileChoice words = parse_tile_choice(manifest.tile);
    tile.strategy = words.strategy.value_or(Strategy::unrolled);
    tile.splitk = words.splitk.value_or(1);
    tile.cluster = words.cluster.value_or(1);
    check = check_spmm(weights, problem, tile, operands, result, pool);
  }
  if (!run.output.empty())
    write_npy(run.output, result_shape(operands, problem), stored_type(problem.type),
              in_file_order(operands, problem, result));

  RunReport report;
  report.input = run.path;
  report.m = manifest.m;
  report.k = manifest.k;
  report.n = operands.n;
  if (manifest.images)
    report.convolution = manifest.images->words;
  report.nnz = manifest.nnz;
  report.dtype = manifest.dtype;
  report.layout = layout_word(problem);
  report.operations = 2 * manifest.nnz * operands.columns;
  report.device = context->gpu()->properties().name;
  report.target = manifest.target;
  report.strategy = manifest.strategy;
  report.tile = manifest.tile;
  report.code = plan.code() == Plan::Code::cubin ? "cubin"
                : plan.code() == Plan::Code::ptx ? "ptx"
                                                 : "none";
  report.prepare_us = load.count();
  report.repeat = run.repeat;
  report.time_us = timing.median_us;
  report.time_min_us = timing.minimum_us;
  report.time_max_us = timing.maximum_us;
  return print_report(report, check ? &*check : nullptr, run.json, run.output == "-");
}

} // namespace sparsertc
