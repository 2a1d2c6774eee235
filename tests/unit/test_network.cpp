// Networks: where the layers' outputs lie, the manifest, and the C API over a fake driver.
#include "runtime/plan/c_api.h"
#include "runtime/plan/network_manifest.h"
#include "tests/support/fake_context.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <random>

using namespace sparsertc;
using namespace sparsertc::cuda;
using Catch::Contains;
using Json = nlohmann::ordered_json;

extern "C" {
size_t c_size_of_network_info(void);
size_t c_size_of_layer_info(void);
size_t c_size_of_network_arguments(void);
}

namespace {

constexpr int32_t kInput = NetworkLayer::kNetworkInput;
constexpr int32_t kNothing = NetworkLayer::kNothing;

/// A layer that reads the one before it.
NetworkLayer layer(const NetworkManifest& manifest, uint64_t bytes, int32_t residual = kNothing) {
  NetworkLayer made;
  const auto number = static_cast<int32_t>(manifest.layers.size());
  made.name = "layer" + std::to_string(number);
  made.input = number - 1;
  made.residual = residual;
  made.output = {0, bytes};
  return made;
}

NetworkManifest chain(const std::vector<uint64_t>& bytes) {
  NetworkManifest manifest;
  manifest.name = "chain";
  manifest.constant_bytes = kNetworkAlignment;
  for (const uint64_t size : bytes)
    manifest.layers.push_back(layer(manifest, size));
  manifest.layers.back().output.reset();
  return manifest;
}

/// The last layer that needs an output.
size_t last_use(const NetworkManifest& manifest, size_t output) {
  size_t last = output;
  for (size_t i = 0; i < manifest.layers.size(); ++i)
    if (manifest.layers[i].input == static_cast<int32_t>(output) ||
        manifest.layers[i].residual == static_cast<int32_t>(output))
      last = i;
  return last;
}

// ---- a network on a fake driver ----

constexpr const char* kEntry = "sparsertc_spmm";

/// C = A * B + bias (+ residual), 64 x 64; N is 40, or given at the launch.
Json plan_manifest(bool residual, bool bias, bool dynamic) {
  Json json = Json::parse(R"json({
    "schema": 1, "family": "spmm", "target": "sm_90", "m": 64, "k": 64, "n": 40, "nnz": 300,
    "dtype": "f32", "layout": "row", "ldb": 40, "ldc": 40,
    "epilogue": {"bias": true, "residual": false, "activation": "relu"},
    "strategy": "unrolled", "tile": "rows=8", "pattern_digest": "4cd2",
    "entries": [{
      "name": "sparsertc_spmm",
      "parameters": [{"role": "b", "bytes": 8}, {"role": "c", "bytes": 8}],
      "ranges": [{"code": "columns", "items": 1, "items_per_block": 256}],
      "grid": {"rule": "", "x": null, "y": 8, "z": 1},
      "block": [256, 1, 1], "dynamic_shared_bytes": 0, "pointer_alignment_bytes": 4}]})json");
  Json& parameters = json["entries"][0]["parameters"];
  json["epilogue"]["bias"] = bias;
  json["epilogue"]["residual"] = residual;
  if (bias)
    parameters.push_back({{"role", "bias"}, {"bytes", 8}});
  if (residual)
    parameters.push_back({{"role", "residual"}, {"bytes", 8}});
  if (dynamic)
    json["n"] = json["ldb"] = json["ldc"] = nullptr;
  return json;
}

Bundle plan_bundle(const Json& manifest) {
  Bundle bundle;
  bundle.manifest = manifest.dump();
  bundle.sections.push_back({"cubin", {0x7f, 'E', 'L', 'F', 1}});
  return bundle;
}

/// first (bias) -> second -> third (adds first) -> fourth.
NetworkManifest demo_network(bool dynamic) {
  const uint64_t bytes = uint64_t{64} * 4 * (dynamic ? 1 : 40);
  NetworkManifest manifest = chain({bytes, bytes, bytes, bytes});
  manifest.name = "demo";
  manifest.dynamic = dynamic;
  manifest.layers[2].residual = 0;
  manifest.layers[0].bias = {kNetworkAlignment, 64 * 4};
  manifest.constant_bytes = 2 * kNetworkAlignment;
  manifest.input_bytes = manifest.output_bytes = bytes;
  place_activations(manifest);
  return manifest;
}

