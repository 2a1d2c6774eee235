//          weights     pattern     schedule     module     module        artefact, or PTX
//  +-------+   +---------+   +---------+   +-------+   +--------+   +------+   +----------+
//  | input |-->| pattern |-->| inspect |-->| lower |-->| passes |-->| emit |-->| assemble |
//  +-------+   +---------+   +---------+   +-------+   +--------+   +------+   +----------+
//  file, or    its digest    decides       writes IR,  IR -> IR,    IR text,   PTX -> cubin
//  generator                               decides     as the       LLVM IR,   (cubin, bundle)
//                                          nothing     schedule     PTX or
//                                                      says         object
//
// The words:
//   weights   the sparse matrix A with its values, in float64 whatever the file had
//   pattern   where A has entries; its digest names it in manifests
//   schedule  all decisions: strategy (unrolled, streamed), tile parameters, which rows a tile has
//   module    the IR: one function a tile, one kernel that dispatches, tables where needed
//   pass      schedule-loads (loads of B ahead of their use), place-weights (weights from
//   immediates
//             to the constant bank); one that the schedule does not ask for changes nothing
//   artefact  what the caller asked for, as bytes
//   stage     one box above; can be stopped after, watched (before, after) and timed
#include "compiler/pipeline.h"

#include "compiler/assemble/find_values.h"
#include "compiler/emit/ptx.h"
#include "compiler/emit/ptx_origin.h"
#include "compiler/lower/weight_markers.h"
#include "compiler/transform/pass.h"
#include "ir/error.h"
#include "ir/printer.h"
#include "ir/values_digest.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <algorithm>
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
    if (options_.verify_each && changes_ir(stage))
      timed("verify", [&] { ir::verify_or_throw(result_.lowered.module, stage); });
    if (options_.after_stage)
      options_.after_stage(stage, result_);
    return stage != options_.stop_after;
  }

private:
  static bool changes_ir(std::string_view stage) {
    return stage_has_ir(stage) && stage != "emit" && stage != "assemble";
  }

  void timed(std::string_view stage, const std::function<void()>& work) {
    const Clock::time_point start = Clock::now();
    work();
    const std::chrono::duration<double, std::micro> wall = Clock::now() - start;
    result_.times.push_back({std::string(stage), wall.count()});
  }

  const PipelineOptions& options_;
  PipelineResult& result_;
};

/// How many loads ahead of their use are issued, where a pass has to see to it: staged tiles have
/// their chunks in flight already, streamed ones their steps, and the CPU reorders by itself.
unsigned load_distance(const SpmmSchedule& schedule) {
  const bool straight_line = schedule.tile.strategy == Strategy::unrolled &&
                             schedule.tile.stage == Stage::global && !schedule.target.is_host;
  return straight_line ? schedule.tile.prefetch : 0;
}

bool has_constant_weights(const SpmmSchedule& schedule) {
  return schedule.tile.strategy == Strategy::unrolled &&
         schedule.tile.weights == WeightOperand::constant_bank;
}

// The passes: one that the schedule does not ask for changes nothing.
void transform_loads(PipelineResult& result) {
  if (const unsigned distance = load_distance(result.schedule); distance > 0)
    schedule_loads_pass(distance).run(result.lowered.module);
}
void transform_weights(PipelineResult& result) {
  if (has_constant_weights(result.schedule))
    place_weights_pass().run(result.lowered.module);
}

const LlvmRoad& through_llvm(const PipelineOptions& options) {
  if (options.llvm == nullptr)
    throw InternalError("code through LLVM was asked for in a program without it");
  return *options.llvm;
}

std::string emit(const LoweredSpmm& lowered, const PipelineOptions& options) {
  switch (options.artefact) {
  case Artefact::ir:
    return ir::print(lowered.module);
  case Artefact::llvm:
    return through_llvm(options).llvm_ir(lowered.module, options.target);
  case Artefact::ptx:
  case Artefact::bundle: // beside the cubin
    if (options.road == Road::llvm)
      return through_llvm(options).ptx(lowered.module, options.target);
    return emit_ptx(lowered.module, options.target, PtxOptions{options.annotate});
  case Artefact::host_object: {
    const std::vector<uint8_t> bytes =
        through_llvm(options).host_object(lowered.module, options.target);
    return std::string(bytes.begin(), bytes.end());
  }
  case Artefact::cubin: // from the units, by the next stage
  case Artefact::none:
    return {};
  }
  return {};
}

