#include "runtime/plan/network_manifest.h"

#include "runtime/plan/manifest_reader.h"

#include <numeric>
#include <set>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kSchema = 1;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;
constexpr std::string_view kInputWord = "input";

/// The last layer that needs the output of each.
std::vector<size_t> last_uses(const NetworkManifest& manifest) {
  std::vector<size_t> last(manifest.layers.size());
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 0; i < manifest.layers.size(); ++i)
    for (const int32_t used : {manifest.layers[i].input, manifest.layers[i].residual})
      if (used >= 0)
        last[static_cast<size_t>(used)] = i;
  return last;
}

bool are_apart(const NetworkSlice& a, const NetworkSlice& b) {
  return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
}

Json to_json(const std::optional<NetworkSlice>& slice) {
  if (!slice)
    return nullptr;
  return {{"offset_bytes", slice->offset}, {"size_bytes", slice->bytes}};
}

Json tensor_word(const NetworkManifest& manifest, int32_t layer) {
  if (layer == NetworkLayer::kNothing)
    return nullptr;
  return layer == NetworkLayer::kNetworkInput ? std::string(kInputWord)
                                              : manifest.layers[static_cast<size_t>(layer)].name;
}

/// A slice that ends at `most` at the latest, or null.
std::optional<NetworkSlice> read_slice(const ManifestReader& json, std::string_view key,
                                       uint64_t least, uint64_t most) {
  if (json.at(key, "an object or null").is_null())
    return std::nullopt;
  const ManifestReader object = json.object(key);
  NetworkSlice slice;
  slice.bytes = object.number("size_bytes", 0, most - std::min(least, most));
  slice.offset = object.number("offset_bytes", least, std::max(least, most - slice.bytes));
  if (slice.offset % kNetworkAlignment != 0)
    object.refuse("offset_bytes", fmt::format("a multiple of {}", kNetworkAlignment));
  return slice;
}

/// The number of an earlier layer, by its name.
int32_t read_tensor(const ManifestReader& json, std::string_view key,
                    const NetworkManifest& earlier, bool may_be_nothing) {
  if (may_be_nothing && json.at(key, "a name or null").is_null())
    return NetworkLayer::kNothing;
  const std::string name = json.text(key);
  if (name == kInputWord)
    return NetworkLayer::kNetworkInput;
  const std::optional<uint32_t> layer = earlier.find(name);
  if (!layer)
    json.refuse(key, "an earlier layer");
  return static_cast<int32_t>(*layer);
}

} // namespace

std::optional<uint32_t> NetworkManifest::find(std::string_view layer) const {
  for (uint32_t i = 0; i < layers.size(); ++i)
    if (layers[i].name == layer)
      return i;
  return std::nullopt;
}

std::string plan_section(size_t layer) {
  return fmt::format("plan.{}", layer);
}

uint64_t network_aligned(uint64_t bytes) {
  return (bytes + kNetworkAlignment - 1) / kNetworkAlignment * kNetworkAlignment;
}

void place_activations(NetworkManifest& manifest) {
  std::vector<NetworkLayer>& layers = manifest.layers;
  const std::vector<size_t> last = last_uses(manifest);
  std::vector<size_t> order;
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].output)
      order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return layers[a].output->bytes > layers[b].output->bytes;
  });
  manifest.activation_bytes = 0;
  std::vector<size_t> placed;
  for (const size_t i : order) {
    NetworkSlice slice = {0, network_aligned(layers[i].output->bytes)};
    std::vector<NetworkSlice> beside;
    for (const size_t j : placed)
      if (i <= last[j] && j <= last[i])
        beside.push_back({layers[j].output->offset, network_aligned(layers[j].output->bytes)});
    std::sort(beside.begin(), beside.end(),
              [](const NetworkSlice& a, const NetworkSlice& b) { return a.offset < b.offset; });
    for (const NetworkSlice& other : beside)
      if (!are_apart(slice, other))
        slice.offset = other.offset + other.bytes;
    layers[i].output->offset = slice.offset;
    manifest.activation_bytes = std::max(manifest.activation_bytes, slice.offset + slice.bytes);
    placed.push_back(i);
  }
}