Bundle bundle_of(const NetworkManifest& manifest) {
  Bundle bundle;
  bundle.manifest = network_manifest_json(manifest);
  bundle.sections.push_back({kBiasSection, std::vector<uint8_t>(256, 0x3f)});
  for (size_t i = 0; i < manifest.layers.size(); ++i)
    bundle.sections.push_back(
        {plan_section(i), serialize(plan_bundle(plan_manifest(
                              manifest.layers[i].residual != kNothing,
                              manifest.layers[i].bias.has_value(), manifest.dynamic)))});
  return bundle;
}

class Session : public test::FakeContext {
public:
  Session() : FakeContext([](FakeCudaDriver& driver) { driver.kernels = {kEntry}; }) {}

  sparsertc_result load(const Bundle& bundle, sparsertc_network** network) const {
    const std::vector<uint8_t> bytes = serialize(bundle);
    return sparsertc_network_create(context, bytes.data(), bytes.size(), network);
  }
};

const char* at(const void* memory, uint64_t offset) {
  return static_cast<const char*>(memory) + offset;
}

} // namespace

TEST_CASE("the outputs of a chain take turns") {
  NetworkManifest manifest = chain({1000, 1000, 1000, 1000, 1000});
  place_activations(manifest);
  CHECK(manifest.activation_bytes == 2048);
  CHECK(manifest.layers[0].output->offset == 0);
  CHECK(manifest.layers[1].output->offset == 1024);
  CHECK(manifest.layers[2].output->offset == 0);
  CHECK(manifest.layers[3].output->offset == 1024);

  // The largest are placed first: 3000 and 2000 meet, the small ones find room beside them.
  manifest = chain({100, 3000, 2000, 100, 100});
  place_activations(manifest);
  CHECK(manifest.activation_bytes == 3072 + 2048);
  CHECK(manifest.layers[1].output->offset == 0);
  CHECK(manifest.layers[2].output->offset == 3072);

  manifest = chain({512});
  place_activations(manifest);
  CHECK(manifest.activation_bytes == 0);
}

TEST_CASE("a residual keeps an output alive") {
  NetworkManifest manifest = chain({256, 256, 256, 256, 256});
  manifest.layers[3].residual = 0;
  place_activations(manifest);
  CHECK(manifest.activation_bytes == 3 * 256); // 0 and 2 are needed while 3 is written
  manifest.layers[3].residual = kInput;
  place_activations(manifest);
  CHECK(manifest.activation_bytes == 2 * 256);
}

TEST_CASE("random networks: nothing is overwritten that is still needed") {
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 50; ++round) {
    NetworkManifest manifest = chain(std::vector<uint64_t>(1 + below(30), 0));
    for (size_t i = 0; i < manifest.layers.size(); ++i) {
      NetworkLayer& one = manifest.layers[i];
      one.input = static_cast<int32_t>(below(i + 1)) - 1;
      one.residual = below(3) == 0 ? static_cast<int32_t>(below(i + 1)) - 1 : kNothing;
      if (one.output)
        one.output->bytes = below(4) == 0 ? 0 : below(5000);
    }
    place_activations(manifest);
    uint64_t most_alive = 0, all = 0;
    for (size_t i = 0; i < manifest.layers.size(); ++i) {
      uint64_t alive = 0;
      for (size_t j = 0; j + 1 < manifest.layers.size() && j <= i; ++j)
        if (last_use(manifest, j) >= i)
          alive += network_aligned(manifest.layers[j].output->bytes);
      most_alive = std::max(most_alive, alive);
      if (manifest.layers[i].output)
        all += network_aligned(manifest.layers[i].output->bytes);
    }
    CHECK(manifest.activation_bytes >= most_alive);
    CHECK(manifest.activation_bytes <= all);
    // The reader compares all that are alive together, and gives the same back.
    const std::string text = network_manifest_json(manifest);
    CHECK(network_manifest_json(parse_network_manifest(text, "net")) == text);
  }
}