/// PTX for the assembler: a unit for each function, so that they can be assembled in parallel.
std::vector<std::string> emit_units(const LoweredSpmm& lowered, const PipelineOptions& options) {
  if (options.road == Road::llvm)
    return {through_llvm(options).ptx(lowered.module, options.target)};
  return emit_ptx_units(lowered.module, options.target, PtxOptions{options.annotate});
}

/// Everything that the machine code depends on, beside the units themselves and the assembler.
std::string provenance_of(const PipelineResult& result, const PipelineOptions& options) {
  const SpmmSchedule& schedule = result.schedule;
  const SpmmProblem& problem = schedule.request;
  std::string text = problem.convolution
                         ? fmt::format("family=conv2d\nconv={}\n", to_string(*problem.convolution))
                         : std::string("family=spmm\n");
  text += fmt::format("pattern={}\n", result.pattern_digest);
  // Every strategy so far has the values in its code or in its tables.
  text += fmt::format("values={}\n", values_digest(result.weights.values));
  text += fmt::format("m={}\nk={}\nn={}\n", schedule.rows, schedule.inner,
                      problem.columns ? std::to_string(*problem.columns) : "dynamic");
  text += fmt::format("dtype={}\nlayout={}\nldb={}\nldc={}\n", name_of(problem.type),
                      layout_word(problem), problem.ldb, problem.ldc);
  text += fmt::format("half_terms={}\n", problem.half_terms);
  text += fmt::format("bias={}\nresidual={}\nactivation={}\n", problem.epilogue.bias,
                      problem.epilogue.residual, name_of(problem.epilogue.activation));
  text += fmt::format("tile={}\n", to_string(schedule.tile));
  text += fmt::format("ptx_version={}\nroad={}\n", options.target.ptx_version,
                      options.road == Road::direct ? "direct" : "llvm");
  return text;
}

/// Caps the kernels' registers, and below that at what their blocks allow.
void cap_registers(ir::Module& module, uint32_t most) {
  for (ir::Function& function : module.functions)
    if (function.kind == ir::FunctionKind::kernel) {
      const uint64_t threads = uint64_t{function.block[0]} * function.block[1] * function.block[2];
      function.max_registers = std::min(most, register_limit(threads));
    }
}

/// What every function may use, so that it can be called from every kernel: a block's threads share
/// the registers of a multiprocessor, and the assembler sees functions without their kernel.
uint32_t most_registers(const ir::Module& module) {
  uint32_t most = register_limit(1);
  for (const ir::Function& function : module.functions) {
    if (function.kind != ir::FunctionKind::kernel)
      continue;
    const uint64_t threads = uint64_t{function.block[0]} * function.block[1] * function.block[2];
    most = std::min(most, register_limit(threads));
    if (function.max_registers != 0)
      most = std::min(most, function.max_registers);
  }
  return most;
}

Assembled assemble(const PipelineResult& result, const PipelineOptions& options) {
  AssembleRequest request;
  request.units = result.units;
  request.target = options.target.name;
  request.provenance = provenance_of(result, options);
  for (const KernelManifest& kernel : result.lowered.kernels)
    request.kernels.push_back(kernel.entry);
  request.max_registers = most_registers(result.lowered.module);
  request.jobs = options.jobs;
  request.limit = options.limit;
  request.stop = options.stop;
  if (options.road == Road::direct)
    request.origin_of = [&](size_t unit, uint64_t line) {
      return ptx_origin(result.lowered.module, options.target, PtxOptions{options.annotate}, unit,
                        line);
    };
  return options.assembler->assemble(request);
}

/// Assembles the same schedule with these weights, as they are.
Assembled assemble_weights(const PipelineResult& result, const PipelineOptions& options,
                           std::vector<double> weights) {
  PipelineResult other;
  other.weights.pattern = result.weights.pattern;
  other.weights.values = std::move(weights);
  other.pattern_digest = result.pattern_digest;
  other.schedule = result.schedule;
  other.lowered = lower_spmm(other.weights, other.schedule, WeightRounding::none);
  if (options.max_registers != 0)
    cap_registers(other.lowered.module, options.max_registers);
  transform_loads(other);
  transform_weights(other);
  other.units = emit_units(other.lowered, options);
  return assemble(other, options);
}

