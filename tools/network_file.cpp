#include "tools/network_file.h"

#include "compiler/input/bytes.h"
#include "ir/error.h"
#include "runtime/plan/network_manifest.h"
#include "tools/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostFileBytes = uint64_t{16} << 20;

/// Keys that may also stand beside `layers`, where they hold for all layers that do not have them.
const std::vector<std::string> kSharedKeys = {
    "op",     "columns",    "dtype",           "layout",    "activation",
    "tile",   "half_terms", "precision",       "nonfinite", "budget",
    "target", "tuning",     "tuning_mismatch", "bindable",  "values"};
const std::vector<std::string> kLayerOnlyKeys = {"name", "weights", "tensor",  "conv",
                                                 "bias", "input",   "residual"};

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class LayerReader {
public:
  LayerReader(const NetworkFile& file, const Json& shared, const Json& layer, std::string place)
      : file_(file), shared_(shared), layer_(layer), place_(std::move(place)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& message,
                           const std::string& way_out = {}) const {
    throw UserError(Place{file_.path, 0, 0, {}},
                    fmt::format("{}, key \"{}\": {}", place_, key, message), way_out);
  }

  NetworkFileLayer read() {
    if (!layer_.is_object())
      throw UserError(Place{file_.path, 0, 0, {}}, place_ + ": expected an object");
    NetworkFileLayer layer;
    layer.name = text("name", "");
    if (layer.name.empty())
      refuse("name", "missing");
    if (layer.name == "input")
      refuse("name", "\"input\" is what the network's input is called");
    place_ = fmt::format("layer \"{}\"", layer.name);
    for (const NetworkFileLayer& other : file_.layers)
      if (other.name == layer.name)
        refuse("name", "an earlier layer has this name");
    const std::vector<std::string> known = joined(kLayerOnlyKeys, kSharedKeys);
    for (const auto& [key, value] : layer_.items())
      said(key, [&, name = key] { choose_word("layer", name, known); });

    layer.weights.path = path_of(text("weights", ""));
    if (layer.weights.path.empty())
      refuse("weights", "missing", "the file of the layer's weights");
    layer.weights.tensor = text("tensor", "");
    layer.weights.values = text("values", "");
    said("values", [&] { to_read_options(layer.weights); });
    layer.bias = path_of(text("bias", ""));
    const int32_t before = static_cast<int32_t>(file_.layers.size()) - 1;
    layer.input = layer_.contains("input") ? tensor("input") : before; // -1: the network's input
    layer.residual = layer_.contains("residual") ? tensor("residual") : NetworkLayer::kNothing;
    layer.problem = problem(layer);
    ScheduleOptions schedule;
    schedule.tile = text("tile", "");
    said("tile", [&] { layer.tile = to_tile_choice(schedule); });
    layer.budget = number("budget", 0);
    layer.target = text("target", "");
    layer.tuning = path_of(text("tuning", ""));
    constexpr TuningMismatch kinds[] = {TuningMismatch::refuse, TuningMismatch::similar,
                                        TuningMismatch::accept};
    said("tuning_mismatch", [&] {
      layer.mismatch = kinds[choose_word("tuning_mismatch", text("tuning_mismatch", "refuse"),
                                         {"refuse", "similar", "accept"})];
    });
    if (!layer.tuning.empty() && !schedule.tile.empty())
      refuse("tuning", "a tile is given, too", "give one of them");
    layer.bindable = flag("bindable");
    return layer;
  }

private:
  /// The layer's value, else the one for all layers, else null.
  const Json* find(const std::string& key) const {
    if (const auto found = layer_.find(key); found != layer_.end())
      return &*found;
    const bool is_shared =
        std::find(kSharedKeys.begin(), kSharedKeys.end(), key) != kSharedKeys.end();
    const auto found = shared_.find(key);
    return is_shared && found != shared_.end() ? &*found : nullptr;
  }

  std::string text(const std::string& key, const std::string& otherwise) const {
    const Json* value = find(key);
    if (value == nullptr)
      return otherwise;
    if (!value->is_string())
      refuse(key, fmt::format("expected text, found {}", value->dump().substr(0, 40)));
    return value->get<std::string>();
  }
  uint64_t number(const std::string& key, uint64_t otherwise) const {
    const Json* value = find(key);
    if (value == nullptr)
      return otherwise;
    if (!value->is_number_unsigned())
      refuse(key, fmt::format("expected a whole number, found {}", value->dump().substr(0, 40)));
    return value->get<uint64_t>();
  }
  bool flag(const std::string& key) const {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean())
      refuse(key, fmt::format("expected true or false, found {}", value->dump().substr(0, 40)));
    return value != nullptr && value->get<bool>();
  }
  /// An earlier layer, or the network's input.
  int32_t tensor(const std::string& key) const {
    const std::string name = text(key, "");
    if (name == "input")
      return NetworkLayer::kNetworkInput;
    for (size_t i = 0; i < file_.layers.size(); ++i)
      if (file_.layers[i].name == name)
        return static_cast<int32_t>(i);
    refuse(key, fmt::format("no earlier layer is called \"{}\"", name),
           "name a layer that comes before this one, or \"input\", the network's input");
  }
  std::string path_of(const std::string& given) const {
    if (given.empty() || std::filesystem::path(given).is_absolute())
      return given;
    return (std::filesystem::path(file_.path).parent_path() / given).string();
  }

  /// Does what may throw a usage error, which then names the key.
  template <typename Work>
  void said(const std::string& key, Work&& work) const {
    try {
      work();
    } catch (const UsageError& error) {
      const auto [message, way_out] = parts_of(error);
      refuse(key, message, way_out);
    }
  }

  SpmmProblem problem(const NetworkFileLayer& layer) const {
    ProblemOptions options;
    options.op = text("op", options.op);
    options.conv = text("conv", "");
    options.type = text("dtype", options.type);
    options.layout = text("layout", "");
    options.activation = text("activation", options.activation);
    const uint64_t terms = number("half_terms", 0);
    if (terms > std::numeric_limits<uint32_t>::max())
      refuse("half_terms", "too large");
    options.half_terms = static_cast<uint32_t>(terms);
    options.precision = text("precision", options.precision);
    options.nonfinite = text("nonfinite", options.nonfinite);
    options.bias = !layer.bias.empty();
    options.residual = layer.residual != NetworkLayer::kNothing;
    // Columns for all layers are those of matrices; a convolution says N, or has its own.
    const Json* columns =
        options.op == "conv2d" && !layer_.contains("columns") ? nullptr : find("columns");
    if (columns != nullptr)
      options.columns =
          columns->is_string() ? text("columns", "") : std::to_string(number("columns", 0));
    SpmmProblem problem;
    // The option that is wrong stands in the message: --dtype, --conv ...
    try {
      problem = to_problem(options);
    } catch (const UsageError& error) {
      const auto [message, way_out] = parts_of(error);
      const std::vector<std::pair<std::string, std::string>> keys = {{"--op", "op"},
                                                                     {"--conv", "conv"},
                                                                     {"--columns", "columns"},
                                                                     {"--dtype", "dtype"},
                                                                     {"--layout", "layout"},
                                                                     {"--activation", "activation"},
                                                                     {"--precision", "precision"},
                                                                     {"--nonfinite", "nonfinite"}};
      for (const auto& [option, key] : keys)
        if (message.starts_with(option))
          refuse(key,
                 message.substr(
                     std::min(message.size(), message.find_first_not_of(": ", option.size()))),
                 way_out);
      refuse("conv", message, way_out);
    }
    return problem;
  }

  const NetworkFile& file_;
  const Json& shared_;
  const Json& layer_;
  std::string place_; ///< "layer 3" until its name is known
};

} // namespace

