// A layer's manifest, a session of the C API over the fake driver and a plan in it: what the tests
// of plans share.
#pragma once

#include "runtime/plan/c_api.h"
#include "tests/support/fake_context.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstring>
#include <string>

namespace sparsertc::test {

using cuda::FakeCudaDriver;
using cuda::FunctionAttribute;
using Json = nlohmann::ordered_json;

inline constexpr const char* kEntry = "sparsertc_spmm";

/// A layer with bias, row-major, N given at the launch.
inline Json demo_manifest() {
  return Json::parse(R"json({
    "schema": 1, "family": "spmm", "target": "sm_90", "m": 128, "k": 256, "n": null, "nnz": 3277,
    "dtype": "f32", "layout": "row", "ldb": null, "ldc": null,
    "epilogue": {"bias": true, "residual": false, "activation": "relu"},
    "strategy": "unrolled", "tile": "rows=8", "pattern_digest": "4cd2",
    "entries": [{
      "name": "sparsertc_spmm",
      "parameters": [
        {"name": "B", "role": "b", "type": "device.f32", "bytes": 8},
        {"name": "C", "role": "c", "type": "device.f32", "bytes": 8},
        {"name": "bias", "role": "bias", "type": "device.f32", "bytes": 8},
        {"name": "columns", "role": "columns", "type": "i32", "bytes": 4},
        {"name": "ldb", "role": "ldb", "type": "i32", "bytes": 4},
        {"name": "ldc", "role": "ldc", "type": "i32", "bytes": 4}],
      "ranges": [{"code": "columns", "items": 1, "items_per_block": 256}],
      "grid": {"rule": "x = sum over ranges of ceil(n * items / items_per_block)",
               "x": null, "y": 16, "z": 1},
      "block": [256, 1, 4], "dynamic_shared_bytes": 0, "pointer_alignment_bytes": 4,
      "registers": 40, "static_shared_bytes": 32768}]})json");
}

/// The same with N = 64 compiled in, and a residual.
inline Json fixed_manifest() {
  Json json = demo_manifest();
  json["n"] = 64;
  json["ldb"] = 64;
  json["ldc"] = 72;
  json["epilogue"] = {{"bias", false}, {"residual", true}, {"activation", "none"}};
  Json& entry = json["entries"][0];
  entry["parameters"] = Json::array({{{"role", "b"}, {"bytes", 8}},
                                     {{"role", "c"}, {"bytes", 8}},
                                     {{"role", "residual"}, {"bytes", 8}}});
  entry["pointer_alignment_bytes"] = 16;
  return json;
}

inline constexpr bool kWithPtx = true;
inline constexpr bool kCubinOnly = false;

inline Bundle bundle_of(const Json& manifest, bool ptx = kWithPtx, bool cubin = true) {
  Bundle bundle;
  bundle.manifest = manifest.dump();
  if (cubin)
    bundle.sections.push_back({"cubin", {0x7f, 'E', 'L', 'F', 1}});
  if (ptx)
    bundle.sections.push_back({"ptx", {'p', 't', 'x'}});
  return bundle;
}

/// A C API context on a fake driver.
class Session : public FakeContext {
public:
  Session()
      : FakeContext([](FakeCudaDriver& driver) {
          driver.kernels = {kEntry};
          driver.function_attributes[FunctionAttribute::shared_bytes] = 32768;
        }) {}

  sparsertc_result load(const Bundle& bundle, sparsertc_plan** plan) const {
    const std::vector<uint8_t> bytes = serialize(bundle);
    return sparsertc_plan_create(context, bytes.data(), bytes.size(), plan);
  }
};

/// A plan with device memory for everything.
class LoadedPlan {
public:
  LoadedPlan(Session& session, const Json& manifest) : session_(session) {
    REQUIRE(session.load(bundle_of(manifest), &plan) == SPARSERTC_OK);
    for (void** address : {&b, &c, &bias, &residual, &workspace})
      REQUIRE(sparsertc_memory_allocate(session.context, 4096, address) == SPARSERTC_OK);
    REQUIRE(sparsertc_workspace_initialize(plan, workspace, nullptr) == SPARSERTC_OK);
  }
  ~LoadedPlan() {
    sparsertc_plan_destroy(plan);
    for (void* address : {b, c, bias, residual, workspace})
      sparsertc_memory_free(session_.context, address);
  }
  LoadedPlan(const LoadedPlan&) = delete;
  LoadedPlan& operator=(const LoadedPlan&) = delete;

  sparsertc_arguments arguments(int64_t n) const {
    return {sizeof(sparsertc_arguments), b, c, bias, residual, n, 0, 0};
  }
  sparsertc_result execute(const sparsertc_arguments& arguments) const {
    return sparsertc_plan_execute(plan, &arguments, workspace, nullptr);
  }

  sparsertc_plan* plan = nullptr;
  void *b = nullptr, *c = nullptr, *bias = nullptr, *residual = nullptr, *workspace = nullptr;

private:
  Session& session_;
};

inline void check_refused(sparsertc_result result, sparsertc_result expected, const char* text) {
  CHECK(sparsertc_result_name(result) == std::string(sparsertc_result_name(expected)));
  CHECK_THAT(sparsertc_last_error(), Catch::Contains(text));
}

template <typename T>
T parameter(const FakeCudaDriver::Launch& launch, size_t index) {
  T value;
  std::memcpy(&value, launch.parameters[index], sizeof value);
  return value;
}

} // namespace sparsertc::test
