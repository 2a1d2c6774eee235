#include "runtime/plan/network.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace sparsertc {
namespace {

constexpr uint64_t kMostBytes = std::numeric_limits<int64_t>::max();

Bundle layer_bundle(const Bundle& bundle, size_t layer, const std::string& name) {
  const Bundle::Section* section = bundle.find(plan_section(layer));
  if (section == nullptr)
    throw UserError(Place{name, 0, 0, {}},
                    fmt::format("section {} is missing", plan_section(layer)));
  return parse_bundle(section->bytes, fmt::format("{}: section {}", name, section->name));
}

/// Rows lie one behind the other, without gaps.
bool is_tight(const PlanManifest& manifest) {
  const PlanImages images = manifest.images.value_or(PlanImages{});
  const auto tight = [&](uint64_t rows, uint64_t pixels) {
    return manifest.column_major ? rows : manifest.images ? rows * pixels : manifest.n.value_or(0);
  };
  const uint64_t b =
      tight(manifest.images ? images.channels : manifest.k, uint64_t{images.height} * images.width);
  const uint64_t c = tight(manifest.m, uint64_t{images.out_height} * images.out_width);
  // A matrix without rows has leading dimensions of 1.
  return manifest.ldb.value_or(b) <= std::max<uint64_t>(b, 1) &&
         manifest.ldc.value_or(c) <= std::max<uint64_t>(c, 1);
}

void check_workspace(cuda::DeviceAddress workspace) {
  if (workspace % kNetworkAlignment != 0)
    throw UsageError(fmt::format("the workspace is not aligned to {} bytes", kNetworkAlignment));
}

} // namespace

uint64_t input_bytes(const PlanManifest& manifest) {
  const uint64_t rows = manifest.images ? uint64_t{manifest.images->channels} : manifest.k;
  const uint64_t pixels =
      manifest.images ? uint64_t{manifest.images->height} * manifest.images->width : 1;
  return rows * pixels * manifest.n.value_or(1) * manifest.element_bytes;
}

uint64_t output_bytes(const PlanManifest& manifest) {
  const uint64_t pixels =
      manifest.images ? uint64_t{manifest.images->out_height} * manifest.images->out_width : 1;
  return manifest.m * pixels * manifest.n.value_or(1) * manifest.element_bytes;
}

Network::Network(std::shared_ptr<const ExecutionContext> context, Bundle bundle,
                 const std::string& name)
    : context_(std::move(context)), manifest_(parse_network_manifest(bundle.manifest, name)),
      manifest_text_(std::move(bundle.manifest)) {
  if (Bundle::Section* biases = bundle.find(kBiasSection))
    biases_ = std::move(biases->bytes);
  if (biases_.size() != manifest_.constant_bytes - kNetworkAlignment)
    throw UserError(Place{name, 0, 0, {}},
                    fmt::format("section {} has {} bytes, the manifest says {}", kBiasSection,
                                biases_.size(), manifest_.constant_bytes - kNetworkAlignment));
  // All layers share the workspace's status record, behind which the network's arrays lie.
  constexpr uint64_t kNoLibraryWorkspace = 0;
  for (size_t i = 0; i < manifest_.layers.size(); ++i) {
    plans_.push_back(std::make_shared<Plan>(
        context_, layer_bundle(bundle, i, name),
        fmt::format("{}: layer {}", name, manifest_.layers[i].name), kNoLibraryWorkspace));
    alignment_ = std::max(alignment_, plans_.back()->operand_alignment());
  }
  check_layers(name);
}

