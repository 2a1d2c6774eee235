#include "tools/run_network.h"

#include "compiler/lower/spmm_tile.h"
#include "ir/error.h"
#include "runtime/plan/network.h"
#include "runtime/tune/graph_replay.h"
#include "tools/bundle_weights.h"
#include "tools/gpu_device.h"
#include "tools/network.h"
#include "tools/run_bundle.h"
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

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// What is run, of one layer.
struct Layer {
  std::string name;
  int32_t input = NetworkLayer::kNetworkInput, residual = NetworkLayer::kNothing;
  SpmmProblem problem;
  Matrix matrix; ///< of a bundle that is not checked the shape alone
  std::vector<double> bias;
  SpmmTile tile; ///< of which the bound needs the number of parts alone
  RunReport report;
  // Of the run:
  SpmmOperands operands;
  SpmmBuffers buffers;
  std::vector<double> result;
  std::optional<CheckResult> check;
};

struct Report {
  std::string name, device;
  unsigned threads = 0; ///< 0 on a GPU
  uint64_t n = 0;
  uint64_t workspace_bytes = 0; ///< on a GPU
  bool loaded = false;          ///< a bundle, not compiled here
  double prepare_us = 0;
  tune::Timing timing;
};

/// The operands of the next layer, from what is there.
void feed(std::vector<Layer>& layers, size_t number, const std::vector<double>& input, uint32_t n) {
  Layer& layer = layers[number];
  const SpmmProblem& problem = layer.problem;
  SpmmOperands& operands = layer.operands;
  const auto values_of = [&](int32_t tensor) {
    return tensor == NetworkLayer::kNetworkInput ? input
                                                 : layers[static_cast<size_t>(tensor)].result;
  };
  const auto& conv = problem.convolution;
  operands.rows = layer.matrix.pattern.rows;
  operands.inner = conv ? conv->channels : layer.matrix.pattern.columns;
  operands.n = problem.columns.value_or(n);
  operands.columns = static_cast<uint32_t>(operands.n * (conv ? conv->out_pixels() : 1));
  operands.b_columns = static_cast<uint32_t>(operands.n * (conv ? conv->in_pixels() : 1));
  operands.b = values_of(layer.input);
  operands.bias = layer.bias;
  if (problem.epilogue.bias && operands.bias.empty()) // a bundle's own, which nobody checks
    operands.bias.assign(operands.rows, 0);
  if (layer.residual != NetworkLayer::kNothing)
    operands.residual = values_of(layer.residual);
  layer.buffers = lay_out(operands, problem);
}

/// The network's input, and n.
SpmmOperands make_input(const Layer& first, const NetworkRun& run) {
  SpmmProblem problem = first.problem;
  problem.epilogue = {};
  OperandSources sources;
  sources.b = run.sources.b;
  sources.seed = run.sources.seed;
  if (run.columns != "dynamic") {
    const uint64_t n = parse_number("--columns", run.columns);
    if (n > kMaximumDimension)
      throw UsageError(fmt::format("--columns: {} is too large", n));
    if (problem.columns && *problem.columns != n)
      throw UsageError(fmt::format("--columns={}: the network has {}", n, *problem.columns));
    problem.columns = static_cast<uint32_t>(n);
  }
  return make_operands(first.matrix, problem, sources, kDefaultColumns);
}

void check(Layer& layer, TaskPool& pool) {
  stop_if_interrupted();
  layer.check =
      check_spmm(layer.matrix, layer.problem, layer.tile, layer.operands, layer.result, pool);
}

void describe(Layer& layer) {
  RunReport& report = layer.report;
  report.input = layer.name;
  report.m = layer.matrix.pattern.rows;
  report.k = layer.matrix.pattern.columns;
  report.n = layer.operands.n;
  report.dtype = name_of(layer.problem.type);
  report.layout = layout_word(layer.problem);
  if (layer.problem.convolution)
    report.convolution = to_string(*layer.problem.convolution);
  report.operations = 2 * report.nnz * layer.operands.columns;
}

// ---- on the CPU -------------------------------------------------------------------------------

