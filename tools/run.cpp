// sparsertc run: compiles a matrix for this machine, multiplies, and checks the result on request.
#include "compiler/emit/llvm.h"
#include "compiler/input/read.h"
#include "compiler/pipeline.h"
#include "ir/error.h"
#include "runtime/plan/network_manifest.h"
#include "tools/assemblers.h"
#include "tools/command.h"
#include "tools/gpu.h"
#include "tools/network_options.h"
#include "tools/options.h"
#include "tools/run_bundle.h"
#include "tools/run_network.h"
#include "tools/run_report.h"
#include "tools/session.h"
#include "tools/spmm_check.h"
#include "tools/spmm_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace sparsertc {
namespace {

constexpr uint32_t kDefaultColumns = 256;

struct RunOptions {
  InputOptions input;
  std::string network;
  ProblemOptions problem;
  ScheduleOptions schedule;
  WatchOptions watch;
  JobOptions jobs;
  CacheOptions cache;
  AssemblerOptions assembler;
  ReportOptions report;
  OperandSources sources;
  std::string weights;
  std::string output;
  std::string device = "auto";
  std::string road = "direct";
  bool check = false;
  unsigned repeat = 10;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double total_us(const std::vector<StageTime>& times) {
  double total = 0;
  for (const StageTime& time : times)
    total += time.wall_us;
  return total;
}

void execute_on_host(PipelineResult& compiled, const SpmmBuffers& buffers, uint32_t columns,
                     unsigned repeat, TaskPool& pool, RunReport& report) {
  const auto start = std::chrono::steady_clock::now();
  const HostProgram program = [&] {
    const StopAtOnce stop;
    return HostProgram::compile(compiled.lowered.module);
  }();
  compiled.times.push_back({"host code", seconds_since(start) * 1e6});
  run_on_host(program, compiled.lowered.kernels, buffers, columns, pool);
  std::vector<double> samples;
  for (unsigned i = 0; i < repeat; ++i) {
    stop_if_interrupted();
    const auto begin = std::chrono::steady_clock::now();
    run_on_host(program, compiled.lowered.kernels, buffers, columns, pool);
    samples.push_back(seconds_since(begin) * 1e6);
  }
  std::sort(samples.begin(), samples.end());
  report.time_us = samples[samples.size() / 2];
  report.time_min_us = samples.front();
  report.time_max_us = samples.back();
  report.repeat = repeat;
}

/// What was compiled, for the report.
void describe(const PipelineResult& compiled, const SpmmOperands& operands, RunReport& report) {
  const Pattern& pattern = compiled.weights.pattern;
  const SpmmSchedule& schedule = compiled.schedule;
  report.input = compiled.weights.name;
  report.m = pattern.rows;
  report.k = pattern.columns;
  report.n = operands.n;
  report.nnz = pattern.nnz();
  report.dtype = name_of(schedule.problem.type);
  report.layout = layout_word(schedule.request);
  if (schedule.request.convolution)
    report.convolution = to_string(*schedule.request.convolution);
  report.operations = 2 * pattern.nnz() * operands.columns;
  report.target = schedule.target.name;
  report.strategy = name_of(schedule.tile.strategy);
  report.tile = to_string(schedule.tile);
  report.prepare_us = total_us(compiled.times);
}

void write_result(const std::string& path, const SpmmOperands& operands, const SpmmProblem& problem,
                  const std::vector<double>& values) {
  write_npy(path, result_shape(operands, problem), stored_type(problem.type),
            in_file_order(operands, problem, values));
}

/// `file`: the network's; `bundle`: what it was compiled to, or "".
int run_layers(const RunOptions& options, const std::string& file, const std::string& bundle) {
  for (const std::string& path : {options.sources.bias, options.sources.residual})
    if (!path.empty())
      throw UsageError("--bias-file and --residual-file are for one layer",
                       "the network's file names them");
  NetworkRun run;
  run.file = file;
  run.bundle = bundle;
  run.device = options.device;
  run.sources = options.sources;
  run.columns = options.problem.columns;
  run.output = options.output;
  run.check = options.check;
  run.repeat = options.repeat;
  run.json = wants_json(options.report);
  run.jobs = options.jobs;
  run.cache = options.cache;
  run.assembler = options.assembler;
  run.watch = options.watch;
  return run_network(run);
}

/// Code that has been compiled before.
int run_compiled(const RunOptions& options) {
  if (options.device == "cpu")
    throw UsageError("--device=cpu: " + options.input.path + " holds code for GPUs",
                     "give the weights that it was compiled from");
  if (!options.schedule.tile.empty() || options.schedule.budget != 0)
    throw UsageError("--tile and --budget: " + options.input.path + " is compiled already");
  if (options.input.path.ends_with(".srtc") && is_network(read_bundle(options.input.path))) {
    if (!options.check && !options.weights.empty())
      throw UsageError("--weights is for --check, which was not asked for");
    refuse_problem(options.problem, options.input.path);
    if (options.problem.ldb != 0 || options.problem.ldc != 0)
      throw UsageError("--ldb and --ldc: the operands of a network have no gaps");
    return run_layers(options, options.weights, options.input.path);
  }
  BundleRun bundle;
  bundle.path = options.input.path;
  bundle.weights = options.weights;
  bundle.tensor = options.input.tensor;
  bundle.sources = options.sources;
  bundle.problem = options.problem;
  bundle.output = options.output;
  bundle.check = options.check;
  bundle.repeat = options.repeat;
  bundle.jobs = options.jobs.jobs;
  bundle.json = wants_json(options.report);
  return run_bundle(bundle);
}

int run(const RunOptions& options) {
  if (options.input.list_tensors) {
    print_tensors(options.input);
    return 0;
  }
  if (options.repeat == 0)
    throw UsageError("--repeat: expected at least 1");
  refuse_overwriting(options.output,
                     {options.input.path, options.network, options.weights, options.sources.b,
                      options.sources.bias, options.sources.residual});
  if (!options.network.empty()) {
    if (!options.weights.empty())
      throw UsageError("--weights is for bundles; " + options.network + " names the weights");
    return run_layers(options, options.network, "");
  }
  const bool json_report = wants_json(options.report);
  const size_t device = choose_word("--device", options.device, {"auto", "cpu", "gpu"});
  if (is_compiled_code(options.input.path))
    return run_compiled(options);
  if (!options.weights.empty())
    throw UsageError("--weights is for bundles; " + options.input.path + " holds the weights");
  std::unique_ptr<cuda::Context> gpu;
  if (device == 0)
    gpu = find_gpu();
  else if (device == 2)
    gpu = require_gpu();

  PipelineOptions pipeline;
  pipeline.problem = to_problem(options.problem);
  pipeline.problem.epilogue.bias |= !options.sources.bias.empty();
  pipeline.problem.epilogue.residual |= !options.sources.residual.empty();
  pipeline.tile = to_tile_choice(options.schedule);
  pipeline.budget = options.schedule.budget;
  pipeline.road =
      choose_word("--road", options.road, {"direct", "llvm"}) == 0 ? Road::direct : Road::llvm;
  pipeline.llvm = &llvm_road();
  pipeline.target = find_target(gpu ? target_of(*gpu) : "host");
  pipeline.artefact = gpu ? Artefact::ptx : Artefact::none;
  pipeline.jobs = options.jobs.jobs;
  pipeline.stop = &interrupt_flag();
  // Machine code where this machine can make it: in parallel, and only once. Else the driver
  // assembles the PTX.
  std::vector<std::string> refused;
  std::unique_ptr<Assembler> assembler;
  if (gpu)
    assembler =
        find_cached_assembler(options.assembler, options.cache, options.watch.verbose, refused);
  if (assembler && takes_cubins(*gpu, pipeline.target, assembler->identity())) {
    pipeline.artefact = Artefact::cubin;
    pipeline.assembler = assembler.get();
  }

  Progress progress;
  watch_pipeline(pipeline, options.watch, progress);
  ReadOptions read = to_read_options(options.input);
  read.require_values = true;
  PipelineResult compiled =
      compile_spmm([&] { return read_matrix(options.input.path, read); }, pipeline);

  const SpmmProblem& problem = compiled.schedule.request;
  const SpmmOperands operands =
      make_operands(compiled.weights, problem, options.sources, kDefaultColumns);
  const SpmmBuffers buffers = lay_out(operands, problem);
  TaskPool pool(options.jobs.jobs);
  RunReport report;
  progress.show("sparsertc: running ...");
  if (gpu) {
    const GpuRun gpu_run =
        run_on_gpu(*gpu, compiled.artefact, compiled.schedule, compiled.lowered.kernels, buffers,
                   operands.n, options.repeat);
    if (!gpu_run.library_refusal.empty())
      fmt::print(stderr, "sparsertc: our own dense kernel runs: {}\n", gpu_run.library_refusal);
    const cuda::LaunchTiming& timing = gpu_run.timing;
    compiled.times.push_back({"load", gpu_run.load_us});
    report.device = gpu->properties().name;
    report.time_us = timing.median_us;
    report.time_min_us = timing.minimum_us;
    report.time_max_us = timing.maximum_us;
    report.repeat = timing.samples;
  } else {
    report.device = "cpu";
    report.threads = pool.threads();
    execute_on_host(compiled, buffers, operands.n, options.repeat, pool, report);
  }
  describe(compiled, operands, report);
  const std::vector<double> result = read_back(buffers, operands, problem);

  CheckResult check;
  if (options.check) {
    stop_if_interrupted();
    progress.show("sparsertc: checking ...");
    const auto start = std::chrono::steady_clock::now();
    check = check_spmm(compiled.weights, problem, compiled.schedule.tile, operands, result, pool);
    compiled.times.push_back({"check", seconds_since(start) * 1e6});
  }
  progress.clear();
  print_watched(compiled, options.watch);
  if (!options.output.empty())
    write_result(options.output, operands, problem, result);

  return print_report(report, options.check ? &check : nullptr, json_report, options.output == "-");
}

} // namespace

Command add_run_command(CLI::App& application) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* parser = application.add_subcommand(
      "run", "Multiplies, on the GPU or the CPU of this machine; IN may also be a bundle, or a "
             ".cubin or .ptx with its manifest beside it");
  declare(*parser, options->input);
  declare_network(*parser, options->network);
  parser->add_option(
      "--b", options->sources.b,
      "B from a dense .npy, .npz, .safetensors or .mtx file; else drawn from the seed");
  parser->add_option("--bias-file", options->sources.bias, "The bias; implies --bias");
  parser->add_option("--residual-file", options->sources.residual,
                     "The residual; implies --residual");
  parser
      ->add_option("--seed", options->sources.seed,
                   "Of the operands that no file gives, in [-1, 1)")
      ->capture_default_str();
  parser->add_option("--weights", options->weights,
                     "For --check of a bundle: the file that it was compiled from, of a network "
                     "the JSON file");
  parser->add_option("--output", options->output, "Write C as .npy (bf16 as f32)");
  parser->add_flag("--check", options->check,
                   "Recompute in float64; exit code 1 where an element misses its bound");
  parser->add_option("--device", options->device, "cpu, gpu, or auto: the GPU if there is one")
      ->capture_default_str();
  parser->add_option("--road", options->road, "GPU: how IR becomes PTX, direct or llvm")
      ->capture_default_str();
  parser->add_option("--repeat", options->repeat, "Timed runs, after one that is not counted")
      ->capture_default_str();
  declare(*parser, options->report);
  declare(*parser, options->jobs);
  declare(*parser, options->assembler);
  declare(*parser, options->cache);
  declare(*parser, options->problem);
  declare(*parser, options->schedule);
  declare(*parser, options->watch);
  parser->footer(fmt::format(
      "With dynamic columns and no --b, B has {} columns.\n"
      "Examples:\n"
      "  sparsertc run layer.npy -n 256 --check\n"
      "  sparsertc run layer.npy --b activations.npy --bias-file bias.npy --activation=relu "
      "--output out.npy\n"
      "  sparsertc run layer.srtc --check --weights layer.npy\n"
      "  sparsertc run --network net.json --check\n"
      "  sparsertc run pattern.smtx --values=random:1 --dtype=f16 --device=cpu --report=json",
      kDefaultColumns));
  return {parser, [parser, options] {
            check_network_options(*parser, options->network, options_of_a_layer());
            return run(*options);
          }};
}

} // namespace sparsertc
