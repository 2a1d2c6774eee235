// sparsertc bench: our time beside those of libraries, in one run, taking turns. This file has the
// CPU: OpenBLAS on the dense matrix and Eigen's sparse product, with the same number of threads.
#include "compiler/pipeline.h"
#include "ir/error.h"
#include "tools/bench_cases.h"
#include "tools/bench_gpu.h"
#include "tools/bench_regimes.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/peers.h"
#include "tools/session.h"
#include "tools/spmm_check.h"
#include "tools/spmm_operands.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

namespace sparsertc {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  std::vector<std::string> inputs;
  std::string set;
  std::string values = "random:1";
  std::string op = "spmm";
  std::string conv;
  std::string columns;
  std::string type = "f32", precision = "full", nonfinite = "exact";
  bool cold = false, regimes = false, libraries = false;
  std::string resume;
  std::vector<std::string> shapes;
  std::vector<std::string> tiles;
  std::string candidates;
  double budget_seconds = 5, total_seconds = 0;
  JobOptions jobs;
  ReportOptions report;
  std::string device = "cpu";
  std::string csv, plot, trials;
  std::vector<double> levels = {80, 90, 95, 98};
  uint64_t seed = 1;
  std::optional<unsigned> rounds;
};

constexpr unsigned kCpuRounds = 9;
constexpr unsigned kGpuRounds = 15;
constexpr const char* kDefaultColumns = "256";

bool is_convolution(const BenchOptions& options) {
  return choose_word("--op", options.op, {"spmm", "conv2d"}) == 1;
}

unsigned rounds_of(const BenchOptions& options) {
  return options.rounds.value_or(options.device == "gpu" ? kGpuRounds : kCpuRounds);
}

struct Timing {
  double median_us = 0;
  double minimum_us = 0;
  double maximum_us = 0;
};

struct Row {
  std::string name;
  double nominal_percent = 0;
  double actual_percent = 0;
  uint32_t m = 0, k = 0, n = 0;
  std::string convolution;   ///< the geometry; of a product empty
  uint64_t outputs_each = 0; ///< columns of C: n, or the output pixels of n images
  uint64_t nnz = 0;
  std::string tile;
  std::string_view strategy;
  double compile_us = 0;
  Timing ours;
  std::optional<Timing> openblas, eigen;
};

// ---- measuring ---------------------------------------------------------------------------------

/// Repeated calls of one contender; each sample is the mean of a batch of calls.
class Contender {
public:
  Contender(std::function<void()> call, bool pause_after)
      : call_(std::move(call)), pause_after_(pause_after) {
    constexpr double kBatchSeconds = 0.01;
    call_(); // pages, caches and threads
    const double once = std::max(1e-7, measure(1));
    calls_ = static_cast<unsigned>(std::clamp(kBatchSeconds / once, 1.0, 10000.0));
    rest();
  }

  void sample() {
    call_(); // what the others did to the caches is not measured
    samples_.push_back(measure(calls_) * 1e6);
    rest();
  }

  Timing timing() {
    std::sort(samples_.begin(), samples_.end());
    return {samples_[samples_.size() / 2], samples_.front(), samples_.back()};
  }

private:
  double measure(unsigned calls) {
    const Clock::time_point start = Clock::now();
    for (unsigned i = 0; i < calls; ++i)
      call_();
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
  }
  /// Longer than a library's idle threads keep a core busy waiting for more work.
  void rest() const {
    if (pause_after_)
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }

  std::function<void()> call_;
  bool pause_after_;
  unsigned calls_ = 1;
  std::vector<double> samples_;
};

/// A library's C must agree with the float64 reference as ours does.
void check_result(const Matrix& weights, const SpmmSchedule& schedule, const SpmmOperands& operands,
                  const std::vector<double>& result, const std::string& whose, TaskPool& pool) {
  const CheckResult check =
      check_spmm(weights, schedule.request, schedule.tile, operands, result, pool);
  if (!check.passed)
    throw UserError(fmt::format(
        "{}: the result of {} misses its bound at ({}, {}): expected {:.9g}, "
        "found {:.9g}, bound {:.3g}",
        weights.name, whose, check.row, check.column, check.expected, check.found, check.bound));
}