std::pair<std::string, std::string> parts_of(const Error& error) {
  std::string text = error.what();
  for (const std::string_view kind : {"usage error: ", "error: "})
    if (const size_t at = text.find(kind); at != std::string::npos) {
      text.erase(at, kind.size());
      break;
    }
  constexpr std::string_view kNote = "\nnote: ";
  const size_t note = text.find(kNote);
  if (note == std::string::npos)
    return {text, ""};
  return {text.substr(0, note), text.substr(note + kNote.size())};
}

void refuse_layer(const NetworkFile& file, const NetworkFileLayer& layer, const std::string& key,
                  const std::string& message, const std::string& way_out) {
  throw UserError(Place{file.path, 0, 0, {}},
                  fmt::format("layer \"{}\", key \"{}\": {}", layer.name, key, message), way_out);
}

NetworkFile read_network_file(const std::string& path) {
  NetworkFile file;
  file.path = path;
  const Json json = parse_json_text(read_bytes(path, kMostFileBytes), path);
  const auto refuse = [&](const std::string& message, const std::string& way_out = {}) {
    throw UserError(Place{path, 0, 0, {}}, message, way_out);
  };
  if (!json.is_object())
    refuse("expected an object with the key \"layers\"");
  const std::vector<std::string> known = joined({"name", "layers"}, kSharedKeys);
  for (const auto& [key, value] : json.items())
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const auto nearest = nearest_word(key, known);
      refuse(fmt::format("unknown key \"{}\"", key),
             nearest
                 ? fmt::format("did you mean {}? Known are {}", *nearest, fmt::join(known, ", "))
                 : fmt::format("known are {}", fmt::join(known, ", ")));
    }
  file.name = std::filesystem::path(path).stem().string();
  if (json.contains("name")) {
    if (!json["name"].is_string())
      refuse("key \"name\": expected text");
    file.name = json["name"].get<std::string>();
  }
  const auto layers = json.find("layers");
  if (layers == json.end() || !layers->is_array() || layers->empty() ||
      layers->size() > kMostNetworkLayers)
    refuse(fmt::format("key \"layers\": expected an array of 1 to {} layers", kMostNetworkLayers));
  for (size_t i = 0; i < layers->size(); ++i)
    file.layers.push_back(LayerReader(file, json, (*layers)[i], fmt::format("layer {}", i)).read());
  std::vector<bool> used(file.layers.size(), false);
  used.back() = true;
  for (const NetworkFileLayer& layer : file.layers)
    for (const int32_t tensor : {layer.input, layer.residual})
      if (tensor >= 0)
        used[static_cast<size_t>(tensor)] = true;
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      refuse_layer(file, file.layers[i], "name", "no later layer reads its output",
                   "the last layer's output is the network's");
  return file;
}

} // namespace sparsertc