Report run_on_cpu(std::vector<Layer>& layers, const std::vector<CompiledLayer>& compiled,
                  const std::vector<double>& input, uint32_t n, const NetworkRun& run,
                  TaskPool& pool) {
  Report report;
  report.device = "cpu";
  report.threads = pool.threads();
  std::vector<HostProgram> programs;
  const Clock::time_point start = Clock::now();
  for (const CompiledLayer& layer : compiled) {
    const StopAtOnce stop;
    programs.push_back(HostProgram::compile(layer.result.lowered.module));
  }
  report.prepare_us = microseconds_since(start);
  const auto execute = [&](size_t number) {
    run_on_host(programs[number], compiled[number].result.lowered.kernels, layers[number].buffers,
                layers[number].operands.n, pool);
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    feed(layers, i, input, n);
    execute(i);
    layers[i].result = read_back(layers[i].buffers, layers[i].operands, layers[i].problem);
    if (run.check)
      check(layers[i], pool);
  }
  std::vector<double> samples;
  for (unsigned i = 0; i < run.repeat; ++i) {
    stop_if_interrupted();
    const Clock::time_point begin = Clock::now();
    for (size_t layer = 0; layer < layers.size(); ++layer)
      execute(layer);
    samples.push_back(microseconds_since(begin));
  }
  report.timing = tune::summarise(std::move(samples));
  return report;
}

// ---- on the GPU -------------------------------------------------------------------------------

std::span<uint8_t> bytes_of(const AlignedBytes& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}

Report run_on_gpu(std::vector<Layer>& layers, const Network& network,
                  const std::vector<double>& input, uint32_t n, const NetworkRun& run,
                  TaskPool& pool) {
  const cuda::Context& gpu = network.context().require_gpu("running a network");
  Report report;
  report.device = gpu.properties().name;
  NetworkArguments arguments;
  arguments.n = network.manifest().dynamic ? n : 0;
  report.workspace_bytes = network.workspace_bytes(arguments.n);
  const uint64_t units = network.units(arguments.n);
  const cuda::Stream stream(gpu);
  const cuda::DeviceBuffer in(gpu, units * network.manifest().input_bytes),
      out(gpu, units * network.manifest().output_bytes), workspace(gpu, report.workspace_bytes);
  arguments.input = in.address();
  arguments.output = out.address();
  // NaN everywhere, so that what no layer writes does not pass a check.
  workspace.fill(0xff, stream);
  out.fill(0xff, stream);
  network.initialize_workspace(workspace.address(), stream.handle());

  // One by one first: a later layer may take the place of an earlier one's output.
  for (size_t i = 0; i < layers.size(); ++i) {
    stop_if_interrupted();
    Layer& layer = layers[i];
    feed(layers, i, input, n);
    if (i == 0)
      in.upload(bytes_of(layer.buffers.b), stream);
    network.execute_layer(i, arguments, workspace.address(), stream.handle());
    network.status(workspace.address(), stream.handle()); // waits, and tells of faults
    const std::span<uint8_t> bytes = bytes_of(layer.buffers.c);
    if (!bytes.empty())
      cuda::check(gpu.api().cuMemcpyDtoHAsync(bytes.data(),
                                              network.output_of(i, arguments, workspace.address()),
                                              bytes.size(), stream.handle()),
                  "cuMemcpyDtoHAsync", "reading a layer's output");
    stream.synchronize("reading a layer's output");
    layer.result = read_back(layer.buffers, layer.operands, layer.problem);
    if (run.check)
      check(layer, pool);
  }
  const auto enqueue = [&] { network.execute(arguments, workspace.address(), stream.handle()); };
  if (layers.back().result.empty())
    return report; // nothing is enqueued
  report.timing = tune::GraphReplay(gpu, stream, enqueue).time(run.repeat);
  // All at once computes the same.
  const AlignedBytes again(layers.back().buffers.c.size());
  out.download(bytes_of(again), stream);
  if (!std::ranges::equal(bytes_of(again), bytes_of(layers.back().buffers.c)))
    throw InternalError(
        "the network as a graph computes something else than its layers one by one");
  return report;
}

// ---- what is run ------------------------------------------------------------------------------

std::vector<Layer> layers_of(const SourceNetwork& source) {
  std::vector<Layer> layers;
  for (size_t i = 0; i < source.layers.size(); ++i) {
    Layer& layer = layers.emplace_back();
    layer.name = source.manifest.layers[i].name;
    layer.input = source.manifest.layers[i].input;
    layer.residual = source.manifest.layers[i].residual;
    layer.problem = source.layers[i].problem;
    layer.matrix = source.layers[i].matrix;
    layer.bias = source.layers[i].bias;
    layer.report.nnz = layer.matrix.pattern.nnz();
  }
  return layers;
}

std::vector<Layer> layers_of(const Network& network) {
  std::vector<Layer> layers;
  for (size_t i = 0; i < network.layers(); ++i) {
    const PlanManifest& plan = network.plan(i)->manifest();
    Layer& layer = layers.emplace_back();
    layer.name = network.manifest().layers[i].name;
    layer.input = network.manifest().layers[i].input;
    layer.residual = network.manifest().layers[i].residual;
    layer.problem = problem_of(plan);
    layer.matrix.pattern.rows = static_cast<uint32_t>(plan.m);
    layer.matrix.pattern.columns = static_cast<uint32_t>(plan.k);
    layer.report.nnz = plan.nnz;
  }
  return layers;
}