/// The cubin of code that can be bound to other weights: assembled with two lists of markers, which
/// say where weights stand, and bound to the weights. Where the places cannot be known, the cubin
/// is that of the weights, assembled as always.
void assemble_bindable(PipelineResult& result, const PipelineOptions& options) {
  const std::optional<WeightMarkers> markers =
      weight_markers(result.weights.pattern, result.schedule);
  if (!markers) {
    result.not_bindable = "there are more weights than markers";
  } else {
    const ir::Scalar type = element_scalar(result.schedule.problem.type);
    const ir::Scalar stored = stored_weight(result.schedule);
    Assembled first = assemble_weights(result, options, markers->first);
    const Assembled second = assemble_weights(result, options, markers->second);
    // Markers have the type in which weights stand, so they are not rounded.
    std::vector<uint32_t> first_elements, second_elements;
    encode_values(stored, stored, std::span(markers->first), first_elements);
    encode_values(stored, stored, std::span(markers->second), second_elements);
    FoundValues found =
        find_values(first.cubin, second.cubin, type, stored, first_elements, second_elements);
    if (found.refusal.empty()) {
      std::vector<uint32_t> elements;
      encode_values(type, stored, std::span<const double>(result.weights.values), elements);
      write_elements(found.places, elements, first.cubin);
      result.assembled = std::move(first);
      result.places = std::move(found.places);
      return;
    }
    result.not_bindable = std::move(found.refusal);
  }
  result.assembled = assemble(result, options);
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
  case Artefact::cubin:
    return "cubin";
  case Artefact::bundle:
    return "bundle";
  case Artefact::host_object:
    return "host";
  case Artefact::none:
    return "none";
  }
  return "";
}

std::vector<std::string> pipeline_stages() {
  return {"input",          "pattern",       "inspect", "lower",
          "schedule-loads", "place-weights", "emit",    "assemble"};
}

bool stage_has_ir(std::string_view stage) {
  return stage != "input" && stage != "pattern" && stage != "inspect";
}

PipelineResult compile_spmm(const std::function<Matrix()>& read_weights,
                            const PipelineOptions& options) {
  PipelineResult result;
  Stages stages(options, result);

  SpmmProblem problem = options.problem;
  if (!stages.run("input", [&] {
        result.weights = read_weights();
        if (problem.convolution)
          result.weights = filters_as_matrix(std::move(result.weights), *problem.convolution);
      }))
    return result;

  if (!stages.run("pattern",
                  [&] { result.pattern_digest = pattern_digest(result.weights.pattern); }))
    return result;

  if (!stages.run("inspect", [&] {
        result.schedule =
            schedule_spmm(result.weights, problem, options.target, options.tile, options.budget);
      }))
    return result;

  if (!stages.run("lower", [&] {
        result.lowered = lower_spmm(result.weights, result.schedule);
        if (options.max_registers != 0)
          cap_registers(result.lowered.module, options.max_registers);
      }))
    return result;

  if (!stages.run("schedule-loads", [&] { transform_loads(result); }))
    return result;

  if (!stages.run("place-weights", [&] { transform_weights(result); }))
    return result;

  const bool to_cubin = options.artefact == Artefact::cubin;
  const bool to_bundle = options.artefact == Artefact::bundle;
  if (to_cubin && options.assembler == nullptr)
    throw InternalError("a cubin was asked for without an assembler");
  const bool to_assembler = (to_cubin || to_bundle) && options.assembler != nullptr;
  if (!stages.run("emit", [&] {
        if (to_assembler)
          result.units = emit_units(result.lowered, options);
        // Through LLVM the one unit is the whole program.
        if (to_bundle && result.units.size() == 1 && options.road == Road::llvm)
          result.artefact = result.units.front();
        else if (!to_cubin)
          result.artefact = emit(result.lowered, options);
      }))
    return result;

  if (to_assembler)
    stages.run("assemble", [&] {
      if (to_bundle && options.bindable)
        assemble_bindable(result, options);
      else
        result.assembled = assemble(result, options);
    });
  else if (to_bundle && options.bindable)
    result.not_bindable = "there was no assembler";
  if (to_cubin)
    result.artefact.assign(result.assembled.cubin.begin(), result.assembled.cubin.end());
  return result;
}

} // namespace sparsertc