/// Nothing of a layer may reach beyond what belongs to it, whatever the file says.
void Network::check_layers(const std::string& name) const {
  for (size_t i = 0; i < plans_.size(); ++i) {
    const NetworkLayer& layer = manifest_.layers[i];
    const PlanManifest& plan = plans_[i]->manifest();
    const auto expect = [&](bool fits, const char* what) {
      if (!fits)
        throw UserError(Place{name, 0, 0, {}}, fmt::format("layer {}: {}", layer.name, what),
                        "the file was made by another version of sparsertc; compile it again");
    };
    const auto bytes_of = [&](int32_t tensor) {
      return tensor == NetworkLayer::kNetworkInput
                 ? manifest_.input_bytes
                 : output_bytes(plans_[static_cast<size_t>(tensor)]->manifest());
    };
    expect(plan.n.has_value() != manifest_.dynamic, "its n is fixed and the network's is not");
    expect(is_tight(plan), "its operands have gaps");
    expect(bytes_of(layer.input) == input_bytes(plan), "its input has not the size of its B");
    expect(plan.residual == (layer.residual != NetworkLayer::kNothing),
           "its residual is given and not added, or added and not given");
    if (layer.residual != NetworkLayer::kNothing)
      expect(bytes_of(layer.residual) == output_bytes(plan),
             "its residual has not the size of its C");
    expect(plan.bias == layer.bias.has_value(),
           "its bias is given and not added, or added and not given");
    if (layer.bias)
      expect(layer.bias->bytes == plan.m * plan.element_bytes,
             "its bias has not the size of a column of C");
    const uint64_t place = layer.output ? layer.output->bytes : manifest_.output_bytes;
    expect(place == output_bytes(plan), "its output has not the size of its C");
    expect(plans_[i]->operand_alignment() <= kNetworkAlignment,
           "its operands are aligned to more than a workspace is");
  }
}

int64_t Network::n() const {
  const std::optional<uint64_t>& n = plans_.front()->manifest().n;
  return n ? static_cast<int64_t>(*n) : -1;
}

uint64_t Network::units(int64_t given) const {
  if (!manifest_.dynamic) {
    if (given != 0 && given != n())
      throw UsageError(fmt::format("n is {}, the network was compiled for {}", given, n()));
    return 1;
  }
  const uint64_t most = std::numeric_limits<int32_t>::max();
  const uint64_t bytes =
      std::max({manifest_.activation_bytes, manifest_.input_bytes, manifest_.output_bytes});
  if (given < 0 || static_cast<uint64_t>(given) > most ||
      (bytes != 0 &&
       static_cast<uint64_t>(given) > (kMostBytes - manifest_.constant_bytes) / bytes))
    throw UsageError(fmt::format("n is {}, which the network cannot take", given));
  return static_cast<uint64_t>(given);
}

uint64_t Network::workspace_bytes(int64_t given) const {
  return manifest_.constant_bytes + units(given) * manifest_.activation_bytes;
}

void Network::initialize_workspace(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const {
  check_workspace(workspace);
  plans_.front()->initialize_workspace(workspace, stream);
  if (biases_.empty())
    return;
  const cuda::Context& gpu = context_->require_gpu("initialising a workspace");
  cuda::check(gpu.api().cuMemcpyHtoDAsync(workspace + kNetworkAlignment, biases_.data(),
                                          biases_.size(), stream),
              "cuMemcpyHtoDAsync", "initialising a workspace");
}

cuda::DeviceAddress Network::output_of(size_t layer, const NetworkArguments& arguments,
                                       cuda::DeviceAddress workspace) const {
  const std::optional<NetworkSlice>& output = manifest_.layers[layer].output;
  return output ? workspace + manifest_.constant_bytes + units(arguments.n) * output->offset
                : arguments.output;
}

void Network::execute_layer(size_t number, const NetworkArguments& arguments,
                            cuda::DeviceAddress workspace, cuda::StreamHandle stream) const {
  check_workspace(workspace);
  const NetworkLayer& layer = manifest_.layers[number];
  const Plan& plan = *plans_[number];
  const auto address_of = [&](int32_t tensor) {
    return tensor == NetworkLayer::kNetworkInput
               ? arguments.input
               : output_of(static_cast<size_t>(tensor), arguments, workspace);
  };
  SpmmArguments operands;
  operands.b = address_of(layer.input);
  operands.c = output_of(number, arguments, workspace);
  if (layer.bias)
    operands.bias = workspace + layer.bias->offset;
  if (layer.residual != NetworkLayer::kNothing)
    operands.residual = address_of(layer.residual);
  operands.n = static_cast<int64_t>(plan.manifest().n.value_or(units(arguments.n)));
  plan.execute(operands, workspace, stream);
}

void Network::execute(const NetworkArguments& arguments, cuda::DeviceAddress workspace,
                      cuda::StreamHandle stream) const {
  for (size_t layer = 0; layer < plans_.size(); ++layer)
    execute_layer(layer, arguments, workspace, stream);
}

StatusRecord Network::status(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const {
  return plans_.front()->status(workspace, stream);
}

} // namespace sparsertc