Row measure(const BenchCase& one, const BenchOptions& options, TaskPool& pool) {
  PipelineOptions pipeline;
  pipeline.problem = one.problem;
  const uint32_t columns = *one.problem.columns;
  pipeline.target = find_target("host");
  if (!options.tiles.empty())
    pipeline.tile = to_tile_choice(ScheduleOptions{options.tiles.front(), 0});
  pipeline.artefact = Artefact::none;
  pipeline.before_stage = [](std::string_view) { stop_if_interrupted(); };
  const Clock::time_point start = Clock::now();
  const PipelineResult compiled = compile_spmm(one.weights, pipeline);
  const HostProgram program = [&] {
    const StopAtOnce stop;
    return HostProgram::compile(compiled.lowered.module);
  }();
  const double compile_seconds = std::chrono::duration<double>(Clock::now() - start).count();

  const Matrix& weights = compiled.weights;
  OperandSources sources;
  sources.seed = options.seed + 2;
  const SpmmProblem& problem = compiled.schedule.request;
  const SpmmOperands operands = make_operands(weights, problem, sources, columns);
  const SpmmBuffers buffers = lay_out(operands, problem);
  const auto run_ours = [&] {
    run_on_host(program, compiled.lowered.kernels, buffers, columns, pool);
  };

  struct PeerRun {
    std::unique_ptr<Peer> peer;
    const char* name;
    std::optional<Timing> Row::*timing;
    SpmmBuffers buffers; ///< C alone
    std::unique_ptr<Contender> contender;
  };
  std::vector<PeerRun> peers;
  peers.push_back(
      {make_openblas(weights, pool.threads()), "OpenBLAS", &Row::openblas, SpmmBuffers(), nullptr});
  peers.push_back({make_eigen(weights, pool), "Eigen", &Row::eigen, SpmmBuffers(), nullptr});

  const auto* b = reinterpret_cast<const float*>(buffers.b.data());
  Contender ours(run_ours, false);
  check_result(weights, compiled.schedule, operands, read_back(buffers, operands, problem),
               "sparsertc", pool);
  for (PeerRun& run : peers) {
    // Filters of several groups are several products, which the peers do not make.
    if (!run.peer || (problem.convolution && problem.convolution->groups > 1))
      continue;
    if (problem.convolution)
      run.peer = make_unfolded(std::move(run.peer), *problem.convolution, operands.rows, pool);
    run.buffers.c = AlignedBytes(buffers.c.size());
    run.buffers.ldc = buffers.ldc;
    run.contender = std::make_unique<Contender>(
        [&run, b, n = columns] {
          run.peer->multiply(b, reinterpret_cast<float*>(run.buffers.c.data()), n);
        },
        run.peer->leaves_threads_spinning());
    check_result(weights, compiled.schedule, operands, read_back(run.buffers, operands, problem),
                 run.name, pool);
  }
  for (unsigned round = 0; round < rounds_of(options); ++round) {
    stop_if_interrupted();
    ours.sample();
    for (PeerRun& run : peers)
      if (run.contender)
        run.contender->sample();
  }

  Row row;
  row.name = one.name;
  row.nominal_percent = one.nominal_percent;
  row.actual_percent = 100 * statistics_of(weights.pattern).sparsity;
  row.m = weights.pattern.rows;
  row.k = weights.pattern.columns;
  row.n = columns;
  row.outputs_each = operands.columns;
  if (problem.convolution)
    row.convolution = to_string(*problem.convolution);
  row.nnz = weights.pattern.nnz();
  row.tile = to_string(compiled.schedule.tile);
  row.strategy = name_of(compiled.schedule.tile.strategy);
  row.compile_us = compile_seconds * 1e6;
  row.ours = ours.timing();
  for (PeerRun& run : peers)
    if (run.contender)
      row.*run.timing = run.contender->timing();
  return row;
}