TEST_CASE("manifests of networks that cannot be are refused") {
  const Json good = Json::parse(network_manifest_json(demo_network(false)));
  CHECK_NOTHROW(parse_network_manifest(good.dump(), "net"));
  const auto refused = [&](const char* text, auto change) {
    Json json = good;
    change(json);
    CHECK_THROWS_WITH(parse_network_manifest(json.dump(), "net"), Contains(text));
  };
  refused("schema: expected 1", [](Json& json) { json["schema"] = 2; });
  refused("holds one layer, not a network", [](Json& json) { json["family"] = "spmm"; });
  refused("layers: expected 1 to 1000", [](Json& json) { json["layers"] = Json::array(); });
  refused("layers[1].name: expected a name that no other layer has",
          [](Json& json) { json["layers"][1]["name"] = "layer0"; });
  refused("layers[1].name", [](Json& json) { json["layers"][1]["name"] = "input"; });
  refused("layers[1].input: expected an earlier layer",
          [](Json& json) { json["layers"][1]["input"] = "layer2"; });
  refused("layers[1].residual", [](Json& json) { json["layers"][1]["residual"] = "layer1"; });
  refused("layers[3].output: expected null for the last layer",
          [](Json& json) { json["layers"][3]["output"] = json["layers"][2]["output"]; });
  refused("layers[1].output: expected a place",
          [](Json& json) { json["layers"][1]["output"] = nullptr; });
  refused("layers[1].output: expected a place beside layer0's",
          [](Json& json) { json["layers"][1]["output"] = json["layers"][0]["output"]; });
  refused("output.offset_bytes: expected a multiple of 256",
          [](Json& json) { json["layers"][1]["output"]["offset_bytes"] = 10241; });
  refused("output.offset_bytes: expected a number from 0 to",
          [](Json& json) { json["layers"][1]["output"]["offset_bytes"] = 1 << 20; });
  refused("output.size_bytes",
          [](Json& json) { json["layers"][1]["output"]["size_bytes"] = 1 << 20; });
  refused("bias.offset_bytes: expected a number from 256",
          [](Json& json) { json["layers"][0]["bias"]["offset_bytes"] = 0; });
  refused("constant_bytes: expected a multiple of 256",
          [](Json& json) { json["workspace"]["constant_bytes"] = 300; });
  CHECK_THROWS_WITH(parse_network_manifest("{", "net"), Contains("not JSON"));
}

TEST_CASE("the structs of networks are the same in C and C++") {
  CHECK(c_size_of_network_info() == sizeof(sparsertc_network_info));
  CHECK(c_size_of_layer_info() == sizeof(sparsertc_layer_info));
  CHECK(c_size_of_network_arguments() == sizeof(sparsertc_network_arguments));
}

TEST_CASE("a network is executed layer by layer, in one workspace") {
  const bool dynamic = GENERATE(false, true);
  INFO("dynamic " << dynamic);
  Session session;
  FakeCudaDriver& fake = session.fake;
  sparsertc_network* network = nullptr;
  REQUIRE(session.load(bundle_of(demo_network(dynamic)), &network) == SPARSERTC_OK);
  const int64_t n = dynamic ? 7 : 0;
  const uint64_t tensor = uint64_t{64} * 4 * (dynamic ? 7 : 40);

  sparsertc_network_info info;
  info.struct_size = sizeof info;
  REQUIRE(sparsertc_network_query(network, n, &info) == SPARSERTC_OK);
  CHECK(info.name == std::string("demo"));
  CHECK(info.layer_count == 4);
  CHECK(info.n == (dynamic ? -1 : 40));
  CHECK(info.input_size == tensor);
  CHECK(info.output_size == tensor);
  CHECK(info.constant_size == 512);
  CHECK(info.workspace_size == 512 + 3 * tensor);
  CHECK(info.workspace_alignment == 256);
  CHECK_THAT(info.manifest, Contains("\"family\": \"network\""));

  sparsertc_layer_info layers[4];
  for (uint32_t i = 0; i < 4; ++i) {
    layers[i].struct_size = sizeof layers[i];
    REQUIRE(sparsertc_network_layer(network, i, n, &layers[i]) == SPARSERTC_OK);
    CHECK(layers[i].name == "layer" + std::to_string(i));
    CHECK(layers[i].output_size == tensor);
  }
  CHECK(layers[0].input == SPARSERTC_NETWORK_INPUT);
  CHECK(layers[0].residual == SPARSERTC_NOTHING);
  CHECK(layers[0].bias_offset == 256);
  CHECK(layers[1].bias_offset == 0);
  CHECK(layers[2].input == 1);
  CHECK(layers[2].residual == 0);
  CHECK(layers[0].output_offset >= 512);
  CHECK(layers[3].output_offset == 0);
  uint32_t found = 9;
  CHECK(sparsertc_network_find(network, "layer2", &found) == SPARSERTC_OK);
  CHECK(found == 2);

  void *input, *output, *workspace;
  REQUIRE(sparsertc_memory_allocate(session.context, info.input_size, &input) == SPARSERTC_OK);
  REQUIRE(sparsertc_memory_allocate(session.context, info.output_size, &output) == SPARSERTC_OK);
  REQUIRE(sparsertc_memory_allocate(session.context, info.workspace_size, &workspace) ==
          SPARSERTC_OK);
  REQUIRE(sparsertc_network_initialize(network, workspace, nullptr) == SPARSERTC_OK);
  CHECK(*at(workspace, 256) == 0x3f);
  CHECK(*at(workspace, 511) == 0x3f);

  std::vector<std::vector<const void*>> operands;
  fake.on_launch = [&](const FakeCudaDriver::Launch& launch) {
    std::vector<const void*>& pointers = operands.emplace_back(3);
    const size_t count = operands.size() == 1 || operands.size() == 3 ? 3 : 2;
    for (size_t i = 0; i < count; ++i)
      std::memcpy(&pointers[i], launch.parameters[i], sizeof(void*));
  };
  const size_t calls = fake.calls().size();
  const sparsertc_network_arguments arguments = {sizeof arguments, input, output, n};
  const auto stream = reinterpret_cast<void*>(0x77);
  REQUIRE(sparsertc_network_execute(network, &arguments, workspace, stream) == SPARSERTC_OK);
  CHECK(fake.calls().size() == calls + 4); // launches, and nothing else
  REQUIRE(operands.size() == 4);
  const void* first = at(workspace, layers[0].output_offset);
  const void* second = at(workspace, layers[1].output_offset);
  const void* third = at(workspace, layers[2].output_offset);
  CHECK(operands[0] == std::vector<const void*>{input, first, at(workspace, 256)});
  CHECK(operands[1] == std::vector<const void*>{first, second, nullptr});
  CHECK(operands[2] == std::vector<const void*>{second, third, first});
  CHECK(operands[3] == std::vector<const void*>{third, output, nullptr});
  sparsertc_execution_status status = {sizeof status, 7, 7, 7};
  CHECK(sparsertc_network_status(network, workspace, nullptr, &status) == SPARSERTC_OK);
  CHECK(status.outcome == SPARSERTC_OUTCOME_OK);

  // A layer's plan outlives the network.
  sparsertc_plan* plan = nullptr;
  REQUIRE(sparsertc_network_plan(network, 1, &plan) == SPARSERTC_OK);
  sparsertc_network_destroy(network);
  sparsertc_plan_info plan_info;
  plan_info.struct_size = sizeof plan_info;
  CHECK(sparsertc_plan_query(plan, &plan_info) == SPARSERTC_OK);
  CHECK(plan_info.m == 64);
  sparsertc_plan_destroy(plan);
  for (void* memory : {input, output, workspace})
    CHECK(sparsertc_memory_free(session.context, memory) == SPARSERTC_OK);
  CHECK(fake.alive()["module"] == 0);
}

