// sparsertc run: compiles a matrix for this machine, multiplies, and checks the result on request.
#include "compiler/emit/llvm.h"
#include "compiler/input/read.h"
#include "compiler/pipeline.h"
#include "ir/error.h"
#include "tools/assemblers.h"
#include "tools/command.h"
#include "tools/gpu.h"
#include "tools/options.h"
#include "tools/session.h"
#include "tools/spmm_check.h"
#include "tools/spmm_operands.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

namespace sparsertc {
namespace {

constexpr uint32_t kDefaultColumns = 256;

struct RunOptions {
  InputOptions input;
  ProblemOptions problem;
  ScheduleOptions schedule;
  WatchOptions watch;
  JobOptions jobs;
  CacheOptions cache;
  AssemblerOptions assembler;
  ReportOptions report;
  OperandSources sources;
  std::string output;
  std::string device = "auto";
  std::string road = "direct";
  bool check = false;
  unsigned repeat = 10;
};

/// What a run tells, whatever the device.
struct RunReport {
  std::string device;
  unsigned threads = 0; ///< 0 on a GPU
  double compile_us = 0;
  double time_us = 0; ///< median
  double time_min_us = 0;
  double time_max_us = 0;
  unsigned repeat = 0;
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

nlohmann::ordered_json to_json(const PipelineResult& compiled, const SpmmOperands& operands,
                               const RunReport& report, const CheckResult* check) {
  const Pattern& pattern = compiled.weights.pattern;
  const SpmmSchedule& schedule = compiled.schedule;
  nlohmann::ordered_json json;
  json["input"] = compiled.weights.name;
  json["m"] = pattern.rows;
  json["k"] = pattern.columns;
  json["n"] = operands.n;
  json["nnz"] = pattern.nnz();
  json["sparsity"] = statistics_of(pattern).sparsity;
  json["dtype"] = name_of(schedule.problem.type);
  json["layout"] = layout_word(schedule.request);
  json["device"] = report.device;
  json["target"] = schedule.target.name;
  if (report.threads != 0)
    json["threads"] = report.threads;
  json["strategy"] = name_of(schedule.tile.strategy);
  json["tile"] = to_string(schedule.tile);
  json["compile_us"] = report.compile_us;
  json["repeat"] = report.repeat;
  json["time_us"] = report.time_us;
  json["time_min_us"] = report.time_min_us;
  json["time_max_us"] = report.time_max_us;
  const double operations = 2.0 * static_cast<double>(pattern.nnz()) * operands.columns;
  json["gflops"] = report.time_us > 0 ? operations / report.time_us * 1e-3 : 0.0;
  json["check"] = check == nullptr ? "skipped" : check->passed ? "passed" : "failed";
  if (check != nullptr) {
    json["max_error"] = check->max_error;
    json["max_error_over_bound"] = check->max_error_over_bound;
    json["worst"] = {{"row", check->row},
                     {"column", check->column},
                     {"expected", check->expected},
                     {"found", check->found},
                     {"bound", check->bound}};
  }
  return json;
}

std::string to_text(const nlohmann::ordered_json& json) {
  std::string text = fmt::format(
      "{} x {}, {} non-zeros ({:.2f} % zeros), times {} x {}, {}\n", json["m"].get<uint64_t>(),
      json["k"].get<uint64_t>(), json["nnz"].get<uint64_t>(), 100 * json["sparsity"].get<double>(),
      json["k"].get<uint64_t>(), json["n"].get<uint64_t>(), json["dtype"].get<std::string>());
  text += fmt::format(
      "on {}{}: {}\n", json["device"].get<std::string>(),
      json.contains("threads") ? fmt::format(" ({} threads)", json["threads"].get<unsigned>()) : "",
      json["tile"].get<std::string>());
  text += fmt::format("compiled in {:.1f} ms, runs in {:.1f} us (median of {}, {:.1f} to {:.1f}), "
                      "{:.2f} GFLOP/s\n",
                      json["compile_us"].get<double>() * 1e-3, json["time_us"].get<double>(),
                      json["repeat"].get<unsigned>(), json["time_min_us"].get<double>(),
                      json["time_max_us"].get<double>(), json["gflops"].get<double>());
  return text;
}

std::string describe(const CheckResult& check) {
  if (check.max_error_over_bound == 0)
    return "check passed: every element is exact\n";
  return fmt::format(
      "check {}: worst element ({}, {}): expected {:.9g}, found {:.9g}, bound {:.3g}; "
      "largest error / bound {:.3f}, largest error {:.3g}\n",
      check.passed ? "passed" : "FAILED", check.row, check.column, check.expected, check.found,
      check.bound, check.max_error_over_bound, check.max_error);
}

void write_result(const std::string& path, const SpmmOperands& operands,
                  const SpmmProblem& problem, const std::vector<double>& values) {
  write_npy(path, result_shape(operands, problem), stored_type(problem.type),
            in_file_order(operands, problem, values));
}

int run(const RunOptions& options) {
  if (options.input.list_tensors) {
    print_tensors(options.input);
    return 0;
  }
  if (options.repeat == 0)
    throw UsageError("--repeat: expected at least 1");
  const bool json_report = wants_json(options.report);
  const size_t device = choose_word("--device", options.device, {"auto", "cpu", "gpu"});
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
    const GpuRun gpu_run = run_on_gpu(*gpu, compiled.artefact, compiled.lowered.kernels, buffers,
                                      operands.n, options.repeat);
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
  report.compile_us = total_us(compiled.times);
  const std::vector<double> result = read_back(buffers, operands, problem);

  CheckResult check;
  if (options.check) {
    stop_if_interrupted();
    progress.show("sparsertc: checking ...");
    const auto start = std::chrono::steady_clock::now();
    check = check_spmm(compiled.weights, problem, compiled.schedule.tile, operands, result,
                       pool);
    compiled.times.push_back({"check", seconds_since(start) * 1e6});
  }
  progress.clear();
  print_watched(compiled, options.watch);
  if (!options.output.empty())
    write_result(options.output, operands, problem, result);

  const nlohmann::ordered_json json =
      to_json(compiled, operands, report, options.check ? &check : nullptr);
  std::FILE* out = options.output == "-" ? stderr : stdout;
  if (json_report)
    fmt::print(out, "{}\n", json.dump(2));
  else
    fmt::print(out, "{}{}", to_text(json), options.check ? describe(check) : "");
  if (check.passed)
    return 0;
  if (json_report)
    fmt::print(stderr, "{}", describe(check));
  return 1;
}

} // namespace

Command add_run_command(CLI::App& application) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* parser =
      application.add_subcommand("run", "Multiplies, on the GPU or the CPU of this machine");
  declare(*parser, options->input);
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
      "  sparsertc run pattern.smtx --values=random:1 --dtype=f16 --device=cpu --report=json",
      kDefaultColumns));
  return {parser, [options] { return run(*options); }};
}

} // namespace sparsertc