// ---- reports -----------------------------------------------------------------------------------

double gflops(const Row& row) {
  return 2.0 * static_cast<double>(row.nnz * row.outputs_each) / row.ours.median_us * 1e-3;
}

/// Half the range of the samples, in percent of the median.
double spread_percent(const Timing& timing) {
  return 50 * (timing.maximum_us - timing.minimum_us) / timing.median_us;
}

std::string cell(const std::optional<Timing>& timing) {
  return timing ? fmt::format("{:.1f} ({:.0f}%)", timing->median_us, spread_percent(*timing)) : "-";
}

std::string ratio(const std::optional<Timing>& timing, const Row& row) {
  return timing ? fmt::format("{:.2f}", timing->median_us / row.ours.median_us) : "-";
}

constexpr const char* kTableFormat =
    "{:<26} {:>6} {:>7} {:>9} {:>9} {:>16} {:>8} {:>16} {:>16} {:>7} {:>7}\n";

std::string table_head() {
  return fmt::format(kTableFormat, "matrix", "zeros", "actual", "nnz", "strategy", "ours us",
                     "GFLOP/s", "OpenBLAS us", "Eigen us", "x BLAS", "x Eigen");
}

std::string table_line(const Row& row) {
  return fmt::format(kTableFormat, row.name,
                     row.nominal_percent < 0 ? "-" : fmt::format("{:g}%", row.nominal_percent),
                     fmt::format("{:.2f}%", row.actual_percent), row.nnz, row.strategy,
                     cell(std::optional<Timing>(row.ours)), fmt::format("{:.1f}", gflops(row)),
                     cell(row.openblas), cell(row.eigen), ratio(row.openblas, row),
                     ratio(row.eigen, row));
}

void add_timing(nlohmann::ordered_json& json, const std::string& prefix,
                const std::optional<Timing>& timing) {
  if (!timing) {
    json[prefix + "time_us"] = nullptr;
    return;
  }
  json[prefix + "time_us"] = timing->median_us;
  json[prefix + "time_min_us"] = timing->minimum_us;
  json[prefix + "time_max_us"] = timing->maximum_us;
}

nlohmann::ordered_json to_json(const std::vector<Row>& rows, const BenchOptions& options,
                               unsigned threads) {
  nlohmann::ordered_json json;
  json["device"] = "cpu";
  json["threads"] = threads;
  json["dtype"] = "f32";
  json["rounds"] = rounds_of(options);
  json["cases"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json one;
    one["matrix"] = row.name;
    if (row.nominal_percent >= 0)
      one["nominal_sparsity"] = row.nominal_percent / 100;
    one["sparsity"] = row.actual_percent / 100;
    one["m"] = row.m;
    one["k"] = row.k;
    one["n"] = row.n;
    if (!row.convolution.empty())
      one["conv"] = row.convolution;
    one["nnz"] = row.nnz;
    one["strategy"] = row.strategy;
    one["tile"] = row.tile;
    one["compile_us"] = row.compile_us;
    add_timing(one, "", row.ours);
    one["gflops"] = gflops(row);
    add_timing(one, "openblas_", row.openblas);
    add_timing(one, "eigen_", row.eigen);
    json["cases"].push_back(one);
  }
  return json;
}