/// The file must be what the bundle was compiled from.
void compare(const std::vector<Layer>& layers, const Network& network, const NetworkRun& run) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(
        fmt::format("{} is not what {} was compiled from: {}", run.file, run.bundle, why));
  };
  if (layers.size() != network.layers())
    refuse(fmt::format("{} layers instead of {}", layers.size(), network.layers()));
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].name != network.manifest().layers[i].name)
      refuse(fmt::format("layer {} is {} instead of {}", i, layers[i].name,
                         network.manifest().layers[i].name));
    check_bundle_weights(layers[i].matrix, layers[i].name, network.plan(i)->manifest(), run.bundle);
  }
}

void describe_plans(std::vector<Layer>& layers, const Network& network) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const PlanManifest& plan = network.plan(i)->manifest();
    RunReport& report = layers[i].report;
    const SpmmTileChoice words = parse_tile_choice(plan.tile);
    layers[i].tile.splitk = words.splitk.value_or(1);
    layers[i].tile.cluster = words.cluster.value_or(1);
    report.target = plan.target;
    report.strategy = plan.strategy;
    report.tile = plan.tile;
    report.code = network.plan(i)->code() == Plan::Code::cubin ? "cubin"
                  : network.plan(i)->code() == Plan::Code::ptx ? "ptx"
                                                               : "none";
  }
}

// ---- the report -------------------------------------------------------------------------------

uint64_t operations_of(const std::vector<Layer>& layers) {
  uint64_t operations = 0;
  for (const Layer& layer : layers)
    operations += layer.report.operations;
  return operations;
}

double gflops_of(const std::vector<Layer>& layers, const Report& report) {
  const double us = report.timing.median_us;
  return us > 0 ? static_cast<double>(operations_of(layers)) / us * 1e-3 : 0.0;
}

/// Of all layers: those that were checked.
bool all_passed(const std::vector<Layer>& layers) {
  return std::all_of(layers.begin(), layers.end(),
                     [](const Layer& layer) { return !layer.check || layer.check->passed; });
}

nlohmann::ordered_json to_json(const std::vector<Layer>& layers, const Report& report,
                               const NetworkRun& run) {
  nlohmann::ordered_json json;
  json["network"] = report.name;
  json["n"] = report.n;
  json["device"] = report.device;
  if (report.threads != 0)
    json["threads"] = report.threads;
  else
    json["bytes_workspace"] = report.workspace_bytes;
  json[report.loaded ? "load_us" : "compile_us"] = report.prepare_us;
  json["repeat"] = run.repeat;
  json["time_us"] = report.timing.median_us;
  json["time_min_us"] = report.timing.minimum_us;
  json["time_max_us"] = report.timing.maximum_us;
  json["gflops"] = gflops_of(layers, report);
  json["check"] = !run.check ? "skipped" : all_passed(layers) ? "passed" : "failed";
  json["layers"] = nlohmann::ordered_json::array();
  for (const Layer& layer : layers) {
    nlohmann::ordered_json one = to_json(layer.report, layer.check ? &*layer.check : nullptr);
    // Of the whole alone.
    for (const char* key : {"device", "compile_us", "load_us", "repeat", "time_us", "time_min_us",
                            "time_max_us", "gflops"})
      one.erase(key);
    json["layers"].push_back(std::move(one));
  }
  return json;
}

std::string to_text(const std::vector<Layer>& layers, const Report& report, const NetworkRun& run) {
  size_t width = 5;
  uint64_t nnz = 0;
  for (const Layer& layer : layers) {
    width = std::max(width, layer.name.size());
    nnz += layer.report.nnz;
  }
  std::string text = fmt::format("network {}: {} {}, {} non-zeros\n", report.name, layers.size(),
                                 layers.size() == 1 ? "layer" : "layers", nnz);
  for (const Layer& layer : layers) {
    const RunReport& one = layer.report;
    text += fmt::format(
        "  {:<{}}  {} x {}, {} non-zeros, {}, {}, {}\n", layer.name, width, one.m, one.k, one.nnz,
        one.convolution.empty() ? fmt::format("times {} x {}", one.k, one.n)
                                : fmt::format("over {} images of {}", one.n, one.convolution),
        one.dtype, one.tile);
    if (layer.check)
      text += fmt::format("  {:<{}}  {}", "", width, describe(*layer.check));
  }
  text += fmt::format(
      "on {}{}: {} in {:.1f} ms, runs in {:.1f} us (median of {}, {:.1f} to {:.1f}), "
      "{:.2f} GFLOP/s\n",
      report.device,
      report.threads != 0 ? fmt::format(" ({} threads)", report.threads)
                          : fmt::format(" ({} bytes of workspace)", report.workspace_bytes),
      report.loaded ? "loaded" : "compiled", report.prepare_us * 1e-3, report.timing.median_us,
      run.repeat, report.timing.minimum_us, report.timing.maximum_us, gflops_of(layers, report));
  if (run.check)
    text += all_passed(layers) ? "check passed: every layer\n" : "check FAILED\n";
  return text;
}

