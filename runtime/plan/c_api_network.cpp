// The part of sparsertc.h about networks.
#include "ir/error.h"
#include "runtime/plan/c_api.h"
#include "runtime/plan/c_guard.h"

#include <fmt/format.h>

using namespace sparsertc;

namespace {

cuda::DeviceAddress address_of(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}
cuda::StreamHandle stream_of(void* stream) {
  return static_cast<cuda::StreamHandle>(stream);
}

const Network& required_network(const sparsertc_network* handle) {
  return *required(handle, "network").network;
}

void check_layer(const Network& network, uint32_t layer) {
  if (layer >= network.layers())
    throw UsageError(fmt::format("layer {}: the network has {}", layer, network.layers()));
}

uint32_t number_of(int32_t tensor) {
  return tensor == NetworkLayer::kNetworkInput ? SPARSERTC_NETWORK_INPUT
         : tensor == NetworkLayer::kNothing    ? SPARSERTC_NOTHING
                                               : static_cast<uint32_t>(tensor);
}

void create_network(const sparsertc_context* context, Bundle bundle, const std::string& name,
                    sparsertc_network** network) {
  auto made = std::make_unique<sparsertc_network>();
  made->network = std::make_unique<Network>(context->context, std::move(bundle), name);
  *network = made.release();
}

} // namespace

sparsertc_result sparsertc_network_load(const sparsertc_context* context, const char* path,
                                        sparsertc_network** network) {
  return guarded([&] {
    required(network, "network") = nullptr;
    required(context, "context");
    const std::string name = &required(path, "path");
    create_network(context, read_bundle(name), name, network);
  });
}

sparsertc_result sparsertc_network_create(const sparsertc_context* context, const void* bundle,
                                          uint64_t bytes, sparsertc_network** network) {
  return guarded([&] {
    required(network, "network") = nullptr;
    required(context, "context");
    const std::string name = "bundle in memory";
    const auto* first = &required(static_cast<const uint8_t*>(bundle), "bundle");
    create_network(context, parse_bundle({first, bytes}, name), name, network);
  });
}

void sparsertc_network_destroy(sparsertc_network* network) {
  delete network;
}

sparsertc_result sparsertc_network_query(const sparsertc_network* network, int64_t n,
                                         sparsertc_network_info* info) {
  return guarded([&] {
    const Network& asked = required_network(network);
    check_size(required(info, "info"), "sparsertc_network_info");
    const NetworkManifest& manifest = asked.manifest();
    const uint64_t units = asked.units(n);
    clear_keeping_size(*info);
    info->name = manifest.name.c_str();
    info->layer_count = static_cast<uint32_t>(asked.layers());
    info->n = asked.n();
    info->input_size = units * manifest.input_bytes;
    info->output_size = units * manifest.output_bytes;
    info->workspace_size = asked.workspace_bytes(n);
    info->workspace_alignment = Network::kWorkspaceAlignment;
    info->operand_alignment = asked.operand_alignment();
    info->constant_size = manifest.constant_bytes;
    info->manifest = asked.manifest_text().c_str();
  });
}

sparsertc_result sparsertc_network_layer(const sparsertc_network* network, uint32_t layer,
                                         int64_t n, sparsertc_layer_info* info) {
  return guarded([&] {
    const Network& asked = required_network(network);
    check_size(required(info, "info"), "sparsertc_layer_info");
    check_layer(asked, layer);
    const NetworkManifest& manifest = asked.manifest();
    const NetworkLayer& found = manifest.layers[layer];
    const uint64_t units = asked.units(n);
    clear_keeping_size(*info);
    info->name = found.name.c_str();
    info->input = number_of(found.input);
    info->residual = number_of(found.residual);
    info->bias_offset = found.bias ? found.bias->offset : 0;
    info->output_offset = found.output ? manifest.constant_bytes + units * found.output->offset : 0;
    info->output_size = units * (found.output ? found.output->bytes : manifest.output_bytes);
  });
}

sparsertc_result sparsertc_network_find(const sparsertc_network* network, const char* name,
                                        uint32_t* layer) {
  return guarded([&] {
    const Network& asked = required_network(network);
    const std::string wanted = &required(name, "name");
    uint32_t& number = required(layer, "layer");
    const std::optional<uint32_t> found = asked.manifest().find(wanted);
    if (!found)
      throw UsageError(fmt::format("the network has no layer \"{}\"", wanted));
    number = *found;
  });
}

sparsertc_result sparsertc_network_plan(const sparsertc_network* network, uint32_t layer,
                                        sparsertc_plan** plan) {
  return guarded([&] {
    required(plan, "plan") = nullptr;
    const Network& asked = required_network(network);
    check_layer(asked, layer);
    auto made = std::make_unique<sparsertc_plan>();
    made->plan = asked.plan(layer);
    *plan = made.release();
  });
}

sparsertc_result sparsertc_network_initialize(const sparsertc_network* network, void* workspace,
                                              void* stream) {
  return guarded([&] {
    required_network(network).initialize_workspace(address_of(workspace), stream_of(stream));
  });
}

sparsertc_result sparsertc_network_execute(const sparsertc_network* network,
                                           const sparsertc_network_arguments* arguments,
                                           void* workspace, void* stream) {
  return guarded([&] {
    const sparsertc_network_arguments& given =
        required_struct(arguments, "arguments", "sparsertc_network_arguments");
    required_network(network).execute({address_of(given.input), address_of(given.output), given.n},
                                      address_of(workspace), stream_of(stream));
  });
}

sparsertc_result sparsertc_network_status(const sparsertc_network* network, const void* workspace,
                                          void* stream, sparsertc_execution_status* status) {
  return guarded([&] {
    check_size(required(status, "status"), "sparsertc_execution_status");
    const StatusRecord record =
        required_network(network).status(address_of(workspace), stream_of(stream));
    clear_keeping_size(*status);
    status->outcome = record.outcome;
    status->index = record.index;
  });
}
