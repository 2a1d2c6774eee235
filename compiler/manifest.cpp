#include "compiler/manifest.h"

#include "compiler/inspect/dense_schedule.h"
#include "ir/values_digest.h"

#include <nlohmann/json.hpp>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

uint32_t parameter_bytes(ir::Type type) {
  return type.is_pointer() ? 8 : ir::size_in_bytes(type.element());
}

/// A leading dimension in elements; null where the kernel takes it as a parameter.
Json leading_dimension(const SpmmSchedule& schedule, uint64_t elements) {
  return schedule.leading_dimension_parameters ? Json(nullptr) : Json(elements);
}

/// What the assembler said about the kernel; nothing where there was none.
void add_resources(Json& entry, const std::vector<FunctionResources>& functions) {
  for (const FunctionResources& function : functions) {
    if (function.name != entry["name"])
      continue;
    entry["registers"] = function.registers;
    entry["static_shared_bytes"] = function.shared_bytes;
    entry["stack_bytes"] = function.stack_bytes;
    entry["spill_store_bytes"] = function.spill_store_bytes;
    entry["spill_load_bytes"] = function.spill_load_bytes;
    entry["code_bytes"] = function.code_bytes;
  }
}

Json entry_json(const KernelManifest& kernel, const SpmmProblem& problem) {
  Json parameters = Json::array();
  for (const KernelParameter& parameter : kernel.parameters)
    parameters.push_back({{"name", parameter.name},
                          {"role", name_of(parameter.role)},
                          {"type", ir::to_string(parameter.type)},
                          {"bytes", parameter_bytes(parameter.type)}});
  Json ranges = Json::array();
  for (const KernelManifest::Range& range : kernel.ranges)
    ranges.push_back({{"code", range.code},
                      {"items", range.grid.items},
                      {"items_per_block", range.grid.items_per_block}});
  Json grid;
  grid["rule"] = "x = sum over ranges of ceil(n * items / items_per_block)";
  if (problem.columns)
    grid["x"] = kernel.grid_x(*problem.columns);
  else
    grid["x"] = nullptr;
  grid["y"] = kernel.grid_rows;
  grid["z"] = 1;
  grid["cluster_y"] = kernel.cluster;

  Json entry;
  entry["name"] = kernel.entry;
  entry["parameters"] = parameters;
  entry["ranges"] = ranges;
  entry["grid"] = grid;
  entry["block"] = {kernel.block[0], kernel.block[1], kernel.block[2]};
  entry["dynamic_shared_bytes"] = kernel.dynamic_shared_bytes;
  entry["pointer_alignment_bytes"] = kernel.pointer_alignment;
  return entry;
}

Json convolution_json(const Convolution& convolution, const SpmmSchedule& schedule) {
  Json json;
  json["words"] = to_string(convolution);
  json["channels"] = convolution.channels;
  json["height"] = convolution.height;
  json["width"] = convolution.width;
  json["filter"] = {convolution.filter_height, convolution.filter_width};
  json["stride"] = {convolution.stride_h, convolution.stride_w};
  json["dilation"] = {convolution.dilation_h, convolution.dilation_w};
  json["pad"] = {{"top", convolution.pad_top},
                 {"bottom", convolution.pad_bottom},
                 {"left", convolution.pad_left},
                 {"right", convolution.pad_right}};
  json["groups"] = convolution.groups;
  json["out_height"] = convolution.out_height();
  json["out_width"] = convolution.out_width();
  const bool is_product = !schedule.problem.convolution;
  json["interior_pixels"] =
      is_product ? convolution.out_pixels() : schedule.pixels.interior_count();
  json["border_pixels"] = is_product ? 0 : schedule.pixels.border_count();
  json["multiply_adds"] = schedule.prediction.multiply_adds;
  json["border_multiply_adds"] = schedule.prediction.border_multiply_adds;
  if (schedule.tile.strategy == Strategy::unrolled)
    json["multiply_adds_ratio"] = schedule.prediction.multiply_adds_ratio;
  return json;
}

} // namespace

std::string_view sparsertc_version() {
  return SPARSERTC_VERSION;
}

std::string manifest_json(const PipelineResult& result, const PipelineOptions& options) {
  const SpmmSchedule& schedule = result.schedule;
  const SpmmProblem& problem = schedule.request;

  Json json;
  json["schema"] = 1;
  json["sparsertc"] = sparsertc_version();
  json["family"] = problem.convolution ? "conv2d" : "spmm";
  json["artefact"] = name_of(options.artefact);
  json["target"] = schedule.target.name;
  if (!schedule.target.is_host) {
    const uint32_t capability = schedule.target.compute_capability;
    json["compute_capability"] = {capability / 10, capability % 10};
    json["ptx_version"] = schedule.target.ptx_version;
    json["road"] = options.road == Road::direct ? "direct" : "llvm";
  }
  if (options.artefact == Artefact::cubin || options.artefact == Artefact::bundle)
    json["assembler"] =
        result.assembled.cubin.empty() ? Json(nullptr) : Json(result.assembled.assembler);

  if (options.artefact == Artefact::bundle && options.bindable) {
    json["bindable"] = result.places.has_value();
    if (!result.places)
      json["not_bindable"] = result.not_bindable;
  }

  json["m"] = schedule.rows;
  json["k"] = schedule.inner;
  json["n"] = problem.columns ? Json(*problem.columns) : Json(nullptr);
  json["nnz"] = result.weights.pattern.nnz();
  json["dtype"] = name_of(problem.type);
  json["accumulator"] = ir::name_of(accumulator_scalar(problem.type));
  json["half_terms"] = problem.half_terms;
  if (problem.precision != Precision::full)
    json["precision"] = name_of(problem.precision);
  if (problem.nonfinite != Nonfinite::exact)
    json["nonfinite"] = name_of(problem.nonfinite);
  json["layout"] = layout_word(problem);
  json["ldb"] = leading_dimension(schedule, problem.ldb);
  json["ldc"] = leading_dimension(schedule, problem.ldc);
  json["epilogue"] = {{"bias", problem.epilogue.bias},
                      {"residual", problem.epilogue.residual},
                      {"activation", name_of(problem.epilogue.activation)}};

  if (problem.convolution)
    json["convolution"] = convolution_json(*problem.convolution, schedule);

  json["strategy"] = name_of(schedule.tile.strategy);
  json["tile"] = to_string(schedule.tile);
  if (schedule.tile.dense)
    json["dense"] = {{"code", name_of(*schedule.tile.dense)},
                     {"array", kDenseSymbol},
                     {"leading", dense_array(schedule).leading}};
  json["max_registers"] = options.max_registers;
  json["tiles"] = schedule.tile_count();
  json["pattern_digest"] = result.pattern_digest;
  json["values_digest"] = values_digest(result.weights.values);

  json["entries"] = Json::array();
  for (const KernelManifest& kernel : result.lowered.kernels) {
    json["entries"].push_back(entry_json(kernel, problem));
    add_resources(json["entries"].back(), result.assembled.functions);
  }
  json["remarks"] = schedule.remarks;
  return json.dump(2) + "\n";
}

} // namespace sparsertc