std::string network_manifest_json(const NetworkManifest& manifest) {
  Json json;
  json["schema"] = kSchema;
  json["sparsertc"] = manifest.sparsertc;
  json["family"] = "network";
  json["artefact"] = "bundle";
  json["name"] = manifest.name;
  json["dynamic"] = manifest.dynamic;
  json["input_bytes"] = manifest.input_bytes;
  json["output_bytes"] = manifest.output_bytes;
  json["workspace"] = {{"constant_bytes", manifest.constant_bytes},
                       {"activation_bytes", manifest.activation_bytes}};
  json["layers"] = Json::array();
  for (const NetworkLayer& layer : manifest.layers)
    json["layers"].push_back({{"name", layer.name},
                              {"input", tensor_word(manifest, layer.input)},
                              {"residual", tensor_word(manifest, layer.residual)},
                              {"bias", to_json(layer.bias)},
                              {"output", to_json(layer.output)}});
  return json.dump(2) + "\n";
}

NetworkManifest parse_network_manifest(const std::string& text, const std::string& name) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded())
    throw UserError(Place{name, 0, 0, {}}, "the manifest is not JSON");
  const ManifestReader reader(json, name, "");
  if (reader.number("schema", 0, std::numeric_limits<uint32_t>::max()) != kSchema)
    reader.refuse("schema", std::to_string(kSchema));
  if (reader.text("family") != "network")
    throw UserError(Place{name, 0, 0, {}}, "this bundle holds one layer, not a network",
                    "load it with sparsertc_plan_load");
  NetworkManifest manifest;
  manifest.name = reader.text("name");
  manifest.sparsertc = reader.text_or_empty("sparsertc");
  manifest.dynamic = reader.flag("dynamic");
  manifest.input_bytes = reader.number("input_bytes", 0, kMostBytes);
  manifest.output_bytes = reader.number("output_bytes", 0, kMostBytes);
  const ManifestReader workspace = reader.object("workspace");
  manifest.constant_bytes = workspace.number("constant_bytes", kNetworkAlignment, kMostBytes);
  if (manifest.constant_bytes % kNetworkAlignment != 0)
    workspace.refuse("constant_bytes", fmt::format("a multiple of {}", kNetworkAlignment));
  manifest.activation_bytes = workspace.number("activation_bytes", 0, kMostBytes);
  const size_t count = reader.array("layers").size();
  if (count == 0 || count > kMostNetworkLayers)
    reader.refuse("layers", fmt::format("1 to {} of them", kMostNetworkLayers));
  for (size_t i = 0; i < count; ++i) {
    const ManifestReader element = reader.element("layers", i);
    NetworkLayer layer;
    layer.name = element.text("name");
    if (layer.name.empty() || layer.name == kInputWord || manifest.find(layer.name))
      element.refuse("name", "a name that no other layer has");
    layer.input = read_tensor(element, "input", manifest, false);
    layer.residual = read_tensor(element, "residual", manifest, true);
    layer.bias = read_slice(element, "bias", kNetworkAlignment, manifest.constant_bytes);
    layer.output = read_slice(element, "output", 0, manifest.activation_bytes);
    if (layer.output.has_value() == (i + 1 == count))
      element.refuse("output", i + 1 == count ? "null for the last layer" : "a place");
    manifest.layers.push_back(std::move(layer));
  }
  const std::vector<size_t> last = last_uses(manifest);
  for (size_t i = 0; i + 1 < count; ++i)
    for (size_t j = 0; j < i; ++j)
      if (i <= last[j] && !are_apart(*manifest.layers[i].output, *manifest.layers[j].output))
        reader.element("layers", i)
            .refuse("output", fmt::format("a place beside {}'s", manifest.layers[j].name));
  return manifest;
}

bool is_network(const Bundle& bundle) {
  const nlohmann::json json = nlohmann::json::parse(bundle.manifest, nullptr, false);
  if (!json.is_object())
    return false;
  const auto family = json.find("family");
  return family != json.end() && *family == "network";
}

} // namespace sparsertc