std::string quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string to_csv(const std::vector<Row>& rows, unsigned threads) {
  const auto columns = [](const std::optional<Timing>& timing) {
    return timing ? fmt::format("{:.3f},{:.3f},{:.3f}", timing->median_us, timing->minimum_us,
                                timing->maximum_us)
                  : std::string(",,");
  };
  std::string csv = "matrix,nominal_sparsity,sparsity,m,k,n,nnz,threads,strategy,time_us,"
                    "time_min_us,time_max_us,gflops,openblas_time_us,openblas_time_min_us,"
                    "openblas_time_max_us,eigen_time_us,eigen_time_min_us,eigen_time_max_us\n";
  for (const Row& row : rows)
    csv +=
        fmt::format("{},{},{:.6f},{},{},{},{},{},{},{},{:.3f},{},{}\n", quoted(row.name),
                    row.nominal_percent < 0 ? "" : fmt::format("{:g}", row.nominal_percent / 100),
                    row.actual_percent / 100, row.m, row.k, row.n, row.nnz, threads, row.strategy,
                    columns(row.ours), gflops(row), columns(row.openblas), columns(row.eigen));
  return csv;
}

std::vector<BenchCase> shaped_cases(const BenchOptions& options) {
  std::vector<BenchShape> shapes;
  for (const std::string& shape : options.shapes)
    shapes.push_back(parse_bench_shape(shape));
  return random_cases(shapes, options.levels, options.seed);
}

std::vector<BenchCase> cases_of(const BenchOptions& options) {
  if (!options.set.empty() && !options.inputs.empty())
    throw UsageError("--set and IN exclude each other");
  const bool convolutions = is_convolution(options);
  if (!convolutions && !options.conv.empty())
    throw UsageError("--conv is for --op=conv2d");
  if (!options.set.empty()) {
    if (!options.conv.empty())
      throw UsageError("--set and --conv exclude each other",
                       "the list has the geometries in its column conv");
    std::vector<BenchCase> cases = listed_cases(options.set, convolutions, options.values);
    if (!options.shapes.empty() && convolutions)
      throw UsageError("--shapes are those of random matrices, which are no filters");
    if (!options.shapes.empty()) {
      const std::vector<BenchCase> others = shaped_cases(options);
      cases.insert(cases.end(), others.begin(), others.end());
    }
    return cases;
  }
  if (!options.shapes.empty() && (convolutions || !options.inputs.empty()))
    throw UsageError("--shapes are those of random matrices, instead of IN");
  if (options.inputs.empty()) {
    if (convolutions)
      throw UsageError("--op=conv2d: the built-in matrices are no filters",
                       "name files and --conv, or a --set");
    return shaped_cases(options);
  }
  ProblemOptions problem;
  problem.op = options.op;
  problem.conv = options.conv;
  if (!options.columns.empty() || !convolutions)
    problem.columns = options.columns.empty() ? kDefaultColumns : options.columns;
  return file_cases(options.inputs, problem, options.values);
}

int bench_on_gpu(const BenchOptions& options) {
  GpuBenchOptions gpu;
  gpu.convolutions = is_convolution(options);
  if (gpu.convolutions && !options.plot.empty())
    throw UsageError("--plot shows speed-ups over cuBLAS and cuSPARSE, which do not convolve");
  gpu.cases = cases_of(options);
  gpu.type = data_type_from_name(options.type);
  gpu.cold = options.cold;
  choose_word("--precision", options.precision, {"full", "tf32"});
  choose_word("--nonfinite", options.nonfinite, {"exact", "dense"});
  for (BenchCase& one : gpu.cases) {
    one.problem.type = gpu.type;
    one.problem.precision = precision_from_name(options.precision);
    one.problem.nonfinite = nonfinite_from_name(options.nonfinite);
  }
  gpu.tiles = options.tiles;
  gpu.automatic = options.candidates.empty()
                      ? options.tiles.empty()
                      : choose_word("--candidates", options.candidates, {"default", "auto"}) == 1;
  gpu.budget_seconds = options.budget_seconds;
  gpu.total_seconds = options.total_seconds;
  gpu.rounds = rounds_of(options);
  gpu.jobs = options.jobs.jobs;
  gpu.seed = options.seed;
  gpu.json = wants_json(options.report);
  gpu.csv = options.csv;
  gpu.trials = options.trials;
  gpu.plot = options.plot;
  if (options.regimes) {
    if (gpu.convolutions || !options.tiles.empty() || !options.candidates.empty() ||
        !options.trials.empty())
      throw UsageError("--regimes takes products of matrices and the compiler's own tiles",
                       "leave --op, --tile, --candidates and --trials out");
    gpu.libraries = options.libraries;
    gpu.resume = options.resume;
    return bench_regimes(gpu);
  }
  if (options.libraries || !options.resume.empty())
    throw UsageError("--libraries and --resume are for --regimes",
                     "without it libraries take part where they are installed");
  return bench_gpu(gpu);
}

