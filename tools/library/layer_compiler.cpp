#include "tools/library/layer_compiler.h"

#include "ir/error.h"
#include "runtime/tune/candidate.h"
#include "tools/assemblers.h"
#include "tools/library/caller_matrix.h"
#include "tools/make_bundle.h"
#include "tools/words.h"

#include <fmt/format.h>

#include <limits>

namespace sparsertc {
namespace {

const std::vector<std::string> kWords = {
    "op",   "conv",     "columns",    "dtype",      "layout",    "ldb",       "ldc",
    "bias", "residual", "activation", "half-terms", "precision", "nonfinite", "target",
    "tile", "budget",   "bindable",   "jobs",       "assembler"};

struct Words {
  ProblemOptions problem;
  ScheduleOptions schedule;
  std::string target = "sm_90";
  bool bindable = false;
  unsigned jobs = 0;
  AssemblerOptions assembler;
};

uint32_t parse_number_32(const std::string& name, std::string_view text) {
  const uint64_t number = parse_number(name, text);
  if (number > std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format("{}: {} is too large", name, number));
  return static_cast<uint32_t>(number);
}

/// Sets what one word says. A flag has no value.
void set_word(Words& words, const std::string& name, const std::optional<std::string>& given) {
  choose_word("words", name, kWords);
  const bool is_flag = name == "bias" || name == "residual" || name == "bindable";
  if (is_flag == given.has_value())
    throw UsageError(is_flag ? fmt::format("{}: a flag has no value", name)
                             : fmt::format("{}: a value is missing", name),
                     is_flag ? fmt::format("write {} alone, or leave it out", name)
                             : fmt::format("write {}=...", name));
  const std::string value = given.value_or("");
  if (name == "op")
    words.problem.op = value;
  else if (name == "conv")
    words.problem.conv = value;
  else if (name == "columns")
    words.problem.columns = value;
  else if (name == "dtype")
    words.problem.type = value;
  else if (name == "layout")
    words.problem.layout = value;
  else if (name == "ldb")
    words.problem.ldb = parse_number(name, value);
  else if (name == "ldc")
    words.problem.ldc = parse_number(name, value);
  else if (name == "bias")
    words.problem.bias = true;
  else if (name == "residual")
    words.problem.residual = true;
  else if (name == "activation")
    words.problem.activation = value;
  else if (name == "half-terms")
    words.problem.half_terms = parse_number_32(name, value);
  else if (name == "precision")
    words.problem.precision = value;
  else if (name == "nonfinite")
    words.problem.nonfinite = value;
  else if (name == "target")
    words.target = value;
  else if (name == "tile")
    words.schedule.tile = value;
  else if (name == "budget")
    words.schedule.budget = parse_number(name, value);
  else if (name == "bindable")
    words.bindable = true;
  else if (name == "jobs")
    words.jobs = parse_number_32(name, value);
  else
    words.assembler.choice = value;
}

Words parse_words(std::string_view text) {
  Words words;
  for (const auto& [name, value] : split_words(text))
    set_word(words, name, value);
  return words;
}

/// Sets tile and cap.
void set_tile(PipelineOptions& pipeline, const std::string& tile) {
  const tune::Candidate candidate = tune::parse_candidate(tile);
  ScheduleOptions schedule;
  schedule.tile = candidate.words;
  pipeline.tile = to_tile_choice(schedule);
  pipeline.max_registers = candidate.registers;
}

} // namespace

LayerCompiler::LayerCompiler(Matrix weights, std::string_view text) : weights_(std::move(weights)) {
  const Words words = parse_words(text);
  pipeline_.problem = to_problem(words.problem);
  choose_word("target", words.target, known_targets());
  pipeline_.target = find_target(words.target);
  if (pipeline_.target.is_host)
    throw UsageError("target=host: there are no bundles for the CPU");
  pipeline_.budget = words.schedule.budget;
  pipeline_.bindable = words.bindable;
  pipeline_.jobs = words.jobs;
  pipeline_.artefact = Artefact::bundle;
  set_tile(pipeline_, words.schedule.tile);
  std::vector<std::string> refused; // no assembler is no error: the driver has one
  if (words.assembler.choice != "none")
    assembler_ = find_assembler(words.assembler, refused);
  pipeline_.assembler = assembler_.get();
}

std::vector<uint8_t> LayerCompiler::compile(const std::optional<std::string>& tile, unsigned jobs,
                                            const std::atomic<bool>* stop) const {
  PipelineOptions pipeline = pipeline_;
  if (tile)
    set_tile(pipeline, *tile);
  if (jobs != 0)
    pipeline.jobs = jobs;
  pipeline.stop = stop;
  pipeline.before_stage = [stop](std::string_view stage) {
    if (stop != nullptr && *stop)
      throw RuntimeError("compiling before the stage " + std::string(stage), "stopped");
  };
  const PipelineResult result = compile_spmm([this] { return weights_; }, pipeline);
  return serialize(make_bundle(result, pipeline));
}

} // namespace sparsertc