TEST_CASE("calls about networks that are wrong") {
  Session session;
  sparsertc_network* network = nullptr;
  REQUIRE(session.load(bundle_of(demo_network(true)), &network) == SPARSERTC_OK);
  const auto refused = [](sparsertc_result result, sparsertc_result expected, const char* text) {
    CHECK(sparsertc_result_name(result) == std::string(sparsertc_result_name(expected)));
    CHECK_THAT(sparsertc_last_error(), Contains(text));
  };
  const auto invalid = [&](sparsertc_result result, const char* text) {
    refused(result, SPARSERTC_ERROR_INVALID_ARGUMENT, text);
  };
  alignas(256) static char workspace[4096];
  alignas(256) static char operand[4096];
  sparsertc_network_info info;
  info.struct_size = sizeof info;
  invalid(sparsertc_network_query(nullptr, 1, &info), "network is a null");
  invalid(sparsertc_network_query(network, 1, nullptr), "info is a null");
  invalid(sparsertc_network_query(network, -1, &info), "n is -1");
  invalid(sparsertc_network_query(network, int64_t{1} << 32, &info), "n is 4294967296");
  info.struct_size = 8;
  invalid(sparsertc_network_query(network, 1, &info), "struct_size is 8");
  sparsertc_layer_info layer_info;
  layer_info.struct_size = sizeof layer_info;
  invalid(sparsertc_network_layer(network, 4, 1, &layer_info), "layer 4: the network has 4");
  uint32_t found = 0;
  invalid(sparsertc_network_find(network, "nobody", &found), "no layer \"nobody\"");
  invalid(sparsertc_network_find(network, nullptr, &found), "name is a null");
  sparsertc_plan* plan = nullptr;
  invalid(sparsertc_network_plan(network, 17, &plan), "layer 17");
  invalid(sparsertc_network_initialize(network, nullptr, nullptr), "workspace is a null");
  invalid(sparsertc_network_initialize(network, workspace + 64, nullptr), "aligned to 256");
  sparsertc_network_arguments arguments = {sizeof arguments, operand, operand, 3};
  invalid(sparsertc_network_execute(network, nullptr, workspace, nullptr), "arguments is a null");
  invalid(sparsertc_network_execute(network, &arguments, workspace + 64, nullptr),
          "aligned to 256");
  arguments.input = nullptr;
  invalid(sparsertc_network_execute(network, &arguments, workspace, nullptr), "b is a null");
  CHECK(session.fake.launches.empty());
  sparsertc_network_destroy(network);
  sparsertc_network_destroy(nullptr);

  // One layer is no network, and a network no layer.
  const std::vector<uint8_t> single = serialize(plan_bundle(plan_manifest(false, true, false)));
  refused(sparsertc_network_create(session.context, single.data(), single.size(), &network),
          SPARSERTC_ERROR_INVALID_BUNDLE, "holds one layer, not a network");
  CHECK(network == nullptr);
  const std::vector<uint8_t> several = serialize(bundle_of(demo_network(true)));
  refused(sparsertc_plan_create(session.context, several.data(), several.size(), &plan),
          SPARSERTC_ERROR_INVALID_BUNDLE, "holds a network, not one layer");
}