int bench(const BenchOptions& options) {
  const bool json = wants_json(options.report);
  const bool on_gpu = choose_word("--device", options.device, {"cpu", "gpu"}) == 1;
  if (rounds_of(options) == 0)
    throw UsageError("--rounds: expected at least 1");
  if (!(options.budget_seconds > 0))
    throw UsageError("--budget: expected a number of seconds");
  if (!(options.total_seconds >= 0))
    throw UsageError("--total: expected a number of seconds");
  for (double level : options.levels)
    if (!(level >= 0 && level <= 100))
      throw UsageError(fmt::format("--levels: {} is no percentage", level));
  if (on_gpu)
    return bench_on_gpu(options);
  if (options.tiles.size() > 1 || !options.candidates.empty() || !options.plot.empty() ||
      options.regimes || options.libraries || !options.resume.empty())
    throw UsageError("several --tile, --candidates, --plot, --regimes, --libraries and --resume "
                     "are for --device=gpu");
  if (options.total_seconds > 0 || !options.trials.empty())
    throw UsageError("--total and --trials are for --device=gpu", "leave them out");
  if (options.cold || options.type != "f32" || options.precision != "full" ||
      options.nonfinite != "exact")
    throw UsageError(
        "--cold, --precision, --nonfinite and other types than f32 are for --device=gpu");
  const std::vector<BenchCase> cases = cases_of(options);

  TaskPool pool(options.jobs.jobs);
  Progress progress;
  std::vector<Row> rows;
  if (!json)
    fmt::print("f32, {} threads, medians of {} rounds (half the range in percent); OpenBLAS: the "
               "dense matrix{}\n{}",
               pool.threads(), rounds_of(options),
               is_convolution(options) ? " times the unfolded images, Eigen: the sparse one"
                                       : ", sgemv where N is 1",
               table_head());
  for (const BenchCase& one : cases) {
    progress.show(
        fmt::format("sparsertc: {} of {}: {} ...", rows.size() + 1, cases.size(), one.name));
    rows.push_back(measure(one, options, pool));
    progress.clear();
    if (!json) {
      fmt::print("{}", table_line(rows.back()));
      std::fflush(stdout);
    }
  }
  if (json)
    fmt::print("{}\n", to_json(rows, options, pool.threads()).dump(2));
  if (!options.csv.empty())
    write_text(options.csv, to_csv(rows, pool.threads()));
  return 0;
}

} // namespace