int print(std::vector<Layer>& layers, const Report& report, const NetworkRun& run) {
  for (Layer& layer : layers)
    describe(layer);
  std::FILE* out = run.output == "-" ? stderr : stdout;
  if (run.json)
    fmt::print(out, "{}\n", to_json(layers, report, run).dump(2));
  else
    fmt::print(out, "{}", to_text(layers, report, run));
  return all_passed(layers) ? 0 : 1;
}

std::shared_ptr<const ExecutionContext> open_gpu(const NetworkRun& run, size_t device) {
  if (run.bundle.empty() && device == 1)
    return nullptr;
  try {
    return std::make_shared<ExecutionContext>(0);
  } catch (const NoGpuError&) {
    if (run.bundle.empty() && device == 0)
      return nullptr;
    throw;
  }
}

} // namespace

int run_network(const NetworkRun& run) {
  const size_t device = choose_word("--device", run.device, {"auto", "cpu", "gpu"});
  if (!run.bundle.empty() && device == 1)
    throw UsageError("--device=cpu: " + run.bundle + " holds code for GPUs",
                     "give the file that it was compiled from: --network FILE.json");
  if (!run.bundle.empty() && run.check && run.file.empty())
    throw UsageError("--check: a bundle does not hold the weights that it was compiled from",
                     "--weights=FILE.json names the network's file");
  Progress progress;
  std::optional<SourceNetwork> source;
  if (!run.file.empty())
    source = open_network(read_network_file(run.file), run.jobs.jobs);
  const std::shared_ptr<const ExecutionContext> context = open_gpu(run, device);

  NetworkCompilation compilation;
  compilation.jobs = run.jobs.jobs;
  compilation.verify_each = run.watch.verify_each;
  std::vector<CompiledLayer> compiled;
  std::unique_ptr<Assembler> assembler;
  std::unique_ptr<Network> network;
  const Clock::time_point start = Clock::now();
  if (context == nullptr) {
    compilation.artefact = Artefact::none;
    compilation.target = "host";
    compiled = compile_network(*source, compilation);
  } else {
    Bundle bundle;
    if (run.bundle.empty()) {
      const cuda::Context& gpu = *context->gpu();
      compilation.default_target = target_of(gpu);
      std::vector<std::string> refused;
      assembler = find_cached_assembler(run.assembler, run.cache, run.watch.verbose, refused);
      if (assembler &&
          takes_cubins(gpu, find_target(compilation.default_target), assembler->identity()))
        compilation.assembler = assembler.get();
      compiled = compile_network(*source, compilation);
      bundle = make_network_bundle(*source, compiled);
    } else {
      bundle = read_bundle(run.bundle);
    }
    network = std::make_unique<Network>(context, std::move(bundle),
                                        run.bundle.empty() ? run.file : run.bundle);
  }
  const double prepare_us = microseconds_since(start);

  std::vector<Layer> layers = source ? layers_of(*source) : layers_of(*network);
  if (!run.bundle.empty() && source)
    compare(layers, *network, run);
  if (network)
    describe_plans(layers, *network);
  else
    for (size_t i = 0; i < layers.size(); ++i) {
      const SpmmSchedule& schedule = compiled[i].result.schedule;
      layers[i].tile = schedule.tile;
      layers[i].report.target = schedule.target.name;
      layers[i].report.strategy = name_of(schedule.tile.strategy);
      layers[i].report.tile = to_string(schedule.tile);
    }
  const SpmmOperands input = make_input(layers.front(), run);
  TaskPool pool(run.jobs.jobs);
  progress.show("sparsertc: running ...");
  Report report = network ? run_on_gpu(layers, *network, input.b, input.n, run, pool)
                          : run_on_cpu(layers, compiled, input.b, input.n, run, pool);
  progress.clear();
  report.name = network ? network->manifest().name : source->manifest.name;
  report.n = input.n;
  report.loaded = !run.bundle.empty();
  report.prepare_us += prepare_us;
  const Layer& last = layers.back();
  if (!run.output.empty())
    write_npy(run.output, result_shape(last.operands, last.problem), stored_type(last.problem.type),
              in_file_order(last.operands, last.problem, last.result));
  return print(layers, report, run);
}

} // namespace sparsertc
