// sparsertc compile: a matrix becomes code, in a file with its manifest beside it.
#include "compiler/emit/llvm.h"
#include "compiler/input/bytes.h"
#include "compiler/manifest.h"
#include "compiler/pipeline.h"
#include "ir/error.h"
#include "ir/printer.h"
#include "tools/assemblers.h"
#include "tools/command.h"
#include "tools/compile_lu.h"
#include "tools/make_bundle.h"
#include "tools/network.h"
#include "tools/network_options.h"
#include "tools/options.h"
#include "tools/session.h"
#include "tools/tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

namespace sparsertc {
namespace {

struct CompileOptions {
  InputOptions input;
  std::string network;
  ProblemOptions problem;
  ScheduleOptions schedule;
  WatchOptions watch;
  JobOptions jobs;
  CacheOptions cache;
  AssemblerOptions assembler;
  std::string output = "-";
  std::string emit;
  std::string road = "direct";
  std::string target; ///< empty: the host for host code, else sm_90
  bool annotate = false;
  bool bindable = false;
  std::string tuning;
  std::string tuning_mismatch = "refuse";
  CompileLuOptions lu;
};

bool ends_with(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

/// `--emit`, or what the output's suffix says, or ptx.
Artefact artefact_of(const CompileOptions& options) {
  struct Kind {
    const char* word;
    const char* suffix;
    Artefact artefact;
  };
  static const Kind kinds[] = {
      {"ir", ".sir", Artefact::ir},          {"llvm", ".ll", Artefact::llvm},
      {"ptx", ".ptx", Artefact::ptx},        {"cubin", ".cubin", Artefact::cubin},
      {"bundle", ".srtc", Artefact::bundle}, {"host", ".o", Artefact::host_object}};
  if (!options.emit.empty()) {
    std::vector<std::string> words;
    for (const Kind& kind : kinds)
      words.push_back(kind.word);
    return kinds[choose_word("--emit", options.emit, words)].artefact;
  }
  for (const Kind& kind : kinds)
    if (ends_with(options.output, kind.suffix))
      return kind.artefact;
  return Artefact::ptx;
}

/// What a pipeline that was stopped early has made, as text.
std::string describe_stopped(const PipelineResult& result, const std::string& stage) {
  if (stage == "emit") // what the assembler would get, or what the driver would
    return result.units.empty() ? result.artefact
                                : fmt::format("{}", fmt::join(result.units, "\n"));
  if (stage_has_ir(stage))
    return ir::print(result.lowered.module);
  const Pattern& pattern = result.weights.pattern;
  std::string text =
      fmt::format("matrix {} x {}, {} entries\n", pattern.rows, pattern.columns, pattern.nnz());
  if (!result.pattern_digest.empty())
    text += fmt::format("pattern {}\n", result.pattern_digest);
  const SpmmSchedule& schedule = result.schedule;
  if (stage == "pattern" || stage == "input")
    return text;
  text += fmt::format("schedule {}\n", to_string(schedule.tile));
  for (uint32_t tile = 0; tile < schedule.tile_count(); ++tile) {
    text += fmt::format("tile {}: rows", tile);
    for (uint32_t i = schedule.tile_begin[tile]; i < schedule.tile_begin[tile + 1]; ++i)
      text += fmt::format(" {}", schedule.row_order[i]);
    text += "\n";
  }
  return text;
}

/// What a cubin needs and a bundle can do without, with a remark.
std::unique_ptr<Assembler> assembler_for(const CompileOptions& options, Artefact artefact) {
  if (artefact != Artefact::cubin && artefact != Artefact::bundle)
    return nullptr;
  std::vector<std::string> refused;
  std::unique_ptr<Assembler> found =
      find_cached_assembler(options.assembler, options.cache, options.watch.verbose, refused);
  if (found != nullptr)
    return found;
  const std::string reasons =
      fmt::format("{}{}", refused.empty() ? "" : ": ", fmt::join(refused, "; "));
  if (artefact == Artefact::cubin)
    throw UserError("no assembler for a cubin" + reasons,
                    "install a CUDA toolkit, or use --emit=ptx or bundle: the driver takes the "
                    "text as it is");
  fmt::print(
      stderr,
      "remark: no assembler{}; the bundle holds PTX only, which the driver assembles when it "
      "is loaded\n",
      reasons);
  return nullptr;
}

void tell_of_binding(const PipelineResult& result) {
  if (!result.not_bindable.empty())
    fmt::print(stderr, "remark: the bundle cannot be bound to other weights: {}\n",
               result.not_bindable);
}

int compile_bundle_of_network(const CompileOptions& options) {
  if (artefact_of(options) != Artefact::bundle)
    throw UsageError("--network: several layers are compiled into a bundle",
                     "write one: -o OUT.srtc, or --emit=bundle");
  Progress progress;
  progress.show("sparsertc: reading ...");
  NetworkFile file = read_network_file(options.network);
  refuse_overwriting(options.output, {options.network});
  for (const NetworkFileLayer& layer : file.layers)
    refuse_overwriting(options.output, {layer.weights.path, layer.bias});
  const SourceNetwork network = open_network(std::move(file), options.jobs.jobs);
  const std::unique_ptr<Assembler> assembler = assembler_for(options, Artefact::bundle);
  NetworkCompilation compilation;
  compilation.target = options.target;
  compilation.assembler = assembler.get();
  compilation.bindable = options.bindable;
  compilation.jobs = options.jobs.jobs;
  compilation.verify_each = options.watch.verify_each;
  compilation.progress = [&](size_t done) {
    progress.show(fmt::format("sparsertc: {} of {} layers ...", done, network.layers.size()));
  };
  const std::vector<CompiledLayer> layers = compile_network(network, compilation);
  stop_if_interrupted();
  progress.clear();
  for (size_t i = 0; i < layers.size(); ++i) {
    const PipelineResult& result = layers[i].result;
    const bool speaks = !result.weights.remarks.empty() || !result.schedule.remarks.empty() ||
                        !result.not_bindable.empty() || options.watch.verbose ||
                        options.watch.print_timing;
    if (speaks)
      fmt::print(stderr, "layer {}:\n", network.file.layers[i].name);
    print_watched(result, options.watch);
    tell_of_binding(result);
  }
  write_bytes(options.output, serialize(make_network_bundle(network, layers)));
  return 0;
}

int compile_bundle_of_lu(const CompileOptions& options) {
  if (artefact_of(options) != Artefact::bundle)
    throw UsageError("--op=lu: a matrix is compiled into a bundle",
                     "write one: -o OUT.srtc, or --emit=bundle");
  std::unique_ptr<Assembler> assembler;
  if (options.target != "host")
    assembler = assembler_for(options, Artefact::bundle);
  return compile_lu_file({options.input, options.lu, options.cache, options.jobs,
                          options.watch.verbose, options.target, options.output, assembler.get()});
}

int compile(const CompileOptions& options) {
  if (!options.network.empty())
    return compile_bundle_of_network(options);
  if (options.input.list_tensors) {
    print_tensors(options.input);
    return 0;
  }
  if (options.problem.op == "lu")
    return compile_bundle_of_lu(options);
  refuse_overwriting(options.output, {options.input.path, options.tuning});
  PipelineOptions pipeline;
  pipeline.problem = to_problem(options.problem);
  pipeline.artefact = artefact_of(options);
  pipeline.road =
      choose_word("--road", options.road, {"direct", "llvm"}) == 0 ? Road::direct : Road::llvm;
  const bool for_host = pipeline.artefact == Artefact::host_object;
  if (for_host && !options.target.empty() && options.target != "host")
    throw UsageError(
        fmt::format("--target={}: host code is made for this machine's CPU", options.target),
        "leave --target out, or choose --emit=ptx, cubin or bundle");
  const std::string default_target = for_host ? "host" : "sm_90";
  pipeline.target = resolve_target(options.target.empty() ? default_target : options.target);
  const bool for_bundle = pipeline.artefact == Artefact::bundle;
  const bool for_gpu =
      pipeline.artefact == Artefact::ptx || pipeline.artefact == Artefact::cubin || for_bundle;
  if (for_gpu && pipeline.target.is_host)
    throw UsageError("--target=host: there is no PTX for the CPU",
                     "use --emit=host for an object file, or --emit=ir or llvm");
  pipeline.tile = to_tile_choice(options.schedule);
  pipeline.budget = options.schedule.budget;
  if (options.bindable && !for_bundle)
    throw UsageError("--bindable: only bundles can be bound to other weights",
                     "write one: -o OUT.srtc, or --emit=bundle");
  pipeline.annotate = options.annotate;
  pipeline.bindable = options.bindable;
  pipeline.llvm = &llvm_road();
  pipeline.jobs = options.jobs.jobs;
  pipeline.stop = &interrupt_flag();
  const std::unique_ptr<Assembler> assembler = assembler_for(options, pipeline.artefact);
  pipeline.assembler = assembler.get();

  Progress progress;
  watch_pipeline(pipeline, options.watch, progress);
  ReadOptions read = to_read_options(options.input);
  read.require_values = true;
  std::function<Matrix()> read_weights = [&] { return read_matrix(options.input.path, read); };
  constexpr TuningMismatch kinds[] = {TuningMismatch::refuse, TuningMismatch::similar,
                                      TuningMismatch::accept};
  const TuningMismatch mismatch = kinds[choose_word("--tuning-mismatch", options.tuning_mismatch,
                                                    {"refuse", "similar", "accept"})];
  if (options.tuning.empty() && mismatch != TuningMismatch::refuse)
    throw UsageError("--tuning-mismatch is for --tuning=RECORD or FOLDER");
  if (!options.tuning.empty()) {
    if (!options.schedule.tile.empty())
      throw UsageError("--tuning and --tile exclude each other");
    Matrix weights = read_weights();
    apply_tuning(options.tuning, mismatch, weights, pipeline);
    read_weights = [weights = std::move(weights)] { return weights; };
  }
  const PipelineResult result = compile_spmm(read_weights, pipeline);
  stop_if_interrupted();
  progress.clear();
  print_watched(result, options.watch);

  if (!pipeline.stop_after.empty() && pipeline.stop_after != "assemble" &&
      !(pipeline.stop_after == "emit" && pipeline.assembler == nullptr && !for_bundle)) {
    write_text(options.output, describe_stopped(result, pipeline.stop_after));
    return 0;
  }
  tell_of_binding(result);
  if (for_bundle)
    write_bytes(options.output, serialize(make_bundle(result, pipeline)));
  else
    write_text(options.output, result.artefact);
  const bool has_manifest = (for_gpu && !for_bundle) || for_host; // a bundle has its own
  if (has_manifest && options.output != "-")
    write_text(options.output + ".json", manifest_json(result, pipeline));
  return 0;
}

} // namespace

Command add_compile_command(CLI::App& application) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* parser = application.add_subcommand("compile", "A matrix becomes code");
  declare(*parser, options->input);
  declare_network(*parser, options->network);
  parser
      ->add_option(
          "-o,--output", options->output,
          "Where the code goes; - is standard output. PTX, cubins and host code get their manifest "
          "beside them, OUT.json")
      ->capture_default_str();
  parser->add_option(
      "--emit", options->emit,
      "ir, llvm, ptx, cubin, bundle or host; else the output's suffix says: .sir .ll .ptx .cubin "
      ".srtc .o; else ptx");
  parser->add_option(
      "--target", options->target,
      "sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_120, host, or native: the GPU of "
      "this machine; else sm_90, and host for host code");
  parser
      ->add_option("--road", options->road,
                   "How IR becomes PTX: direct (printed) or llvm (through its optimiser)")
      ->capture_default_str();
  parser->add_flag("--annotate", options->annotate,
                   "Comments in the PTX that say which entry an operation comes from");
  parser->add_flag(
      "--bindable", options->bindable,
      "Of bundles: find where the weights stand in the machine code, so that `sparsertc "
      "bind` and sparsertc_plan_bind_values can write others there; assembles twice");
  parser->add_option("--stop-after", options->watch.stop_after,
                     fmt::format("End after this stage and write what it made. Stages: {}",
                                 fmt::join(pipeline_stages(), ", ")));
  declare(*parser, options->jobs);
  declare(*parser, options->assembler);
  declare(*parser, options->cache);
  declare(*parser, options->problem);
  declare(*parser, options->schedule);
  parser
      ->add_option("--tuning", options->tuning,
                   "A record of `sparsertc tune`, or a folder of them, instead of --tile; it must "
                   "hold for this matrix, problem, target, program, and the GPU where there is one")
      ->group("Schedule");
  parser
      ->add_option(
          "--tuning-mismatch", options->tuning_mismatch,
          fmt::format("What is done with a record of something else: refuse; similar takes "
                      "that of a layer of the same shape whose number of entries differs by "
                      "at most {:.0f} %, with remarks; accept takes any, with remarks",
                      100 * (tune::kSimilarEntries - 1)))
      ->capture_default_str()
      ->group("Schedule");
  declare(*parser, options->lu);
  declare(*parser, options->watch);
  parser->get_option("--op")->description(
      "What is computed: spmm, C = epilogue(A * B); conv2d, the same with the images of a "
      "convolution for B; or lu, systems A x = b with many matrices of A's pattern");
  parser->footer("Examples:\n"
                 "  sparsertc compile layer.npy -o layer.ptx --target=sm_90a -n 256\n"
                 "  sparsertc compile layer.npy -o layer.srtc\n"
                 "  sparsertc compile layer.npz -o layer.sir --dtype=f16 --bias --activation=relu\n"
                 "  sparsertc compile pattern.smtx --values=random:1 --emit=llvm | less\n"
                 "  sparsertc compile model.safetensors --tensor=fc1.weight -o fc1.ptx\n"
                 "  sparsertc compile layer.npy -o layer.ptx --tile=strategy=streamed,rows=16\n"
                 "  sparsertc compile A.mtx --op=lu -o a.srtc --target=native\n"
                 "  sparsertc compile --network net.json -o net.srtc --target=native");
  return {parser, [parser, options] {
            std::vector<std::string> for_one_layer = options_of_a_layer();
            for_one_layer.push_back("--columns");
            if (options->problem.op == "lu")
              check_lu_options(*parser);
            else
              check_no_lu_options(*parser);
            check_network_options(*parser, options->network, for_one_layer);
            return compile(*options);
          }};
}

} // namespace sparsertc
