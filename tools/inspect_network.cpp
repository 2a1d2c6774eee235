#include "tools/inspect_network.h"

#include "ir/error.h"
#include "runtime/plan/network.h"
#include "tools/inspect_lu_bundle.h"
#include "tools/network.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

/// A row of the table.
struct Layer {
  std::string name, input, residual; ///< of a single layer's bundle the last two are empty
  std::string shape;                 ///< "512 x 512, N = 196" or the convolution's words
  uint64_t nnz = 0;
  std::string dtype, target, tile;
  std::string code;           ///< sections of a bundle; empty: not compiled
  uint64_t multiply_adds = 0; ///< in the code, where that is known
  bool bias = false;
  std::string activation;
};

std::string shape_of(uint64_t m, uint64_t k, const std::optional<uint64_t>& n,
                     const std::string& convolution) {
  const std::string count = n ? std::to_string(*n) : "dynamic";
  return convolution.empty() ? fmt::format("{} x {}, N = {}", m, k, count)
                             : fmt::format("{} x {}, N = {}, {}", m, k, count, convolution);
}

std::string tensor_name(const NetworkManifest& manifest, int32_t tensor) {
  return tensor == NetworkLayer::kNothing ? std::string()
         : tensor == NetworkLayer::kNetworkInput
             ? std::string("input")
             : manifest.layers[static_cast<size_t>(tensor)].name;
}

Layer describe(const PlanManifest& plan, const Bundle& bundle) {
  Layer layer;
  layer.shape = shape_of(plan.m, plan.k, plan.n, plan.images ? plan.images->words : "");
  layer.nnz = plan.nnz;
  layer.dtype = plan.dtype;
  layer.target = plan.target;
  layer.tile = plan.tile;
  layer.bias = plan.bias;
  layer.activation = plan.activation;
  for (const Bundle::Section& section : bundle.sections)
    layer.code += fmt::format("{}{} {} bytes", layer.code.empty() ? "" : ", ", section.name,
                              section.bytes.size());
  return layer;
}

Json to_json(const Layer& layer, const NetworkLayer* place) {
  Json json;
  if (!layer.name.empty()) {
    json["name"] = layer.name;
    json["input"] = layer.input;
    json["residual"] = layer.residual.empty() ? Json(nullptr) : Json(layer.residual);
  }
  json["shape"] = layer.shape;
  json["nnz"] = layer.nnz;
  json["dtype"] = layer.dtype;
  json["bias"] = layer.bias;
  json["activation"] = layer.activation;
  json["target"] = layer.target;
  json["tile"] = layer.tile;
  if (!layer.code.empty())
    json["code"] = layer.code;
  else
    json["multiply_adds"] = layer.multiply_adds;
  if (place != nullptr && place->output) {
    json["output_offset_bytes"] = place->output->offset;
    json["output_bytes"] = place->output->bytes;
  }
  return json;
}

std::string to_text(const Layer& layer, size_t width) {
  std::string text = fmt::format("{:<{}}  {}, {} non-zeros, {}", layer.name, width, layer.shape,
                                 layer.nnz, layer.dtype);
  if (!layer.input.empty())
    text += fmt::format(", reads {}", layer.input);
  if (layer.bias)
    text += ", bias";
  if (!layer.residual.empty())
    text += fmt::format(", adds {}", layer.residual);
  if (layer.activation != "none")
    text += fmt::format(", {}", layer.activation);
  text += fmt::format(
      "\n{:<{}}  {}: {}\n{:<{}}  {}\n", "", width, layer.target, layer.tile, "", width,
      layer.code.empty() ? fmt::format("{} multiply-adds in the code", layer.multiply_adds)
                         : layer.code);
  return text;
}

int print(const NetworkManifest& manifest, std::vector<Layer>& layers, bool as_json) {
  size_t width = 0;
  uint64_t nnz = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].name = manifest.layers[i].name;
    layers[i].input = tensor_name(manifest, manifest.layers[i].input);
    layers[i].residual = tensor_name(manifest, manifest.layers[i].residual);
    width = std::max(width, layers[i].name.size());
    nnz += layers[i].nnz;
  }
  if (as_json) {
    Json json;
    json["network"] = manifest.name;
    json["dynamic"] = manifest.dynamic;
    json["bytes_input"] = manifest.input_bytes;
    json["bytes_output"] = manifest.output_bytes;
    json["bytes_constant"] = manifest.constant_bytes;
    json["bytes_activations"] = manifest.activation_bytes;
    json["layers"] = Json::array();
    for (size_t i = 0; i < layers.size(); ++i)
      json["layers"].push_back(to_json(layers[i], &manifest.layers[i]));
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  const char* each = manifest.dynamic ? " for each n" : "";
  fmt::print("network {}: {} {}, {} non-zeros\n", manifest.name, layers.size(),
             layers.size() == 1 ? "layer" : "layers", nnz);
  fmt::print("input: {} bytes{}, output: {} bytes{}\n", manifest.input_bytes, each,
             manifest.output_bytes, each);
  fmt::print("workspace: {} bytes for status and biases, {} bytes{} for what layers hand on\n\n",
             manifest.constant_bytes, manifest.activation_bytes, each);
  for (const Layer& layer : layers)
    fmt::print("{}", to_text(layer, width));
  return 0;
}

} // namespace

int inspect_network_file(const std::string& path, const std::string& target, unsigned jobs,
                         bool json) {
  const SourceNetwork network = open_network(read_network_file(path), jobs);
  NetworkCompilation compilation;
  compilation.artefact = Artefact::none;
  compilation.target = target;
  compilation.jobs = jobs;
  compilation.stop_after = "inspect";
  const std::vector<CompiledLayer> compiled = compile_network(network, compilation);
  std::vector<Layer> layers;
  for (size_t i = 0; i < compiled.size(); ++i) {
    const SpmmSchedule& schedule = compiled[i].result.schedule;
    const SpmmProblem& problem = schedule.request;
    Layer& layer = layers.emplace_back();
    layer.shape =
        shape_of(schedule.rows, schedule.inner,
                 problem.columns ? std::optional<uint64_t>(*problem.columns) : std::nullopt,
                 problem.convolution ? to_string(*problem.convolution) : std::string());
    layer.nnz = network.layers[i].matrix.pattern.nnz();
    layer.dtype = name_of(problem.type);
    layer.target = schedule.target.name;
    layer.tile = to_string(schedule.tile);
    layer.multiply_adds = schedule.prediction.multiply_adds;
    layer.bias = problem.epilogue.bias;
    layer.activation = name_of(problem.epilogue.activation);
  }
  return print(network.manifest, layers, json);
}

int inspect_bundle(const std::string& path, bool json) {
  Bundle bundle = read_bundle(path);
  if (is_lu(bundle))
    return inspect_lu_bundle(bundle, path, json);
  if (!is_network(bundle)) {
    const Layer layer = describe(parse_plan_manifest(bundle.manifest, path), bundle);
    if (json)
      fmt::print("{}\n", to_json(layer, nullptr).dump(2));
    else
      fmt::print("{}: {}", path, to_text(layer, 0).substr(2));
    return 0;
  }
  // Without a device: nothing is loaded, and everything is checked.
  const auto context = std::make_shared<ExecutionContext>(ExecutionContext::kNoDevice);
  const Network network(context, std::move(bundle), path);
  std::vector<Layer> layers;
  for (size_t i = 0; i < network.layers(); ++i)
    layers.push_back(describe(network.plan(i)->manifest(), network.plan(i)->bundle()));
  return print(network.manifest(), layers, json);
}

} // namespace sparsertc