Command add_bench_command(CLI::App& application) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* parser = application.add_subcommand(
      "bench", "Times against OpenBLAS and Eigen on the CPU, cuBLAS and cuSPARSE on the GPU");
  parser->add_option("IN", options->inputs,
                     "Matrices, as for compile; none: random ones of built-in shapes");
  parser->add_option("--set", options->set,
                     "Instead of IN: a CSV file with the columns path and n (conv2d: conv, as for "
                     "--conv), perhaps nominal_sparsity; paths are relative to SPARSERTC_DATA");
  parser->add_option("--device", options->device, "cpu or gpu")->capture_default_str();
  parser->add_option("--dtype", options->type, "GPU: f32, f16, bf16 or f64")->capture_default_str();
  parser->add_option("--precision", options->precision, "GPU: full or tf32, as for compile")
      ->capture_default_str();
  parser->add_option("--nonfinite", options->nonfinite, "GPU: exact or dense, as for compile")
      ->capture_default_str();
  parser
      ->add_option("--shapes", options->shapes,
                   "Without IN: shapes of the random matrices, MxKxN of A (M x K) and B (K x N), "
                   "instead of the built-in ones, or after those of --set")
      ->delimiter(',');
  parser->add_flag("--cold", options->cold,
                   "GPU: before each launch read more than the second-level cache holds");
  parser
      ->add_option("--op", options->op,
                   "spmm or conv2d: on the CPU beside the libraries' products with unfolded "
                   "images, on the GPU without a library")
      ->capture_default_str();
  parser->add_option("--conv", options->conv,
                     "conv2d: the geometry of the files, as for compile, with N");
  parser->add_option(
      "-n,--columns", options->columns,
      fmt::format("Columns of B, for files; else {}; conv2d: images", kDefaultColumns));
  parser->add_option("--values", options->values, "For files that have none")
      ->capture_default_str();
  parser->add_option("--levels", options->levels, "Percentages of zeros of the built-in matrices")
      ->delimiter(',')
      ->capture_default_str();
  parser->add_option("--seed", options->seed, "Of the built-in matrices and of B")
      ->capture_default_str();
  parser->add_option("--rounds", options->rounds,
                     fmt::format("Times that each contender takes its turn; else {}, on the GPU {}",
                                 kCpuRounds, kGpuRounds));
  parser
      ->add_option("--tile", options->tiles,
                   "Tile words as for compile; GPU: may be repeated, and registers= caps the "
                   "registers of a thread; the fastest is reported")
      ->expected(1)
      ->take_all();
  parser->add_option(
      "--candidates", options->candidates,
      "GPU: auto searches the tuner's space, default does not; without it auto where "
      "no --tile is given");
  parser->add_option("--budget", options->budget_seconds, "GPU: seconds of searching a matrix")
      ->capture_default_str();
  parser
      ->add_option("--total", options->total_seconds,
                   "GPU: seconds that the whole run may take: budgets become shorter where they "
                   "would take longer, --regimes leaves cases for --resume; 0: no limit")
      ->capture_default_str();
  parser->add_option("--csv", options->csv, "Write the table as CSV, too");
  parser->add_option("--trials", options->trials,
                     "GPU: write every candidate that was tried as CSV, with predicted and "
                     "measured time");
  parser->add_option("--plot", options->plot,
                     "GPU: write the speed-ups over sparsity as SVG, too; --regimes: the fastest "
                     "strategy over zeros and columns");
  parser->add_flag("--regimes", options->regimes,
                   "GPU: each strategy with the compiler's own tile, beside its predicted time; "
                   "with --cold warm as well as cold");
  parser->add_flag("--libraries", options->libraries,
                   "--regimes: beside cuBLAS and cuSPARSE, with geometric means for each level");
  parser->add_option("--resume", options->resume,
                     "--regimes: a file of --csv whose cases are not measured again, if it exists; "
                     "where it has all, no GPU is needed");
  declare(*parser, options->report);
  declare(*parser, options->jobs);
  parser->footer("Examples:\n"
                 "  sparsertc bench --csv=cpu.csv\n"
                 "  sparsertc bench --levels=90,95 --jobs=1\n"
                 "  sparsertc bench layer1.smtx layer2.smtx -n 1024 --report=json\n"
                 "  sparsertc bench --device=gpu --set=gpu_set.csv --budget=4 --csv=gpu.csv "
                 "--plot=gpu.svg\n"
                 "  sparsertc bench --device=gpu --op=conv2d filters.npy "
                 "--conv=N=8,H=28,W=28,pad=1\n"
                 "  sparsertc bench --device=gpu --regimes --nonfinite=dense --levels=50,80,90,98 "
                 "--shapes=1024x1024x8,1024x1024x1024 --plot=regimes.svg\n"
                 "  sparsertc bench --device=gpu layer.smtx -n 2048 "
                 "--tile=rows=32,warps=8,registers=128");
  return {parser, [options] { return bench(*options); }};
}

} // namespace sparsertc
