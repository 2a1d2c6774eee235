//                weights      pattern      schedule       module             module    artefact
//   +-------+       +---------+     +---------+     +-------+     +-----------+     +------+
//   | input | ----> | pattern | --> | inspect | --> | lower | --> | (passes)* | --> | emit | ---->
//   +-------+       +---------+     +---------+     +-------+     +-----------+     +------+
//   bytes, or       checked,        decides         writes IR,    IR -> IR          IR, LLVM IR,
//   a generator     digest                          decides       (verify after     PTX or host
//                                                   nothing       each)             object
//
// The words:
//   weights   the sparse matrix A with its values, in float64 whatever the file had
//   pattern   where A has entries; its digest names it in manifests
//   schedule  all decisions: strategy (unrolled, streamed), tile parameters, which rows a tile has
//   module    the IR: one function a tile, one kernel that dispatches, tables where needed
//   pass      a function from IR to IR; named in the table kPasses
//   artefact  what the caller asked for, as bytes
//   stage     one box above; can be stopped after, watched (before, after) and timed
#include "compiler/pipeline.h"

#include "compiler/emit/ptx.h"
#include "ir/error.h"
#include "ir/printer.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <chrono>

namespace sparsertc {
namespace {

using Clock = std::chrono::steady_clock;

/// Runs stages one by one: announces, times and hands out what they made.
class Stages {
public:
  Stages(const PipelineOptions& options, PipelineResult& result)
      : options_(options), result_(result) {}

  /// Runs `work` as the stage of this name. Returns false when the pipeline ends here.
  bool run(std::string_view stage, const std::function<void()>& work) {
    if (options_.before_stage)
      options_.before_stage(stage);
    timed(stage, work);
    if (options_.verify_each && stage_has_ir(stage) && stage != "emit")
      timed("verify", [&] { check(stage); });
    if (options_.after_stage)
      options_.after_stage(stage, result_);
    return stage != options_.stop_after;
  }

private:
  void timed(std::string_view stage, const std::function<void()>& work) {
    const Clock::time_point start = Clock::now();
    work();
    const std::chrono::duration<double, std::micro> wall = Clock::now() - start;
    result_.times.push_back({std::string(stage), wall.count()});
  }

  void check(std::string_view stage) {
    const std::vector<ir::Diagnostic> diagnostics = ir::verify(result_.lowered.module);
    if (!diagnostics.empty())
      throw InternalError(fmt::format("the IR is not well formed after the stage {}: {}", stage,
                                      ir::to_string(diagnostics.front())));
  }

  const PipelineOptions& options_;
  PipelineResult& result_;
};

std::string emit(const LoweredSpmm& lowered, const PipelineOptions& options) {
  switch (options.artefact) {
  case Artefact::ir:
    return ir::print(lowered.module);
  case Artefact::llvm:
    return emit_llvm_ir(lowered.module, options.target, options.llvm);
  case Artefact::ptx:
    if (options.road == Road::llvm)
      return emit_ptx_through_llvm(lowered.module, options.target, options.llvm);
    return emit_ptx(lowered.module, options.target, PtxOptions{options.annotate});
  case Artefact::host_object: {
    const std::vector<uint8_t> bytes =
        emit_host_object(lowered.module, options.target, options.llvm);
    return std::string(bytes.begin(), bytes.end());
  }
  case Artefact::none:
    return {};
  }
  return {};
}

} // namespace

std::string_view name_of(Artefact artefact) {
  switch (artefact) {
  case Artefact::ir:
    return "ir";
  case Artefact::llvm:
    return "llvm";
  case Artefact::ptx:
    return "ptx";
  case Artefact::host_object:
    return "host";
  case Artefact::none:
    return "none";
  }
  return "";
}

std::vector<std::string> pipeline_stages() {
  return {"input", "pattern", "inspect", "lower", "emit"};
}

bool stage_has_ir(std::string_view stage) {
  return stage != "input" && stage != "pattern" && stage != "inspect";
}

PipelineResult compile_spmm(const std::function<Matrix()>& read_weights,
                            const PipelineOptions& options) {
  PipelineResult result;
  Stages stages(options, result);

  if (!stages.run("input", [&] { result.weights = read_weights(); }))
    return result;

  if (!stages.run("pattern",
                  [&] { result.pattern_digest = pattern_digest(result.weights.pattern); }))
    return result;

  if (!stages.run("inspect", [&] {
        result.schedule = schedule_spmm(result.weights, options.problem, options.target,
                                        options.tile, options.budget);
      }))
    return result;

  if (!stages.run("lower", [&] { result.lowered = lower_spmm(result.weights, result.schedule); }))
    return result;

  stages.run("emit", [&] { result.artefact = emit(result.lowered, options); });
  return result;
}

} // namespace sparsertc