TEST_CASE("networks whose layers do not fit together are not loaded") {
  Session session;
  const auto refused = [&](const char* text, const Bundle& bundle) {
    sparsertc_network* network = nullptr;
    CHECK(session.load(bundle, &network) == SPARSERTC_ERROR_INVALID_BUNDLE);
    CHECK_THAT(sparsertc_last_error(), Contains(text));
    CHECK(network == nullptr);
  };
  const NetworkManifest good = demo_network(false);
  const auto with = [&](auto change) {
    NetworkManifest manifest = good;
    change(manifest);
    Bundle bundle = bundle_of(good);
    bundle.manifest = network_manifest_json(manifest);
    return bundle;
  };
  refused("section plan.2 is missing", [&] {
    Bundle bundle = bundle_of(good);
    std::erase_if(bundle.sections, [](const auto& section) { return section.name == "plan.2"; });
    return bundle;
  }());
  refused("plan.1", [&] {
    Bundle bundle = bundle_of(good);
    bundle.find("plan.1")->bytes.pop_back();
    return bundle;
  }());
  refused("section biases has 255 bytes", [&] {
    Bundle bundle = bundle_of(good);
    bundle.find(kBiasSection)->bytes.pop_back();
    return bundle;
  }());
  refused("layer layer0: its n is fixed", with([](auto& m) { m.dynamic = true; }));
  refused("layer layer0: its input has not the size", with([](auto& m) { m.input_bytes += 4; }));
  refused("layer layer3: its output has not the size", with([](auto& m) { m.output_bytes -= 4; }));
  refused("layer layer1: its output has not the size",
          with([](auto& m) { m.layers[1].output->bytes -= 4; }));
  refused("layer layer2: its residual is given and not added, or added",
          with([](auto& m) { m.layers[2].residual = kNothing; }));
  refused("layer layer0: its bias has not the size",
          with([](auto& m) { m.layers[0].bias->bytes = 4; }));
  refused("layer layer0: its bias is given", with([](auto& m) { m.layers[0].bias.reset(); }));
  CHECK(session.fake.alive()["module"] == 0);
}

TEST_CASE("whatever call of the driver fails, loading and executing a network leaves nothing") {
  const std::vector<uint8_t> bytes = serialize(bundle_of(demo_network(false)));
  for (uint64_t number = 1;; ++number) {
    Session session;
    session.fake.fail_call(number);
    sparsertc_network* network = nullptr;
    void* workspace = nullptr;
    bool failed = sparsertc_network_create(session.context, bytes.data(), bytes.size(), &network) !=
                  SPARSERTC_OK;
    CHECK((network == nullptr) == failed);
    if (!failed) {
      failed = sparsertc_memory_allocate(session.context, 65536, &workspace) != SPARSERTC_OK;
      failed = failed || sparsertc_network_initialize(network, workspace, nullptr) != SPARSERTC_OK;
      const sparsertc_network_arguments arguments = {sizeof arguments, at(workspace, 40960),
                                                     static_cast<char*>(workspace) + 51200, 40};
      failed = failed ||
               sparsertc_network_execute(network, &arguments, workspace, nullptr) != SPARSERTC_OK;
    }
    const bool reached = !session.fake.failed_call().empty();
    CHECK(failed == reached);
    session.fake.fail_call(0);
    sparsertc_memory_free(session.context, workspace);
    sparsertc_network_destroy(network);
    CHECK(session.fake.alive()["module"] == 0);
    CHECK(session.fake.alive()["memory"] == 0);
    if (!reached)
      break;
    REQUIRE(number < 200);
  }
}
